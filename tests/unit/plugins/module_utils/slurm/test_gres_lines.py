# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gres.conf and the Gres of a node, for every vendor, model and partition."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids as hardware
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import amd_compute_gpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import (
    configuration_files,
    gpu_types,
    gres_lines,
    reported_gres,
)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA H100 NVL", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h200"),
        ("NVIDIA H800", "h800"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA GH200 144G HBM3e", "gh200"),
        ("NVIDIA GB300", "gb300"),
        ("NVIDIA GB10", "gb10"),
        ("Orin (nvgpu)", "orin"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA A800-SXM4-80GB", "a800"),
        ("NVIDIA A100-SXM-64GB", "a100"),
        ("NVIDIA A30", "a30"),
        ("NVIDIA A16-4Q", "a16-4q"),
        ("NVIDIA A40", "a40"),
        ("NVIDIA L20", "l20"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("Tesla K80", "k80"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("GeForce GTX 1080 Ti", "gtx_1080_ti"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"),
        ("Quadro RTX 6000", "rtx_6000"),
        ("NVIDIA RTX A6000", "rtx_a6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx_pro_6000"),
        ("NVIDIA RTX PRO 4500 Blackwell", "rtx_pro_4500"),
        ("NVIDIA GeForce RTX 5090", "rtx_5090"),
        ("NVIDIA TITAN V", "titan_v"),
        ("GRID A100-10C", "grid_a100"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("MI250/MI250X", "mi250_mi250x"),
        ("MI308X HF", "mi308x_hf"),
        ("AI PRO R9700", "ai_pro_r9700"),
        ("RX 7900", "rx_7900"),
        ("Inferentia2", "inferentia2"),
        ("Trainium3", "trainium3"),
        ("Gaudi3", "gaudi3"),
        ("HL-225B", "hl-225b"),
        ("HL205", "hl205"),
        ("Intel(R) Data Center GPU Max 1550", "max_1550"),
        ("NVIDIA Graphics Device", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
        ("évil model; rm -rf", "vil_model_rm_-rf"),
    ],
)
def test_the_type_of_a_model_is_what_users_request(model, kind):
    assert gpu_types.type_of(model) == kind


AMD_MODELS = sorted(set(amd_compute_gpus.MODELS.values()))
GENERATIONS = [
    *(("neuron", name) for name in sorted(set(hardware._NEURON.values()))),
    *(("gaudi", name) for name in sorted(set(hardware._GAUDI.values()))),
]


@pytest.mark.parametrize("model", AMD_MODELS)
def test_every_amd_model_has_a_line_with_a_type_of_its_own(model):
    device = {**amd(0), "model": model}
    (line,) = gres_lines.lines("gpu-1", gres_lines.select([device])[0])
    kind = gres_lines.select([device])[0][0].kind
    assert line == f"NodeName=gpu-1 Name=gpu Type={kind} File=/dev/dri/renderD128 Flags=amd_gpu_env"
    assert configuration_files.is_type(kind)
    assert model.split("/")[0].split()[-1].lower() in kind
    assert [other for other in AMD_MODELS if gpu_types.type_of(other) == kind] == [model]
    # The driver's name of the product gives the same type as the table of PCI IDs.
    assert gpu_types.type_of(f"AMD Instinct {model}") == kind


@pytest.mark.parametrize(("vendor", "generation"), GENERATIONS)
def test_every_generation_of_neuron_and_gaudi_has_a_line(vendor, generation):
    path = {"neuron": "/dev/neuron0", "gaudi": "/dev/accel/accel0"}[vendor]
    for model in {"neuron": (generation, None), "gaudi": ("HL-325L", None)}[vendor]:
        device = {**other(vendor, model, 0, path), "generation": generation}
        (line,) = gres_lines.lines("gpu-1", gres_lines.select([device])[0])
        assert line == f"NodeName=gpu-1 Name=gpu Type={generation.lower()} File={path} Flags=no_gpu_env"


@pytest.mark.parametrize("name", ["HL-325L", "Gaudi3"])
def test_the_user_can_choose_the_type_of_a_model_or_generation(name):
    device = {**other("gaudi", "HL-325L", 0, "/dev/accel/accel0"), "generation": "Gaudi3"}
    assert [one.kind for one in gres_lines.select([device], {name: "small"})[0]] == ["small"]
    assert [one.kind for one in gres_lines.select([device], {"Gaudi2": "small"})[0]] == ["gaudi3"]


@pytest.mark.parametrize(("profile", "kind"), [("1g.10gb", "h100_1g.10gb"), ("1g.10gb+me", "h100_1g.10gb_me")])
def test_the_type_of_a_partition_names_its_gpu(profile, kind):
    assert gpu_types.partition_type("h100", profile) == kind


def node(path, role="device"):
    return {"path": path, "role": role, "gid": 0}


def nvidia(number, model="NVIDIA H100 80GB HBM3", minor=None, **values):
    nodes = [node("/dev/nvidiactl", "control"), node(f"/dev/nvidia{number if minor is None else minor}")]
    return schema.device(
        "nvidia",
        **{
            "model": model,
            "pci_address": f"0000:{number:02x}:00.0",
            "stable_id": f"GPU-{number}",
            "nodes": [*nodes, node(f"/dev/dri/renderD{128 + number}", "render")],
            **values,
        },
    )


def mig(number, slot, profile, capabilities, **values):
    return nvidia(
        number,
        stable_id=f"MIG-{number}-{slot}",
        nodes=[node(f"/dev/nvidia{number}"), *(node(f"/dev/nvidia-caps/nvidia-cap{one}") for one in capabilities)],
        partition=schema.partition(profile, slot, f"GPU-{number}"),
        **values,
    )


def amd(number, render=None, partition=None, parent=None):
    return schema.device(
        "amd",
        model="AMD Instinct MI300X",
        pci_address=f"0000:{number:02x}:00.0",
        stable_id=f"0x{number}-{partition}" if parent else f"0x{number}",
        nodes=[
            node("/dev/kfd", "control"),
            node(f"/dev/dri/renderD{128 + number if render is None else render}", "render"),
            node(f"/dev/dri/card{number}", "card"),
        ],
        partition=schema.partition("CPX" if parent else None, partition, parent),
    )


def other(vendor, model, number, path, role="device"):
    return schema.device(
        vendor,
        model=model,
        pci_address=f"0000:{number:02x}:00.0",
        stable_id=f"{vendor}{number}",
        nodes=[node(path, role)],
    )


H100 = "NodeName=gpu-1 Name=gpu Type=h100 File=/dev/nvidia[0-7] Flags=nvidia_gpu_env"
CASES = {
    "no devices": ([], [], ""),
    "one GPU": (
        [nvidia(0, "Tesla T4")],
        ["NodeName=gpu-1 Name=gpu Type=t4 File=/dev/nvidia0 Flags=nvidia_gpu_env"],
        "gpu:t4:1",
    ),
    "eight GPUs": ([nvidia(number) for number in range(8)], [H100], "gpu:h100:8"),
    # Slurm numbers GPUs by their PCI addresses, which the minor numbers need not follow.
    "minor numbers in another order": (
        [nvidia(0, minor=1), nvidia(1, minor=0)],
        [
            "NodeName=gpu-1 Name=gpu Type=h100 File=/dev/nvidia1 Flags=nvidia_gpu_env",
            "NodeName=gpu-1 Name=gpu Type=h100 File=/dev/nvidia0 Flags=nvidia_gpu_env",
        ],
        "gpu:h100:2",
    ),
    "the order of the bus": (
        [nvidia(3, minor=1), nvidia(2, minor=0)],
        ["NodeName=gpu-1 Name=gpu Type=h100 File=/dev/nvidia[0-1] Flags=nvidia_gpu_env"],
        "gpu:h100:2",
    ),
    "two models": (
        [nvidia(0), nvidia(1, "NVIDIA L4"), nvidia(2)],
        [
            "NodeName=gpu-1 Name=gpu Type=h100 File=/dev/nvidia0 Flags=nvidia_gpu_env",
            "NodeName=gpu-1 Name=gpu Type=l4 File=/dev/nvidia1 Flags=nvidia_gpu_env",
            "NodeName=gpu-1 Name=gpu Type=h100 File=/dev/nvidia2 Flags=nvidia_gpu_env",
        ],
        "gpu:h100:2,gpu:l4:1",
    ),
    "a gap in the numbers": (
        [nvidia(0), nvidia(2)],
        [
            "NodeName=gpu-1 Name=gpu Type=h100 File=/dev/nvidia0 Flags=nvidia_gpu_env",
            "NodeName=gpu-1 Name=gpu Type=h100 File=/dev/nvidia2 Flags=nvidia_gpu_env",
        ],
        "gpu:h100:2",
    ),
    "MIG devices replace their GPU": (
        [
            nvidia(0, partition=schema.partition("mig")),
            mig(0, 0, "3g.40gb", (21, 22)),
            mig(0, 1, "1g.10gb", (30, 31)),
            nvidia(1),
        ],
        [
            "NodeName=gpu-1 Name=gpu Type=h100_3g.40gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21,"
            "/dev/nvidia-caps/nvidia-cap22 Flags=nvidia_gpu_env",
            "NodeName=gpu-1 Name=gpu Type=h100_1g.10gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap30,"
            "/dev/nvidia-caps/nvidia-cap31 Flags=nvidia_gpu_env",
            "NodeName=gpu-1 Name=gpu Type=h100 File=/dev/nvidia1 Flags=nvidia_gpu_env",
        ],
        "gpu:h100_3g.40gb:1,gpu:h100_1g.10gb:1,gpu:h100:1",
    ),
    "AMD": (
        [amd(number) for number in range(8)],
        ["NodeName=gpu-1 Name=gpu Type=mi300x File=/dev/dri/renderD[128-135] Flags=amd_gpu_env"],
        "gpu:mi300x:8",
    ),
    "partitions of AMD": (
        [amd(0, 128, 0, "0x0"), amd(0, 129, 1, "0x0")],
        ["NodeName=gpu-1 Name=gpu Type=mi300x_cpx File=/dev/dri/renderD[128-129] Flags=amd_gpu_env"],
        "gpu:mi300x_cpx:2",
    ),
    "Neuron": (
        [other("neuron", "Trainium2", number, f"/dev/neuron{number}") for number in range(16)],
        ["NodeName=gpu-1 Name=gpu Type=trainium2 File=/dev/neuron[0-15] Flags=no_gpu_env"],
        "gpu:trainium2:16",
    ),
    "Gaudi": (
        [
            {**other("gaudi", "HL-325L", number, f"/dev/accel/accel{number}"), "generation": "Gaudi3"}
            for number in range(8)
        ],
        ["NodeName=gpu-1 Name=gpu Type=gaudi3 File=/dev/accel/accel[0-7] Flags=no_gpu_env"],
        "gpu:gaudi3:8",
    ),
    "Intel": (
        [other("intel", "Intel Data Center GPU Max 1550", 0, "/dev/dri/renderD128", "render")],
        ["NodeName=gpu-1 Name=gpu Type=max_1550 File=/dev/dri/renderD128 Flags=intel_gpu_env"],
        "gpu:max_1550:1",
    ),
    "two vendors": (
        [amd(0), nvidia(1)],
        [
            "NodeName=gpu-1 Name=gpu Type=h100 File=/dev/nvidia1 Flags=nvidia_gpu_env",
            "NodeName=gpu-1 Name=gpu Type=mi300x File=/dev/dri/renderD128 Flags=amd_gpu_env",
        ],
        "gpu:h100:1,gpu:mi300x:1",
    ),
}


@pytest.mark.parametrize(("devices", "expected", "node_gres"), CASES.values(), ids=CASES)
def test_lines_of_gres_conf_and_of_the_node(devices, expected, node_gres):
    selected, skipped = gres_lines.select(devices)
    assert gres_lines.lines("gpu-1", selected) == expected
    assert gres_lines.node_gres(selected) == node_gres
    assert skipped == []
    counts = reported_gres.parse(node_gres)
    assert sum(counts.values()) == len(selected)


def test_detection_for_all_nodes_is_turned_off_for_explicit_lines():
    selected, _skipped = gres_lines.select([nvidia(0)])
    (line,) = gres_lines.lines("gpu-1", selected, detection_off=True)
    assert line.startswith("NodeName=gpu-1 AutoDetect=off Name=gpu Type=h100 File=")


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (nvidia(0, health=schema.health("lost", "the GPU has fallen off the bus")), "fallen off the bus"),
        (nvidia(0, nodes=None), "no device node is known"),
        (nvidia(0, nodes=[node("/dev/nvidia0 x")]), "characters that gres.conf cannot contain"),
        (nvidia(0, partition=schema.partition("mig")), "has no MIG devices"),
        (mig(0, 0, "1g.10gb", ()), "below /dev/nvidia-caps"),
    ],
)
def test_a_device_that_slurm_cannot_use_is_left_out_and_named(device, reason):
    selected, skipped = gres_lines.select([device, nvidia(5)])
    assert [one.stable_id for one in selected] == ["GPU-5"]
    assert reason in skipped[0].reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:a100:8(S:0-1)", {"a100": 8}),
        ("gpu:a100:2(S:0),gpu:t4:1,shard:16", {"a100": 2, "t4": 1}),
        ("gpu:4", {"": 4}),
        ("gpu:1080:2,gpu:h100_1g.10gb:7(S:0,1)", {"1080": 2, "h100_1g.10gb": 7}),
        ("gpu:a100", {"a100": 1}),
        ("gpu", {"": 1}),
        # Text that is no number is a type; suffixes: SchedMD/slurm (284c3b95), suffix_mult.
        ("gpu:a100:\u00b2", {"a100": 1}),
        ("gpu:a100:\u0663", {"a100": 1}),
        ("gpu:1K", {"": 1024}),
        ("gpu:a100:1K(S:0-1)", {"a100": 1024}),
        ("gpu:a100:2k,gpu:t4:1kb,gpu:l4:1MiB", {"a100": 2048, "t4": 1000, "l4": 1024**2}),
        ("gpu:a100:1mb,gpu:t4:1G,gpu:l4:1tB,gpu:h20:1pib", {"a100": 10**6, "t4": 2**30, "l4": 10**12, "h20": 2**50}),
        ("gpu:a100:1E,gpu:t4:2", {"a100": 0, "t4": 2}),
        ("gpu:h100_1g.10gb", {"h100_1g.10gb": 1}),
        ("gpu:a100:" + "0" * 5000 + "2", {"a100": 2}),
        ("", {}),
        ("(null)", {}),
    ],
)
def test_the_gres_of_a_node_is_counted_by_type(text, expected):
    assert reported_gres.parse(text) == expected


def test_a_count_of_thousands_of_digits_is_more_than_any_host_has():
    assert reported_gres.parse("gpu:a100:" + "9" * 5000)["a100"] > 10**15
