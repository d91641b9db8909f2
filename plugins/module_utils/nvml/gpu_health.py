# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derive the health of a GPU from what NVML returns, with reasons that say what to do. Pure functions."""

from __future__ import annotations

GPU_IS_LOST = 15
RESET_REQUIRED = 16
NO_PERMISSION = 4

# An idle link slows down to save power, so its speed counts only in these performance states and under this load.
_BUSY_PERFORMANCE_STATE = 2
_BUSY_PERCENT = 10

_RECOVERY = {
    "gpu_reset": "the driver requests a reset of this GPU. Stop its processes, then run nvidia-smi --gpu-reset",
    "node_reboot": "the driver requests a reboot of the host",
    "drain_p2p": "the driver requests that all peer-to-peer work stop. Stop the processes that use several GPUs",
    "drain_and_reset": (
        "the driver requests a drain and a reset of this GPU. Stop its processes, then run nvidia-smi --gpu-reset"
    ),
    "recover_imex_domain": "the driver requests a recovery of the IMEX domain. Check nvidia-imex on all of its nodes",
    "bus_reset": "the driver requests a bus reset of this GPU. Stop its processes, then reboot the host",
    "system_reboot": "the driver requests a reboot of the whole system",
}
_HARDWARE_THROTTLING = {
    "hardware_slowdown": "the hardware reduces the clocks. Check cooling and power supply",
    "hardware_thermal": "the hardware reduces the clocks because of heat. Check the cooling",
    "hardware_power_brake": "the hardware reduces the clocks because of the power brake. Check the power supply",
}
RESET_REQUIRED_REASON = (
    "the GPU needs a reset before it can be used. Stop its processes and run nvidia-smi --gpu-reset, or reboot the host"
)
RETIREMENT_PENDING_REASON = "memory pages are pending retirement. Reset the GPU or reboot the host"
REMAPPING_PENDING_REASON = "the remapping of a memory row is pending. Reset the GPU or reboot the host"
_REASONS_FOR_RESET = frozenset({RESET_REQUIRED_REASON, RETIREMENT_PENDING_REASON, REMAPPING_PENDING_REASON})


def judge(indicators: dict, failures=()) -> dict:
    """Return the health of a GPU from `indicators`, which gpu_fields.py collects, and the failures of its calls."""
    codes = {failure.code for failure in failures}
    if GPU_IS_LOST in codes:
        return lost("the GPU has fallen off the bus. Check the kernel log for Xid 79 and power-cycle the host")
    reasons = [RESET_REQUIRED_REASON] if RESET_REQUIRED in codes else []
    reasons += [reason for check in _CHECKS for reason in check(indicators)]
    return {"state": "degraded" if reasons else "ok", "reasons": reasons}


def needs_reset(reasons) -> bool:
    """Return whether the reasons of a GPU's health require a reset of the GPU or a reboot."""
    return not _REASONS_FOR_RESET.isdisjoint(reasons)


def unreachable(failure) -> dict:
    """Return the health of a GPU for which NVML returns no handle."""
    if failure.code == RESET_REQUIRED:
        return {"state": "degraded", "reasons": [RESET_REQUIRED_REASON]}
    if failure.code == NO_PERMISSION:
        return {"state": "degraded", "reasons": ["the user has no permission to access the GPU. Set become: true"]}
    if failure.code == GPU_IS_LOST:
        return judge({}, [failure])
    return lost(f"NVML cannot open the GPU: {failure}")


def lost(reason: str) -> dict:
    """Return the health of a GPU that cannot be used."""
    return {"state": "lost", "reasons": [reason]}


def _identity(indicators: dict) -> list[str]:
    failure = indicators.get("uuid_failure")
    return [f"NVML cannot read the UUID: {failure}. Check the kernel log for NVRM and Xid messages"] if failure else []


def _recovery(indicators: dict) -> list[str]:
    action = indicators.get("recovery_action")
    if action in (None, "none"):
        return []
    unknown = (
        f"the driver requests recovery action {action.rpartition('_')[2]}, which is unknown to this version of the "
        "collection. See nvmlDeviceGpuRecoveryAction_t in NVML's documentation"
    )
    return [_RECOVERY.get(action, unknown)]


def _memory(indicators: dict) -> list[str]:
    reasons = []
    rows = indicators.get("remapped_rows") or {}
    if indicators.get("retired_pages_pending"):
        reasons.append(RETIREMENT_PENDING_REASON)
    if rows.get("pending"):
        reasons.append(REMAPPING_PENDING_REASON)
    if rows.get("failed"):
        reasons.append("remapping a memory row failed. Replace the GPU")
    return reasons


def _errors(indicators: dict) -> list[str]:
    reasons = []
    count = indicators.get("uncorrected_errors")
    if count:
        reasons.append(
            f"uncorrectable memory errors since the driver was loaded: {count}. Reset the GPU. If errors return, "
            "replace it"
        )
    if indicators.get("sram_threshold_exceeded"):
        reasons.append("uncorrectable SRAM errors exceed the threshold. Replace the GPU")
    return reasons


def _pcie(indicators: dict) -> list[str]:
    # The width does not count: some healthy boards use half of the lanes, and an idle link may become narrower.
    link = indicators.get("pcie") or {}
    generation, generation_max = link.get("generation"), link.get("generation_max")
    if generation and generation_max and generation < generation_max and _is_busy(indicators):
        return [
            f"the PCIe link runs at generation {generation} under load instead of {generation_max}. Check the slot and "
            "the riser"
        ]
    return []


def _is_busy(indicators: dict) -> bool:
    state, percent = indicators.get("performance_state"), indicators.get("gpu_percent")
    return state is not None and state <= _BUSY_PERFORMANCE_STATE and (percent or 0) >= _BUSY_PERCENT


def _throttling(indicators: dict) -> list[str]:
    # "hardware_slowdown" is always set together with one of the others, which are more specific.
    active = [name for name in _HARDWARE_THROTTLING if name in (indicators.get("throttle_reasons") or [])]
    specific = [name for name in active if name != "hardware_slowdown"] or active
    return [_HARDWARE_THROTTLING[name] for name in specific]


def fabric(indicators: dict) -> list[str]:
    """Return why a GPU is not part of the NVLink fabric. A GPU without a fabric has no reason."""
    registration = indicators.get("fabric") or {}
    state, status = registration.get("state"), registration.get("status")
    if state in ("not_started", "in_progress"):
        progress = state.replace("_", " ")
        return [f"the registration with the NVLink fabric is {progress}. Check nvidia-fabricmanager"]
    if state == "completed" and status:
        return [f"the registration with the NVLink fabric failed with NVML code {status}. Check nvidia-fabricmanager"]
    return []


def _links(indicators: dict) -> list[str]:
    links = indicators.get("switch_links")
    if not links:
        return []
    return [
        f"{links['down']} of {links['count']} NVLinks are down. Check the kernel log for Xid messages, then reset all "
        "GPUs or reboot the host. If the links stay down, replace the GPU or the baseboard"
    ]


def _fabric_quality(indicators: dict) -> list[str]:
    quality = indicators.get("fabric") or {}
    reasons = []
    if quality.get("bandwidth_degraded"):
        reasons.append(
            "the bandwidth of the NVLink fabric is degraded. Check the NVLinks and the log of the fabric manager"
        )
    if quality.get("routes_unhealthy"):
        reasons.append(
            "routes of the NVLink fabric are unhealthy. Check the NVSwitches and the log of the fabric manager"
        )
    return reasons


_CHECKS = (_identity, _recovery, _memory, _errors, _pcie, _throttling, _links, fabric, _fabric_quality)
