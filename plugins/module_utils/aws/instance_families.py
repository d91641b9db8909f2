# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accelerators of EC2 instance types. The inventory, the filter and the hosts use this one table.

The names of the models are those of the EC2 API. Sources:

[AC]  docs.aws.amazon.com/ec2/latest/instancetypes/ac.html, the specifications of accelerated computing instances
[DIT] the answers of ec2:DescribeInstanceTypes that getmoto/moto 5.2.5 contains (2026-10-27). tests/aws compares them.
[KP]  aws/karpenter-provider-aws at 1d927085dd81a9df9301e613f371dac5b4d16bfe, instance-types.md in
      website/content/en/{preview,v1.0}/reference, generated from EC2's API; v1.0 has families that AWS phases out
[NSDK] awsdocs-neuron.readthedocs-hosted.com, "Trn2 Architecture" and "Trn3 Architecture"
"""

from __future__ import annotations

import re
import types
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_generations

X86_64 = "x86_64"
ARM64 = "arm64"


class Family(t.NamedTuple):
    """What all sizes of a family have in common, and the number of devices in each size."""

    vendor: str
    model: str
    # Memory of one device. None: no source states it.
    memory_mib: int | None
    sizes: dict[str, int]
    architecture: str = X86_64
    # Only for sizes with a part of a GPU: the part, and its memory.
    fractions: t.Mapping[str, tuple[float, int]] = types.MappingProxyType({})


_SIZES_G = {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 4, "16xlarge": 1}
_SIZES_G_LARGE = {**_SIZES_G, "24xlarge": 4, "48xlarge": 8}
_SIZES_G7 = {"2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8}

FAMILIES = {
    # NVIDIA, P. p2 and p3: [KP v1.0], all others: [AC], [DIT], [KP].
    "p2": Family("nvidia", "K80", 12288, {"xlarge": 1, "8xlarge": 8, "16xlarge": 16}),
    "p3": Family("nvidia", "V100", 16384, {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    "p3dn": Family("nvidia", "V100", 32768, {"24xlarge": 8}),
    "p4d": Family("nvidia", "A100", 40960, {"24xlarge": 8}),
    "p4de": Family("nvidia", "A100", 81920, {"24xlarge": 8}),
    "p5": Family("nvidia", "H100", 81920, {"4xlarge": 1, "48xlarge": 8}),
    "p5e": Family("nvidia", "H200", 144384, {"48xlarge": 8}),
    "p5en": Family("nvidia", "H200", 144384, {"48xlarge": 8}),
    "p6-b200": Family("nvidia", "B200", 183359, {"48xlarge": 8}),
    "p6-b300": Family("nvidia", "B300", 275040, {"48xlarge": 8}),
    # [AC] calls these GPUs B200. The driver and the family call them GB200.
    "p6e-gb200": Family("nvidia", "GB200", 189440, {"36xlarge": 4}, ARM64),
    # The EKS user guide names the family. No source of AWS states the number of GPUs and their memory.
    "p6e-gb300": Family("nvidia", "GB300", None, {}, ARM64),
    # NVIDIA, G. g3: [KP v1.0], all others: [AC], [DIT], [KP].
    "g3": Family("nvidia", "M60", 8192, {"4xlarge": 1, "8xlarge": 2, "16xlarge": 4}),
    "g3s": Family("nvidia", "M60", 8192, {"xlarge": 1}),
    "g4dn": Family("nvidia", "T4", 16384, {**_SIZES_G, "metal": 8}),
    "g5": Family("nvidia", "A10G", 22888, _SIZES_G_LARGE),
    "g5g": Family(
        "nvidia",
        "T4g",
        16384,
        {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 2, "metal": 2},
        ARM64,
    ),
    "g6": Family("nvidia", "L4", 22888, _SIZES_G_LARGE),
    "g6e": Family("nvidia", "L40S", 45776, _SIZES_G_LARGE),
    "gr6": Family("nvidia", "L4", 22888, {"4xlarge": 1, "8xlarge": 1}),
    # A part of a GPU. The host sees one device with the memory of the part.
    "g6f": Family(
        "nvidia",
        "L4",
        None,
        {"large": 1, "xlarge": 1, "2xlarge": 1, "4xlarge": 1},
        fractions={
            "large": (0.125, 2861),
            "xlarge": (0.125, 2861),
            "2xlarge": (0.25, 5722),
            "4xlarge": (0.5, 11444),
        },
    ),
    "gr6f": Family("nvidia", "L4", None, {"4xlarge": 1}, fractions={"4xlarge": (0.5, 11444)}),
    "g7": Family("nvidia", "RTX PRO 4500", 32768, _SIZES_G7),
    # NVIDIA's name: RTX PRO 6000 Blackwell Server Edition.
    "g7e": Family("nvidia", "RTX PRO Server 6000", 98304, _SIZES_G7),
    # AMD. [AC], [KP]
    "g4ad": Family(
        "amd", "Radeon Pro V520", 8192, {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 2, "16xlarge": 4}
    ),
    # AWS Neuron. [AC], [DIT], [KP]
    "inf1": Family("neuron", "Inferentia", 8192, {"xlarge": 1, "2xlarge": 1, "6xlarge": 4, "24xlarge": 16}),
    "inf2": Family("neuron", "Inferentia2", 32768, {"xlarge": 1, "8xlarge": 1, "24xlarge": 6, "48xlarge": 12}),
    "trn1": Family("neuron", "Trainium", 32768, {"2xlarge": 1, "32xlarge": 16}),
    "trn1n": Family("neuron", "Trainium", 32768, {"32xlarge": 16}),
    # EC2's API and [AC] state 512 GiB per device, which is wrong: [NSDK] states 1,536 GiB for 16 devices.
    "trn2": Family("neuron", "Trainium2", 98304, {"3xlarge": 1, "48xlarge": 16}),
    "trn2u": Family("neuron", "Trainium2", 98304, {"48xlarge": 16}),
    # [NSDK] describes the UltraServers with this chip. No source states the devices of one instance by its size.
    "trn3": Family("neuron", "Trainium3", 147456, {}),
    # Other accelerators. dl1: [AC], [KP v1.0], the rest: [AC], [DIT].
    "dl1": Family("gaudi", "Gaudi HL-205", 32768, {"24xlarge": 8}),
    "dl2q": Family("qualcomm", "Qualcomm AI100", 16000, {"24xlarge": 8}),
    "f2": Family("xilinx", "Virtex UltraScale+ (VU47P)", 81920, {"6xlarge": 1, "12xlarge": 2, "48xlarge": 8}),
    "vt1": Family("xilinx", "U30", 24576, {"3xlarge": 1, "6xlarge": 2, "24xlarge": 8}),
}

GENERATIONS = {
    "K80": nvidia_generations.KEPLER,
    "M60": nvidia_generations.MAXWELL,
    "V100": nvidia_generations.VOLTA,
    "T4": nvidia_generations.TURING,
    "T4g": nvidia_generations.TURING,
    "A100": nvidia_generations.AMPERE,
    "A10G": nvidia_generations.AMPERE,
    "L4": nvidia_generations.ADA,
    "L40S": nvidia_generations.ADA,
    "H100": nvidia_generations.HOPPER,
    "H200": nvidia_generations.HOPPER_H200,
    "B200": nvidia_generations.BLACKWELL,
    "GB200": nvidia_generations.BLACKWELL,
    "RTX PRO 4500": nvidia_generations.BLACKWELL,
    "RTX PRO Server 6000": nvidia_generations.BLACKWELL,
    "B300": nvidia_generations.BLACKWELL_ULTRA,
    "GB300": nvidia_generations.BLACKWELL_ULTRA,
}

_INSTANCE_TYPE = re.compile(r"(?P<family>[a-z][a-z0-9-]*)\.(?P<size>[a-z0-9-]+)")
# EC2 uses these letters only for families with accelerators.
_ACCELERATED = re.compile(r"(p|g|gr|inf|trn|dl|vt|f)[0-9]")


class InstanceAccelerator(t.TypedDict):
    """The accelerators of an instance type. None: no source states the value."""

    instance_type: str
    family: str
    # nvidia, amd, neuron, gaudi, qualcomm, xilinx (FPGAs and video transcoders), or unknown.
    vendor: str
    model: str | None
    count: int | None
    # Memory of one device. A family with parts of a GPU: the memory of the part.
    memory_gib: float | None
    # The part of a GPU that one device is. 1 for whole devices.
    fraction: float | None
    architecture: str | None


def describe(instance_type: str) -> InstanceAccelerator | None:
    """Return the accelerators of an instance type, or None for a type without accelerators.

    A family with the letter of an accelerated family that the table lacks has the vendor `unknown`.
    """
    match = _INSTANCE_TYPE.fullmatch(instance_type)
    if match is None:
        return None
    name, size = match["family"], match["size"]
    family = FAMILIES.get(name)
    if family is None:
        if not _ACCELERATED.match(name):
            return None
        return InstanceAccelerator(
            instance_type=instance_type,
            family=name,
            vendor="unknown",
            model=None,
            count=None,
            memory_gib=None,
            fraction=None,
            architecture=None,
        )
    fraction, memory_mib = family.fractions.get(size, (None if family.fractions else 1, family.memory_mib))
    return InstanceAccelerator(
        instance_type=instance_type,
        family=name,
        vendor=family.vendor,
        model=family.model,
        count=family.sizes.get(size),
        memory_gib=None if memory_mib is None else round(memory_mib / 1024, 2),
        fraction=fraction,
        architecture=family.architecture,
    )
