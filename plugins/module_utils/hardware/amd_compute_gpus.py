# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's GPUs for computing by PCI device ID.

Servers also have AMD graphics that do not compute, such as the integrated graphics of a CPU. With a loaded driver, KFD
tells them apart. Without one, only the GPUs in this table are known to compute.

Sources: ROCm/gpu-operator, hack/k8s-patch/template-patch/gpu-nfd-default-rule.yaml (6df13c1); ROCm/k8s-device-plugin,
cmd/k8s-node-labeller/amdgpu.ids (ed76468); pci.ids of Debian 12.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, listing, read_text

VENDOR_ID = "0x1002"
DRIVER = "amdgpu"
_NODES = "/sys/class/kfd/kfd/topology/nodes"

# MI200 has the same counters as other GPUs, but reading them clears the status in its hardware.
MI200 = ("0x7408", "0x740c", "0x740f", "0x7410")

MODELS = {
    **dict.fromkeys(("0x6860", "0x6864", "0x686c"), "MI25"),
    **dict.fromkeys(("0x66a0", "0x66a1"), "MI50/MI60"),
    **dict.fromkeys(("0x738c", "0x738e"), "MI100"),
    "0x7408": "MI250X",
    "0x740c": "MI250/MI250X",
    **dict.fromkeys(("0x740f", "0x7410"), "MI210"),
    "0x74a0": "MI300A",
    **dict.fromkeys(("0x74a1", "0x74b5"), "MI300X"),
    **dict.fromkeys(("0x74a2", "0x74b6"), "MI308X"),
    **dict.fromkeys(("0x74a5", "0x74b9"), "MI325X"),
    **dict.fromkeys(("0x74a8", "0x74bc"), "MI308X HF"),
    **dict.fromkeys(("0x74a9", "0x74bd"), "MI300X HF"),
    **dict.fromkeys(("0x75a0", "0x75b0"), "MI350X"),
    **dict.fromkeys(("0x75a3", "0x75b3"), "MI355X"),
    **dict.fromkeys(("0x75a8", "0x75b8"), "MI350P"),
    **dict.fromkeys(("0x7460", "0x7461"), "V710"),
    **dict.fromkeys(("0x73a1", "0x73ae"), "V620"),
    "0x7362": "V520/V540",
    **dict.fromkeys(("0x7448", "0x744a", "0x744b"), "W7900"),
    **dict.fromkeys(("0x7449", "0x745e"), "W7800"),
    "0x7551": "AI PRO R9700",
    "0x744c": "RX 7900",
    "0x7550": "RX 9070",
}


def computing(root: str) -> dict[str, bool]:
    """Return the GPUs that the compute driver (KFD) knows, by PCI address without function.

    The value says whether the GPU is part of a CPU: cores share its KFD node, or it has the sensor of the north
    bridge's voltage (hwmon_attributes_visible in amdgpu_pm.c).
    """
    found = {}
    for name in listing(root, _NODES):
        text = read_text(root, f"{_NODES}/{name}/properties") or ""
        values = {key: int(value) for key, value in re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)}
        if values.get("simd_count"):
            location = values.get("location_id", 0)
            address = f"{values.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
            found[address] = values.get("cpu_cores_count", 0) > 0 or _has_north_bridge(root, address)
    return found


def _has_north_bridge(root: str, address: str) -> bool:
    base = f"/sys/bus/pci/devices/{address}.0/hwmon"
    return any(exists(root, f"{base}/{name}/in1_label") for name in listing(root, base))


def computes(function: dict, known: dict[str, bool]) -> bool:
    """Return whether a display adapter of AMD is a GPU that computes, and not graphics of a CPU.

    `known`: from `computing`. It tells whether a GPU of an unknown model computes while the kernel module drives it. A
    GPU of a known model counts even if it has a fault, so that a role can name the fault.
    """
    if function["device_id"] in MODELS:
        return True
    return function["kernel_driver"] == DRIVER and known.get(function["address"].rpartition(".")[0]) is False
