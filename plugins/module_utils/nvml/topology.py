# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connections between the GPUs of a host, and the CPUs near each GPU."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import number, text
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.pcie_nvlink_fabric import nvlink_peers

# The names of `nvidia-smi topo -m` for NVML's levels. "internal" means the same board.
RELATIONS = {0: "internal", 10: "pix", 20: "pxb", 30: "phb", 40: "node", 50: "sys"}
_MASK_WORDS = 64
_WORD = 64


def read(nvml, count: int) -> dict:
    """Return the PCIe and NVLink matrices and the CPUs near each GPU. Unknown values are None."""
    handles = [nvml.call_or_none("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    uuids = [None if handle is None else text(nvml.call_or_none("nvmlDeviceGetUUID", handle)) for handle in handles]
    peers = [None if handle is None else nvlink_peers(nvml, handle) for handle in handles]
    return {
        "gpus": uuids,
        "pcie": [[_relation(nvml, handles, one, other) for other in range(count)] for one in range(count)],
        "nvlinks": [[nvlinks_between(peers, one, other) for other in range(count)] for one in range(count)],
        "cpu_affinity": {uuid: _cpu_affinity(nvml, handle) for uuid, handle in zip(uuids, handles) if uuid is not None},
    }


def nvlinks_between(peers: list, one: int, other: int) -> int | None:
    """Count the links between two GPUs, either direct links or links of both to the switches."""
    if one == other:
        return 0
    first, second = peers[one], peers[other]
    if first is None or second is None:
        return None
    gpus = {peer["pci_bus_id"] for peer in peers if peer is not None}
    if any(peer["unknown"] or peer["untyped"] - gpus for peer in (first, second)):
        return None
    direct = first["links"].get(second["pci_bus_id"], 0) or second["links"].get(first["pci_bus_id"], 0)
    if not direct and (first["links"] or second["links"]) and None in (first["pci_bus_id"], second["pci_bus_id"]):
        return None
    return direct or min(first["switch_links"], second["switch_links"])


def cpu_list(words) -> str | None:
    """Format a CPU mask as the kernel does: 0-15,32-47."""
    cpus = [index * _WORD + bit for index, word in enumerate(words) for bit in range(_WORD) if int(word) >> bit & 1]
    spans: list[list[int]] = []
    for cpu in cpus:
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans) or None


def _relation(nvml, handles: list, one: int, other: int) -> str | None:
    if one == other:
        return "self"
    if handles[one] is None or handles[other] is None:
        return None
    level = number(nvml.call_or_none("nvmlDeviceGetTopologyCommonAncestor", handles[one], handles[other]))
    return RELATIONS.get(level)


def _cpu_affinity(nvml, handle) -> str | None:
    words = nvml.call_or_none("nvmlDeviceGetCpuAffinity", handle, _MASK_WORDS)
    try:
        return cpu_list(words)
    except TypeError:
        return None
