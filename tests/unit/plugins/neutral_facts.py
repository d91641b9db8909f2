# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the facts of `nvidia_gpu_facts` with NVIDIA's devices in the neutral schema, value by value."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    nvidia_devices,
    sysfs_refusals,
)

# The key of the schema, and the path in an item of nvidia_gpus.
_PAIRS = {
    "index": "index",
    "model": "name",
    "generation": "architecture",
    "pci_address": "pci_bus_id",
    "numa_node": "numa_node",
    "memory_total_mib": "memory_total_mib",
    "memory_used_mib": "memory_used_mib",
    "temperature_c": "temperature.gpu_c",
    "power_w": "power.draw_w",
    "utilization_percent": "utilization.gpu_percent",
    "errors.corrected": "ecc.volatile.corrected",
    "errors.uncorrected": "ecc.volatile.uncorrected",
    "firmware.vbios": "vbios_version",
    "health.state": "health.state",
    "health.reasons": "health.reasons",
}
_MIG_PAIRS = {"stable_id": "uuid", "memory_total_mib": "memory_total_mib", "partition.id": "index"}


def differences(facts: dict, root: str) -> list[str]:
    """Return what the neutral devices of a host say that its NVIDIA facts do not, or the other way round."""
    devices, state = nvidia_devices.convert(facts, sysfs_refusals.SysfsTree(root))
    found = []
    if (state["state"], state["reason"]) != (facts["nvidia_gpu_state"], facts["nvidia_gpu_state_reason"]):
        found.append(f"state {state}")
    if state["driver_version"] != facts["nvidia_driver"]["version"]:
        found.append(f"driver {state['driver_version']}")
    rest = iter(devices)
    for gpu in facts["nvidia_gpus"]:
        device = next(rest)
        found += _unequal(device, gpu, _PAIRS)
        if device["stable_id"] != (gpu["uuid"] or gpu["pci_bus_id"]):
            found.append(f"stable_id {device['stable_id']}")
        if (device["partition"]["mode"] == "mig") is not bool(gpu["mig"]["enabled"]):
            found.append(f"mode {device['partition']}")
        for slot in gpu["mig"]["devices"]:
            part = next(rest)
            found += _unequal(part, slot, _MIG_PAIRS)
            if part["partition"]["parent"] != device["stable_id"]:
                found.append(f"parent {part['partition']}")
    known = {gpu["pci_bus_id"] for gpu in facts["nvidia_gpus"]}
    expected = {one["address"] for one in facts["nvidia_pci_devices"] if one["kind"] == "gpu"} - known
    only_pci = {one["pci_address"] for one in rest} | {one["pci_address"] for one in state["skipped"]}
    if None not in known and only_pci != expected:
        found.append(f"on PCI {sorted(only_pci)}, not {sorted(expected)}")
    return found


def _unequal(device: dict, item: dict, pairs: dict[str, str]) -> list[str]:
    return [
        f"{key} {_at(device, key)} is not {path} {_at(item, path)}"
        for key, path in pairs.items()
        if _at(device, key) != _at(item, path)
    ]


def _at(value, path: str):
    for key in path.split("."):
        value = (value or {}).get(key)
    return value
