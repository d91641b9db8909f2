# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connections of a GPU through NVML: PCI address, PCIe link, NVLinks and NVLink fabric."""

from __future__ import annotations

from collections import Counter

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.pci_functions import kernel_address
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import choice, flag, member, number, text
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.handle import Handle
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.structures import FabricInfoV1, FabricInfoV2

MAX_NVLINKS = 36
FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
NVLINK_REMOTE_TYPES = {0: "gpu", 1: "npu", 2: "switch"}

_FIELD_NVLINK_COUNT = 91
# NVML's answers for a link number that the GPU does not have: INVALID_ARGUMENT, NOT_SUPPORTED.
_NO_SUCH_LINK = (2, 3)


def pci_bus_id(pci) -> str | None:
    address = kernel_address(text(member(pci, "busId")))
    if address:
        return address
    domain, bus, device = (number(member(pci, part)) for part in ("domain", "bus", "device"))
    return None if None in (domain, bus, device) else f"{domain:04x}:{bus:02x}:{device:02x}.0"


def pci_id(pci, name: str) -> tuple[str | None, str | None]:
    """Split an ID into device ID and vendor ID: 0x233010de → 0x2330, 0x10de."""
    both = number(member(pci, name))
    return (f"0x{both >> 16:04x}", f"0x{both & 0xFFFF:04x}") if both else (None, None)


def read_pci(gpu: Handle) -> dict:
    pci = gpu.first_answer("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo")
    device_id, vendor_id = pci_id(pci, "pciSubSystemId")
    return {
        "pci_subsystem_vendor_id": vendor_id,
        "pci_subsystem_device_id": device_id,
        "pcie": {
            **_pcie_link(gpu),
            "generation_max_gpu": number(gpu.call("nvmlDeviceGetGpuMaxPcieLinkGeneration"), most=16),
            "replay_count": number(gpu.call("nvmlDeviceGetPcieReplayCounter")),
        },
    }


def _pcie_link(gpu: Handle) -> dict:
    return {
        **pcie_generation(gpu),
        "width": number(gpu.call("nvmlDeviceGetCurrPcieLinkWidth"), most=32),
        "width_max": number(gpu.call("nvmlDeviceGetMaxPcieLinkWidth"), most=32),
    }


def pcie_generation(gpu: Handle) -> dict:
    return {
        "generation": number(gpu.call("nvmlDeviceGetCurrPcieLinkGeneration"), most=16),
        "generation_max": number(gpu.call("nvmlDeviceGetMaxPcieLinkGeneration"), most=16),
    }


def read_throughput(gpu: Handle) -> dict:
    return {
        "pcie_throughput": {
            "transmit_kb_s": number(gpu.call("nvmlDeviceGetPcieThroughput", 0)),
            "receive_kb_s": number(gpu.call("nvmlDeviceGetPcieThroughput", 1)),
        }
    }


def read_nvlink(gpu: Handle) -> dict:
    states = {link: flag(gpu.call("nvmlDeviceGetNvLinkState", link)) for link in range(_nvlink_count(gpu))}
    links = [
        {"link": link, "active": active, **_nvlink_remote(gpu, link, active)}
        for link, active in states.items()
        if active is not None
    ]
    up = [link["link"] for link in links if link["active"]]
    return {
        "nvlink": {
            "version": number(gpu.call("nvmlDeviceGetNvLinkVersion", up[0]), most=99) if up else None,
            "link_count": len(links) or None,
            "active_count": len(up) if links else None,
            "links": links,
        }
    }


def switch_links(gpu: Handle) -> dict | None:
    """Return how many NVLinks of a GPU are down, if its active NVLinks lead to switches.

    All links of such a GPU lead to switches, so that each one must be active. Links to other GPUs can be missing: a
    bridge may not be installed, or a virtual machine may not have the other GPU.
    """
    states = [flag(gpu.call("nvmlDeviceGetNvLinkState", link)) for link in range(_nvlink_count(gpu))]
    if True not in states or False not in states:
        return None
    remote = choice(gpu.call("nvmlDeviceGetNvLinkRemoteDeviceType", states.index(True)), NVLINK_REMOTE_TYPES)
    return {"down": states.count(False), "count": len(states) - states.count(None)} if remote == "switch" else None


def _nvlink_count(gpu: Handle) -> int:
    """Return how many links to read. If NVML returns no count but the first link answers, read the maximum."""
    count = number(gpu.read_field(_FIELD_NVLINK_COUNT), most=MAX_NVLINKS)
    if count is not None:
        return int(count)
    return 0 if gpu.call("nvmlDeviceGetNvLinkState", 0) is None else MAX_NVLINKS


def _nvlink_remote(gpu: Handle, link: int, active: bool) -> dict:
    if not active:
        return {"remote_type": None, "remote_pci_bus_id": None}
    remote = gpu.call("nvmlDeviceGetNvLinkRemotePciInfo", link)
    return {
        "remote_type": choice(gpu.call("nvmlDeviceGetNvLinkRemoteDeviceType", link), NVLINK_REMOTE_TYPES),
        "remote_pci_bus_id": pci_bus_id(remote),
    }


def nvlink_peers(nvml, handle) -> dict:
    """Count the active links of a GPU per remote address, and those that lead to switches.

    `untyped`: remote addresses for which NVML does not return the device type.
    `unknown`: whether the GPU may have active links that are not counted.
    """
    gpu = Handle(nvml, handle)
    links = [link for link in read_nvlink(gpu)["nvlink"]["links"] if link["active"]]
    others = [link for link in links if link["remote_type"] != "switch"]
    failure = gpu.failures.get("nvmlDeviceGetNvLinkState")
    addresses = [link["remote_pci_bus_id"] for link in others]
    return {
        "pci_bus_id": pci_bus_id(nvml.call_or_none("nvmlDeviceGetPciInfo", handle)),
        "links": dict(Counter(address for address in addresses if address)),
        "switch_links": len(links) - len(others),
        "untyped": {link["remote_pci_bus_id"] for link in others if link["remote_type"] is None},
        "unknown": None in addresses or (failure is not None and failure.code not in _NO_SUCH_LINK),
    }


def read_fabric(gpu: Handle) -> dict:
    info = _fabric_info(gpu)
    fabric = fabric_state(gpu)
    completed = fabric["state"] == "completed"
    return {
        "fabric": {
            **fabric,
            "cluster_uuid": _uuid(member(info, "clusterUuid")) if completed else None,
            "clique_id": number(member(info, "cliqueId")) if completed else None,
            **fabric_quality(gpu),
        }
    }


def fabric_quality(gpu: Handle) -> dict:
    """Return what the fabric manager reports about the fabric of a GPU (NVML_GPU_FABRIC_HEALTH_MASK_* of NVML)."""
    mask = number(member(_fabric_info(gpu), "healthMask"))

    def reported(shift: int) -> bool | None:
        return None if mask is None else {1: True, 2: False}.get(int(mask) >> shift & 0x3)

    return {"bandwidth_degraded": reported(0), "routes_unhealthy": reported(4)}


def fabric_state(gpu: Handle) -> dict:
    info = _fabric_info(gpu)
    state = choice(member(info, "state"), FABRIC_STATES)
    # The status is valid only after the registration has completed.
    status = number(member(info, "status")) if state == "completed" else None
    return {"state": state, "status": status}


def _fabric_info(gpu: Handle):
    return gpu.read_struct("nvmlDeviceGetGpuFabricInfoV", FabricInfoV2) or gpu.read_struct(
        "nvmlDeviceGetGpuFabricInfo", FabricInfoV1
    )


def _uuid(array) -> str | None:
    try:
        digits = bytes(bytearray(array)).hex()
    except (TypeError, ValueError):
        return None
    if len(digits) != 32:
        return None
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
