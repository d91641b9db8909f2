# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the facts of one GPU through NVML into a dictionary.

A field that the product, the driver or the binding does not support is None. A failed call affects only its own fields.
"""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import (
    gpu_health,
    memory,
    memory_errors,
    mig,
    pcie_nvlink_fabric,
    power_clocks_temperature,
    utilization_and_processes,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import (
    NvmlFailure,
    choice,
    flag,
    member,
    number,
    text,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.handle import Handle
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.structures import FirmwareVersion

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
# Used if the library or the binding cannot return the architecture. The first entry that is not newer applies.
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
_FIELD_RECOVERY_ACTION = 230


def read_gpu(nvml, index: int, subsets=()) -> dict:
    """Return the `min` facts of one GPU, its health, and the facts of the given subsets."""
    try:
        handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
    except NvmlFailure as failure:
        return {**blank(subsets), "index": index, "health": gpu_health.unreachable(failure)}
    gpu = Handle(nvml, handle)
    facts = {"index": index, **_basic(gpu)}
    for subset, read in _READERS.items():
        if subset in subsets:
            facts.update(read(gpu))
    if "mig" in subsets:
        facts["mig"] = mig.read_details(gpu, facts["mig"])
    indicators = _health_indicators(gpu)
    if "nvlink" in subsets:  # The subset has made the calls, which are too many for every run.
        indicators["switch_links"] = pcie_nvlink_fabric.switch_links(gpu)
    facts["health"] = gpu_health.judge(indicators, list(gpu.failures.values()))
    return facts


def blank(subsets=()) -> dict:
    """Return every key of a GPU's facts without a value, for a GPU that does not respond."""
    return read_gpu(_NothingSupported(), 0, subsets)


class _NothingSupported:
    """An NVML that returns a handle and supports no other call."""

    def call(self, name: str, *_arguments):
        if name == "nvmlDeviceGetHandleByIndex":
            return object()
        raise NvmlFailure(3, "NOT_SUPPORTED", "Not Supported")

    def call_or_none(self, name: str, *_arguments):
        return None

    def constant(self, name: str):
        return None


def _basic(gpu: Handle) -> dict:
    pci = gpu.first_answer("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo")
    capability = _compute_capability(gpu)
    device_id, _vendor_id = pcie_nvlink_fabric.pci_id(pci, "pciDeviceId")
    return {
        "minor": number(gpu.call("nvmlDeviceGetMinorNumber")),
        "uuid": text(gpu.call("nvmlDeviceGetUUID")),
        "name": text(gpu.call("nvmlDeviceGetName")),
        "pci_bus_id": pcie_nvlink_fabric.pci_bus_id(pci),
        "pci_device_id": device_id,
        "numa_node": None,
        "architecture": _architecture(gpu, capability),
        "compute_capability": "{}.{}".format(*capability) if capability else None,
        **memory.read_usage(gpu),
        "mig": mig.read_mig(gpu),
        "persistence_mode": flag(gpu.call("nvmlDeviceGetPersistenceMode")),
        "compute_mode": choice(gpu.call("nvmlDeviceGetComputeMode"), COMPUTE_MODES),
        "recovery_action": _recovery_action(gpu),
    }


def _recovery_action(gpu: Handle) -> str | None:
    """Return the recovery action that the driver requests. An action of a newer NVML is returned by its number."""
    action = number(gpu.read_field(_FIELD_RECOVERY_ACTION))
    return None if action is None else RECOVERY_ACTIONS.get(action, f"unknown_{int(action)}")


def _compute_capability(gpu: Handle) -> tuple[int, int] | None:
    major, minor = (number(part, most=99) for part in gpu.pair("nvmlDeviceGetCudaComputeCapability"))
    return (major, minor) if major and minor is not None else None


def _architecture(gpu: Handle, capability: tuple[int, int] | None) -> str | None:
    name = choice(gpu.call("nvmlDeviceGetArchitecture"), ARCHITECTURES)
    if name or capability is None:
        return name
    return next((name for since, name in _ARCHITECTURE_SINCE if capability >= since), None)


def _identity(gpu: Handle) -> dict:
    firmware = gpu.read_struct("nvmlDeviceGetGspFirmwareVersion", FirmwareVersion)
    virtualization = choice(gpu.call("nvmlDeviceGetVirtualizationMode"), VIRTUALIZATION_MODES)
    return {
        "brand": choice(gpu.call("nvmlDeviceGetBrand"), BRANDS),
        "serial": text(gpu.call("nvmlDeviceGetSerial")),
        "part_number": text(gpu.call("nvmlDeviceGetBoardPartNumber")),
        "board_id": number(gpu.call("nvmlDeviceGetBoardId")),
        "multi_gpu_board": flag(gpu.call("nvmlDeviceGetMultiGpuBoard")),
        "vbios_version": text(gpu.call("nvmlDeviceGetVbiosVersion")),
        "inforom_image_version": text(gpu.call("nvmlDeviceGetInforomImageVersion")),
        "inforom_oem_version": text(gpu.call("nvmlDeviceGetInforomVersion", 0)),
        "inforom_ecc_version": text(gpu.call("nvmlDeviceGetInforomVersion", 1)),
        "inforom_power_version": text(gpu.call("nvmlDeviceGetInforomVersion", 2)),
        "gsp_firmware_enabled": gpu.gsp_firmware_enabled(),
        "gsp_firmware_version": text(member(firmware, "value")),
        "accounting_mode": flag(gpu.call("nvmlDeviceGetAccountingMode")),
        "virtualization_mode": virtualization,
        "vgpu_license": _vgpu_license(gpu) if virtualization == "vgpu" else None,
        "display_attached": flag(gpu.call("nvmlDeviceGetDisplayMode")),
        "display_active": flag(gpu.call("nvmlDeviceGetDisplayActive")),
    }


def _vgpu_license(gpu: Handle) -> dict:
    # Few hosts have vGPUs, and each module takes time to load.
    from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import vgpu_license  # noqa: PLC0415

    return vgpu_license.read(gpu)


def _health_indicators(gpu: Handle) -> dict:
    """Collect the values that the health is derived from. The handle has cached most of them."""
    rates = gpu.call("nvmlDeviceGetUtilizationRates")
    uuid_failure = gpu.failures.get("nvmlDeviceGetUUID")
    return {
        "uuid_failure": str(uuid_failure) if uuid_failure else None,
        "recovery_action": _recovery_action(gpu),
        "retired_pages_pending": flag(gpu.call("nvmlDeviceGetRetiredPagesPendingStatus")),
        "remapped_rows": memory_errors.remapped_rows(gpu),
        "uncorrected_errors": number(gpu.call("nvmlDeviceGetTotalEccErrors", 1, 0)),
        "sram_threshold_exceeded": memory_errors.sram_threshold_exceeded(gpu),
        "pcie": pcie_nvlink_fabric.pcie_generation(gpu),
        "performance_state": power_clocks_temperature.performance_state(gpu),
        "gpu_percent": number(member(rates, "gpu"), most=100),
        "throttle_reasons": power_clocks_temperature.throttle_reasons(gpu),
        "fabric": {**pcie_nvlink_fabric.fabric_state(gpu), **pcie_nvlink_fabric.fabric_quality(gpu)},
    }


_READERS = {
    "identity": _identity,
    "pci": pcie_nvlink_fabric.read_pci,
    "memory": memory.read_details,
    "ecc": memory_errors.read_ecc,
    "power": power_clocks_temperature.read_power,
    "clocks": power_clocks_temperature.read_clocks,
    "temperature": power_clocks_temperature.read_temperature,
    "utilization": utilization_and_processes.read_utilization,
    "nvlink": pcie_nvlink_fabric.read_nvlink,
    "fabric": pcie_nvlink_fabric.read_fabric,
    "processes": utilization_and_processes.read_processes,
    "throughput": pcie_nvlink_fabric.read_throughput,
}

SUBSETS = ("min", *_READERS, "mig")
