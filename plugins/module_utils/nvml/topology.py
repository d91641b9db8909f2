# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the GPUs of a host reach each other and which CPUs are near them."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.fields import nvlink_peers
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.values import number, text

# What `nvidia-smi topo -m` calls NVML's levels; "internal" is the same board.
RELATIONS = {0: "internal", 10: "pix", 20: "pxb", 30: "phb", 40: "node", 50: "sys"}
_MASK_WORDS = 64
_WORD = 64


def read(nvml, count: int) -> dict:
    """Read the matrices of PCIe relations and NVLink counts, and each GPU's CPUs; None where nothing is known."""
    handles = [nvml.maybe("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    uuids = [None if handle is None else text(nvml.maybe("nvmlDeviceGetUUID", handle)) for handle in handles]
    peers = [None if handle is None else nvlink_peers(nvml, handle) for handle in handles]
    return {
        "gpus": uuids,
        "pcie": [[_relation(nvml, handles, one, other) for other in range(count)] for one in range(count)],
        "nvlinks": [[nvlinks_between(peers, one, other) for other in range(count)] for one in range(count)],
        "cpu_affinity": {uuid: _cpu_affinity(nvml, handle) for uuid, handle in zip(uuids, handles) if uuid is not None},
    }


def nvlinks_between(peers: list, one: int, other: int) -> int | None:
    """Count the links between two GPUs: direct ones, or those that both have into the same switches."""
    if one == other:
        return 0
    here, there = peers[one], peers[other]
    if here is None or there is None:
        return None
    gpus = {peer["pci_bus_id"] for peer in peers if peer is not None}
    if any(peer["unknown"] or peer["untyped"] - gpus for peer in (here, there)):
        return None
    direct = here["links"].get(there["pci_bus_id"], 0) or there["links"].get(here["pci_bus_id"], 0)
    if not direct and (here["links"] or there["links"]) and None in (here["pci_bus_id"], there["pci_bus_id"]):
        return None
    return direct or min(here["switch_links"], there["switch_links"])


def cpu_list(words) -> str | None:
    """Write a mask of CPUs the way the kernel does: 0-15,32-47."""
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
    level = number(nvml.maybe("nvmlDeviceGetTopologyCommonAncestor", handles[one], handles[other]))
    return RELATIONS.get(level)


def _cpu_affinity(nvml, handle) -> str | None:
    words = nvml.maybe("nvmlDeviceGetCpuAffinity", handle, _MASK_WORDS)
    try:
        return cpu_list(words)
    except TypeError:
        return None
