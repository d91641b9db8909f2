# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One GPU's facts, read through NVML into a plain dictionary.

A field that the product, the driver or the binding does not support is None; no call's failure harms another field.
"""

from __future__ import annotations

import math
import re
from collections import Counter

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.pci import kernel_address
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import health
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.handle import (
    MAX_MIG_DEVICES,
    FabricInfoV1,
    FabricInfoV2,
    FirmwareVersion,
    Handle,
    SramErrorStatus,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.values import (
    MOST_BYTES,
    NvmlFailure,
    choice,
    flag,
    mebibytes,
    member,
    number,
    scaled,
    text,
)

MAX_NVLINKS = 36

ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}
# For a library or binding that cannot tell the architecture; the first one that is not above counts.
_ARCHITECTURE_SINCE = (
    ((10, 0), "blackwell"),
    ((9, 0), "hopper"),
    ((8, 9), "ada"),
    ((8, 0), "ampere"),
    ((7, 5), "turing"),
    ((7, 0), "volta"),
    ((6, 0), "pascal"),
    ((5, 0), "maxwell"),
    ((3, 0), "kepler"),
)
BRANDS = {
    1: "quadro",
    2: "tesla",
    3: "nvs",
    4: "grid",
    5: "geforce",
    6: "titan",
    7: "nvidia_vapps",
    8: "nvidia_vpc",
    9: "nvidia_vcs",
    10: "nvidia_vws",
    11: "nvidia_cloud_gaming",
    12: "quadro_rtx",
    13: "nvidia_rtx",
    14: "nvidia",
    15: "geforce_rtx",
    16: "titan_rtx",
}
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
VIRTUALIZATION_MODES = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
RECOVERY_ACTIONS = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "software_power_cap",
    0x8: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "hardware_power_brake",
    0x100: "display_clocks",
}
FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
NVLINK_REMOTE_TYPES = {0: "gpu", 1: "npu", 2: "switch"}

_CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
_FIELD_MEMORY_TEMPERATURE = 82
_FIELD_NVLINK_COUNT = 91
_PAST_THE_LAST_LINK = (2, 3)  # INVALID_ARGUMENT, NOT_SUPPORTED
_FIELD_MARGINS = {"shutdown": 193, "slowdown": 194, "memory_max": 195, "gpu_max": 196}
_FIELD_RECOVERY_ACTION = 230
_MIG_PROFILE = re.compile(r"\bMIG\s+((?:\d+c\.)?\d+g\.\d+gb\S*)", re.IGNORECASE)


def read_gpu(nvml, index: int, subsets=()) -> dict:
    """Tell of one GPU the facts that belong to `min` and to the subsets asked for, and its health."""
    try:
        handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
    except NvmlFailure as failure:
        return {**blank(subsets), "index": index, "health": health.unreachable(failure)}
    gpu = Handle(nvml, handle)
    facts = {"index": index, **_basic(gpu)}
    for subset, read in _READERS.items():
        if subset in subsets:
            facts.update(read(gpu))
    if "mig" in subsets:
        facts["mig"] = _mig_details(gpu, facts["mig"])
    facts["health"] = health.judge(_signs(gpu), list(gpu.failures.values()))
    return facts


def blank(subsets=()) -> dict:
    """Give the facts of a GPU that tells nothing: every key that a healthy one would have, without a value."""
    return read_gpu(_Silent(), 0, subsets)


class _Silent:
    """An NVML that hands out a handle and knows nothing else."""

    def ask(self, name: str, *_arguments):
        if name == "nvmlDeviceGetHandleByIndex":
            return object()
        raise NvmlFailure(3, "NOT_SUPPORTED", "Not Supported")

    def maybe(self, name: str, *_arguments):
        return None

    def constant(self, name: str):
        return None


def _basic(gpu: Handle) -> dict:
    pci = gpu.first("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo")
    capability = _compute_capability(gpu)
    device_id, _vendor_id = _pci_id(pci, "pciDeviceId")
    return {
        "minor": number(gpu.ask("nvmlDeviceGetMinorNumber")),
        "uuid": text(gpu.ask("nvmlDeviceGetUUID")),
        "name": text(gpu.ask("nvmlDeviceGetName")),
        "pci_bus_id": _pci_bus_id(pci),
        "pci_device_id": device_id,
        "numa_node": None,
        "architecture": _architecture(gpu, capability),
        "compute_capability": "{}.{}".format(*capability) if capability else None,
        **_memory(gpu),
        "mig": _mig(gpu),
        "persistence_mode": flag(gpu.ask("nvmlDeviceGetPersistenceMode")),
        "compute_mode": choice(gpu.ask("nvmlDeviceGetComputeMode"), COMPUTE_MODES),
        "recovery_action": _recovery_action(gpu),
    }


def _recovery_action(gpu: Handle) -> str | None:
    """Name what the driver asks for. A newer NVML has actions without a name here: those keep their number."""
    action = number(gpu.field(_FIELD_RECOVERY_ACTION))
    return None if action is None else RECOVERY_ACTIONS.get(action, f"unknown_{int(action)}")


def _pci_bus_id(pci) -> str | None:
    address = kernel_address(text(member(pci, "busId")))
    if address:
        return address
    domain, bus, device = (number(member(pci, part)) for part in ("domain", "bus", "device"))
    return None if None in (domain, bus, device) else f"{domain:04x}:{bus:02x}:{device:02x}.0"


def _pci_id(pci, name: str) -> tuple[str | None, str | None]:
    """Split an id into the device's and the vendor's part: 0x233010de → 0x2330, 0x10de."""
    both = number(member(pci, name))
    return (f"0x{both >> 16:04x}", f"0x{both & 0xFFFF:04x}") if both else (None, None)


def _compute_capability(gpu: Handle) -> tuple[int, int] | None:
    major, minor = (number(part, most=99) for part in gpu.pair("nvmlDeviceGetCudaComputeCapability"))
    return (major, minor) if major and minor is not None else None


def _architecture(gpu: Handle, capability: tuple[int, int] | None) -> str | None:
    name = choice(gpu.ask("nvmlDeviceGetArchitecture"), ARCHITECTURES)
    if name or capability is None:
        return name
    return next((name for since, name in _ARCHITECTURE_SINCE if capability >= since), None)


def _memory_info(gpu: Handle):
    version = gpu.constant("nvmlMemory_v2")
    info = gpu.ask("nvmlDeviceGetMemoryInfo", version) if version else None
    return info if info is not None else gpu.ask("nvmlDeviceGetMemoryInfo")


def _memory(gpu: Handle) -> dict:
    info = _memory_info(gpu)
    total = number(member(info, "total"), most=MOST_BYTES) or None
    free, used = (number(member(info, part), most=total) if total else None for part in ("free", "used"))
    return {
        "memory_total_mib": mebibytes(total),
        "memory_free_mib": mebibytes(free, up=True),
        "memory_used_mib": mebibytes(used),
    }


def _mig(gpu: Handle) -> dict:
    current, pending = (flag(mode) for mode in gpu.pair("nvmlDeviceGetMigMode"))
    return {
        "enabled": current,
        "pending": pending,
        "devices": [_mig_device(slot, mig, gpu) for slot, mig in gpu.mig_devices()] if current else [],
    }


def _mig_device(slot: int, mig: Handle, gpu: Handle) -> dict:
    memory_mib = _mig_attribute(mig, "memorySizeMB") or None
    return {
        "index": slot,
        "uuid": text(mig.ask("nvmlDeviceGetUUID")),
        "profile": _mig_profile(mig, gpu),
        "gi": number(mig.ask("nvmlDeviceGetGpuInstanceId")),
        "ci": number(mig.ask("nvmlDeviceGetComputeInstanceId")),
        "memory_total_mib": _memory(mig)["memory_total_mib"] or memory_mib,
        "memory_slices": _memory_eighths(mig, gpu),
        "gpu_slices": _mig_attribute(mig, "gpuInstanceSliceCount"),
        "compute_slices": _mig_attribute(mig, "computeInstanceSliceCount"),
    }


def _mig_details(gpu: Handle, mig: dict) -> dict:
    """Add to what _mig told how many devices there can be, and what each has besides memory and slices."""
    children = dict(gpu.mig_devices()) if mig["devices"] else {}
    return {
        **mig,
        "devices": [{**device, **_mig_device_details(children[device["index"]])} for device in mig["devices"]],
        "devices_max": number(gpu.ask("nvmlDeviceGetMaxMigDeviceCount"), most=MAX_MIG_DEVICES),
    }


def _mig_device_details(mig: Handle) -> dict:
    memory = _memory(mig)
    return {
        "name": text(mig.ask("nvmlDeviceGetName")),
        "memory_free_mib": memory["memory_free_mib"],
        "memory_used_mib": memory["memory_used_mib"],
        "multiprocessors": _mig_attribute(mig, "multiprocessorCount"),
        "copy_engines": _mig_attribute(mig, "sharedCopyEngineCount"),
        "decoders": _mig_attribute(mig, "sharedDecoderCount"),
        "encoders": _mig_attribute(mig, "sharedEncoderCount"),
        "jpeg_engines": _mig_attribute(mig, "sharedJpegCount"),
        "ofa_engines": _mig_attribute(mig, "sharedOfaCount"),
    }


def _mig_attribute(mig: Handle, name: str) -> int | None:
    attributes = mig.first("nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes")
    return number(member(attributes, name))


def _memory_eighths(mig: Handle, gpu: Handle) -> int | None:
    """Tell how many of the GPU's eight memory slices a MIG device has, from its share of the memory."""
    share = _mig_attribute(mig, "memorySizeMB")
    whole = number(member(_memory_info(gpu), "total"), most=MOST_BYTES)
    if not share or not whole:
        return None
    return min(8, math.ceil(share * (1 << 20) / whole * 8))


def _mig_profile(mig: Handle, gpu: Handle) -> str | None:
    """Tell a MIG device's profile: NVML says it at the end of the name, else it follows from the slices."""
    match = _MIG_PROFILE.search(text(mig.ask("nvmlDeviceGetName")) or "")
    if match:
        return match.group(1).lower()
    gpu_slices = _mig_attribute(mig, "gpuInstanceSliceCount")
    compute_slices = _mig_attribute(mig, "computeInstanceSliceCount")
    eighths = _memory_eighths(mig, gpu)
    if not gpu_slices or eighths is None:
        return None
    gigabytes = math.floor(eighths / 8 * math.ceil(_memory_info(gpu).total / (1 << 30)) + 0.5)
    share = f"{compute_slices}c." if compute_slices and compute_slices != gpu_slices else ""
    return f"{share}{gpu_slices}g.{gigabytes}gb"


def _identity(gpu: Handle) -> dict:
    firmware = gpu.filled("nvmlDeviceGetGspFirmwareVersion", FirmwareVersion)
    return {
        "brand": choice(gpu.ask("nvmlDeviceGetBrand"), BRANDS),
        "serial": text(gpu.ask("nvmlDeviceGetSerial")),
        "part_number": text(gpu.ask("nvmlDeviceGetBoardPartNumber")),
        "board_id": number(gpu.ask("nvmlDeviceGetBoardId")),
        "multi_gpu_board": flag(gpu.ask("nvmlDeviceGetMultiGpuBoard")),
        "vbios_version": text(gpu.ask("nvmlDeviceGetVbiosVersion")),
        "inforom_image_version": text(gpu.ask("nvmlDeviceGetInforomImageVersion")),
        "inforom_oem_version": text(gpu.ask("nvmlDeviceGetInforomVersion", 0)),
        "inforom_ecc_version": text(gpu.ask("nvmlDeviceGetInforomVersion", 1)),
        "inforom_power_version": text(gpu.ask("nvmlDeviceGetInforomVersion", 2)),
        "gsp_firmware_enabled": gpu.gsp_firmware_enabled(),
        "gsp_firmware_version": text(member(firmware, "value")),
        "virtualization_mode": choice(gpu.ask("nvmlDeviceGetVirtualizationMode"), VIRTUALIZATION_MODES),
        "display_attached": flag(gpu.ask("nvmlDeviceGetDisplayMode")),
        "display_active": flag(gpu.ask("nvmlDeviceGetDisplayActive")),
    }


def _pcie_generation(gpu: Handle) -> dict:
    return {
        "generation": number(gpu.ask("nvmlDeviceGetCurrPcieLinkGeneration"), most=16),
        "generation_max": number(gpu.ask("nvmlDeviceGetMaxPcieLinkGeneration"), most=16),
    }


def _pcie_link(gpu: Handle) -> dict:
    return {
        **_pcie_generation(gpu),
        "width": number(gpu.ask("nvmlDeviceGetCurrPcieLinkWidth"), most=32),
        "width_max": number(gpu.ask("nvmlDeviceGetMaxPcieLinkWidth"), most=32),
    }


def _pci(gpu: Handle) -> dict:
    pci = gpu.first("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo")
    device_id, vendor_id = _pci_id(pci, "pciSubSystemId")
    return {
        "pci_subsystem_vendor_id": vendor_id,
        "pci_subsystem_device_id": device_id,
        "pcie": {
            **_pcie_link(gpu),
            "generation_max_gpu": number(gpu.ask("nvmlDeviceGetGpuMaxPcieLinkGeneration"), most=16),
            "replay_count": number(gpu.ask("nvmlDeviceGetPcieReplayCounter")),
        },
    }


def _throughput(gpu: Handle) -> dict:
    return {
        "pcie_throughput": {
            "transmit_kb_s": number(gpu.ask("nvmlDeviceGetPcieThroughput", 0)),
            "receive_kb_s": number(gpu.ask("nvmlDeviceGetPcieThroughput", 1)),
        }
    }


def _memory_details(gpu: Handle) -> dict:
    bar1 = gpu.ask("nvmlDeviceGetBAR1MemoryInfo")
    return {
        "memory_reserved_mib": mebibytes(member(_memory_info(gpu), "reserved"), up=True),
        "bar1_total_mib": mebibytes(member(bar1, "bar1Total")),
        "bar1_free_mib": mebibytes(member(bar1, "bar1Free"), up=True),
        "bar1_used_mib": mebibytes(member(bar1, "bar1Used")),
    }


def _ecc(gpu: Handle) -> dict:
    current, pending = (flag(mode) for mode in gpu.pair("nvmlDeviceGetEccMode"))
    default = gpu.ask("nvmlDeviceGetDefaultEccMode")
    return {
        "ecc": {
            "enabled": current,
            "pending": pending,
            "default": flag(default[0] if isinstance(default, (list, tuple)) and default else default),
            "volatile": _ecc_counts(gpu, 0),
            "aggregate": _ecc_counts(gpu, 1),
            "sram_threshold_exceeded": _sram_threshold_exceeded(gpu),
        },
        "retired_pages": _retired_pages(gpu),
        "remapped_rows": {**_remapped_rows(gpu), "banks": _remap_availability(gpu)},
    }


def _ecc_counts(gpu: Handle, counter: int) -> dict:
    counts = {}
    for error, name in ((0, "corrected"), (1, "uncorrected")):
        counts[name] = number(gpu.ask("nvmlDeviceGetTotalEccErrors", error, counter))
        counts[f"dram_{name}"] = number(gpu.ask("nvmlDeviceGetMemoryErrorCounter", error, counter, 2))
        counts[f"sram_{name}"] = number(gpu.ask("nvmlDeviceGetMemoryErrorCounter", error, counter, 7))
    return counts


def _sram_threshold_exceeded(gpu: Handle) -> bool | None:
    status = gpu.filled("nvmlDeviceGetSramEccErrorStatus", SramErrorStatus)
    return flag(member(status, "bThresholdExceeded"))


def _retired_pages(gpu: Handle) -> dict:
    def count(cause: int) -> int | None:
        pages = gpu.ask("nvmlDeviceGetRetiredPages", cause)
        return len(pages) if isinstance(pages, (list, tuple)) else None

    return {
        "single_bit": count(0),
        "double_bit": count(1),
        "pending": flag(gpu.ask("nvmlDeviceGetRetiredPagesPendingStatus")),
    }


def _remapped_rows(gpu: Handle) -> dict:
    answer = gpu.ask("nvmlDeviceGetRemappedRows")
    if not isinstance(answer, (list, tuple)) or len(answer) != 4:
        answer = (None,) * 4
    correctable, uncorrectable, pending, failed = answer
    return {
        "correctable": number(correctable),
        "uncorrectable": number(uncorrectable),
        "pending": flag(pending),
        "failed": flag(failed),
    }


def _remap_availability(gpu: Handle) -> dict:
    histogram = gpu.ask("nvmlDeviceGetRowRemapperHistogram")
    return {name: number(member(histogram, name)) for name in ("max", "high", "partial", "low", "none")}


def _power(gpu: Handle) -> dict:
    least, most = gpu.pair("nvmlDeviceGetPowerManagementLimitConstraints")
    return {
        "power": {
            "draw_w": scaled(gpu.ask("nvmlDeviceGetPowerUsage"), 1000),
            "limit_w": scaled(gpu.ask("nvmlDeviceGetPowerManagementLimit"), 1000),
            "enforced_limit_w": scaled(gpu.ask("nvmlDeviceGetEnforcedPowerLimit"), 1000),
            "default_limit_w": scaled(gpu.ask("nvmlDeviceGetPowerManagementDefaultLimit"), 1000),
            "min_limit_w": scaled(least, 1000),
            "max_limit_w": scaled(most, 1000),
            "energy_j": scaled(gpu.ask("nvmlDeviceGetTotalEnergyConsumption"), 1000),
        },
    }


def _performance_state(gpu: Handle) -> int | None:
    return number(gpu.first("nvmlDeviceGetPerformanceState", "nvmlDeviceGetPowerState"), most=15)


def _throttle_reasons(gpu: Handle) -> list[str] | None:
    mask = number(gpu.first("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"))
    return None if mask is None else [name for bit, name in THROTTLE_REASONS.items() if int(mask) & bit]


def _clocks(gpu: Handle) -> dict:
    def clocks(call: str, prefix: str, names) -> dict:
        return {f"{prefix}{name}_mhz": number(gpu.ask(call, _CLOCKS[name]), most=100_000) for name in names}

    return {
        "clocks": {
            **clocks("nvmlDeviceGetClockInfo", "", _CLOCKS),
            **clocks("nvmlDeviceGetMaxClockInfo", "max_", _CLOCKS),
            **clocks("nvmlDeviceGetApplicationsClock", "application_", ("graphics", "memory")),
            **clocks("nvmlDeviceGetDefaultApplicationsClock", "default_application_", ("graphics", "memory")),
        },
        "performance_state": _performance_state(gpu),
        "throttle_reasons": _throttle_reasons(gpu),
    }


def _temperature(gpu: Handle) -> dict:
    def threshold(kind: int) -> int | None:
        return _celsius(gpu.ask("nvmlDeviceGetTemperatureThreshold", kind))

    current = gpu.ask("nvmlDeviceGetTemperatureV", 0)
    return {
        "temperature": {
            "gpu_c": _celsius(current if current is not None else gpu.ask("nvmlDeviceGetTemperature", 0)),
            "memory_c": _celsius(gpu.field(_FIELD_MEMORY_TEMPERATURE)) or None,
            "shutdown_c": threshold(0),
            "slowdown_c": threshold(1),
            "memory_max_c": threshold(2),
            "gpu_max_c": threshold(3),
            "margin_c": _margin(gpu.ask("nvmlDeviceGetMarginTemperature")),
            **{f"{name}_margin_c": _margin(gpu.field(field)) for name, field in _FIELD_MARGINS.items()},
        },
        "fan_speed_percent": number(gpu.ask("nvmlDeviceGetFanSpeed"), most=200),
    }


def _celsius(value) -> int | None:
    return number(value, most=250)


def _margin(value) -> int | None:
    """Give back a distance to a limit, which may be negative; it can come as unsigned."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    value = int(value)
    if value >= 1 << 31:
        value -= 1 << 32
    return value if abs(value) <= 250 else None


def _utilization(gpu: Handle) -> dict:
    rates = gpu.ask("nvmlDeviceGetUtilizationRates")

    def engine(name: str) -> int | None:
        answer = gpu.pair(f"nvmlDeviceGet{name}Utilization")
        return number(answer[0], most=100)

    return {
        "utilization": {
            "gpu_percent": number(member(rates, "gpu"), most=100),
            "memory_percent": number(member(rates, "memory"), most=100),
            "encoder_percent": engine("Encoder"),
            "decoder_percent": engine("Decoder"),
            "jpeg_percent": engine("Jpg"),
            "ofa_percent": engine("Ofa"),
        }
    }


def _nvlink(gpu: Handle) -> dict:
    states = {link: flag(gpu.ask("nvmlDeviceGetNvLinkState", link)) for link in range(_nvlink_count(gpu))}
    links = [
        {"link": link, "active": active, **_nvlink_remote(gpu, link, active)}
        for link, active in states.items()
        if active is not None
    ]
    up = [link["link"] for link in links if link["active"]]
    return {
        "nvlink": {
            "version": number(gpu.ask("nvmlDeviceGetNvLinkVersion", up[0]), most=99) if up else None,
            "link_count": len(links) or None,
            "active_count": len(up) if links else None,
            "links": links,
        }
    }


def _nvlink_count(gpu: Handle) -> int:
    """Tell how many links to ask about; without a count, all there could be as long as the first one answers."""
    count = number(gpu.field(_FIELD_NVLINK_COUNT), most=MAX_NVLINKS)
    if count is not None:
        return int(count)
    return 0 if gpu.ask("nvmlDeviceGetNvLinkState", 0) is None else MAX_NVLINKS


def _nvlink_remote(gpu: Handle, link: int, active: bool) -> dict:
    if not active:
        return {"remote_type": None, "remote_pci_bus_id": None}
    remote = gpu.ask("nvmlDeviceGetNvLinkRemotePciInfo", link)
    return {
        "remote_type": choice(gpu.ask("nvmlDeviceGetNvLinkRemoteDeviceType", link), NVLINK_REMOTE_TYPES),
        "remote_pci_bus_id": _pci_bus_id(remote),
    }


def nvlink_peers(nvml, handle) -> dict:
    """Tell where the active links of a GPU lead to: how many to each address, how many into switches.

    `untyped` are addresses of which nobody says whether they are switches; `unknown` tells that there may be links that
    are not counted at all.
    """
    gpu = Handle(nvml, handle)
    links = [link for link in _nvlink(gpu)["nvlink"]["links"] if link["active"]]
    others = [link for link in links if link["remote_type"] != "switch"]
    failure = gpu.failures.get("nvmlDeviceGetNvLinkState")
    addresses = [link["remote_pci_bus_id"] for link in others]
    return {
        "pci_bus_id": _pci_bus_id(nvml.maybe("nvmlDeviceGetPciInfo", handle)),
        "links": dict(Counter(address for address in addresses if address)),
        "switch_links": len(links) - len(others),
        "untyped": {link["remote_pci_bus_id"] for link in others if link["remote_type"] is None},
        "unknown": None in addresses or (failure is not None and failure.code not in _PAST_THE_LAST_LINK),
    }


def _fabric_info(gpu: Handle):
    return gpu.filled("nvmlDeviceGetGpuFabricInfoV", FabricInfoV2) or gpu.filled(
        "nvmlDeviceGetGpuFabricInfo", FabricInfoV1
    )


def _fabric_state(gpu: Handle) -> dict:
    info = _fabric_info(gpu)
    state = choice(member(info, "state"), FABRIC_STATES)
    # Before the state is complete the status means nothing.
    status = number(member(info, "status")) if state == "completed" else None
    return {"state": state, "status": status}


def _fabric(gpu: Handle) -> dict:
    info = _fabric_info(gpu)
    fabric = _fabric_state(gpu)
    completed = fabric["state"] == "completed"
    mask = number(member(info, "healthMask"))
    return {
        "fabric": {
            **fabric,
            "cluster_uuid": _uuid(member(info, "clusterUuid")) if completed else None,
            "clique_id": number(member(info, "cliqueId")) if completed else None,
            "bandwidth_degraded": {1: True, 2: False}.get(int(mask) & 0x3) if mask is not None else None,
        }
    }


def _uuid(array) -> str | None:
    try:
        digits = bytes(bytearray(array)).hex()
    except (TypeError, ValueError):
        return None
    if len(digits) != 32:
        return None
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _processes(gpu: Handle) -> dict:
    found = []
    answered = False
    for kind, call in (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute")):
        processes = gpu.first(
            f"nvmlDeviceGet{call}RunningProcesses_v3",
            f"nvmlDeviceGet{call}RunningProcesses_v2",
            f"nvmlDeviceGet{call}RunningProcesses",
        )
        if isinstance(processes, (list, tuple)):
            answered = True
            found += [_process(gpu, kind, process) for process in processes]
    return {"processes": sorted(found, key=lambda one: (one["pid"] or 0, one["type"])) if answered else None}


def _process(gpu: Handle, kind: str, process) -> dict:
    pid = number(member(process, "pid"))
    return {
        "pid": pid,
        "type": kind,
        "name": text(gpu.maybe("nvmlSystemGetProcessName", pid)) if pid is not None else None,
        "memory_used_mib": mebibytes(member(process, "usedGpuMemory")),
        "gi": number(member(process, "gpuInstanceId")),
        "ci": number(member(process, "computeInstanceId")),
    }


def _signs(gpu: Handle) -> dict:
    """Collect what health is judged by; most of it is asked for anyway."""
    rates = gpu.ask("nvmlDeviceGetUtilizationRates")
    nameless = gpu.failures.get("nvmlDeviceGetUUID")
    return {
        "uuid_failure": str(nameless) if nameless else None,
        "recovery_action": _recovery_action(gpu),
        "retired_pages_pending": flag(gpu.ask("nvmlDeviceGetRetiredPagesPendingStatus")),
        "remapped_rows": _remapped_rows(gpu),
        "uncorrected_errors": number(gpu.ask("nvmlDeviceGetTotalEccErrors", 1, 0)),
        "sram_threshold_exceeded": _sram_threshold_exceeded(gpu),
        "pcie": _pcie_generation(gpu),
        "performance_state": _performance_state(gpu),
        "gpu_percent": number(member(rates, "gpu"), most=100),
        "throttle_reasons": _throttle_reasons(gpu),
        "fabric": _fabric_state(gpu),
    }


_READERS = {
    "identity": _identity,
    "pci": _pci,
    "memory": _memory_details,
    "ecc": _ecc,
    "power": _power,
    "clocks": _clocks,
    "temperature": _temperature,
    "utilization": _utilization,
    "nvlink": _nvlink,
    "fabric": _fabric,
    "processes": _processes,
    "throughput": _throughput,
}

SUBSETS = ("min", *_READERS, "mig")
