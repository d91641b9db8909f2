# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a GPU's signs say of its health, in words that tell what to do. Pure functions."""

from __future__ import annotations

GPU_IS_LOST = 15
RESET_REQUIRED = 16
NO_PERMISSION = 4

# A link slows down while nothing runs, to save power: its speed is judged only in these states, under this load.
_BUSY_PERFORMANCE_STATE = 2
_BUSY_PERCENT = 10

_RECOVERY = {
    "gpu_reset": "the driver asks for a reset of this GPU: stop what uses it, then nvidia-smi --gpu-reset",
    "node_reboot": "the driver asks for a reboot of the host",
    "drain_p2p": "the driver asks that peer-to-peer work be drained from this GPU",
    "drain_and_reset": "the driver asks that work be drained from this GPU and that it be reset",
    "recover_imex_domain": "the driver asks that the IMEX domain be recovered",
    "bus_reset": "the driver asks for a reset of the bus of this GPU: stop what uses the GPU, then reboot the host",
    "system_reboot": "the driver asks for a reboot of the system",
}
_HARDWARE_THROTTLING = {
    "hardware_slowdown": "hardware slows the clocks down (heat or power brake)",
    "hardware_thermal": "hardware slows the clocks down for heat: check cooling",
    "hardware_power_brake": "hardware slows the clocks down for power: check the power supply",
}
_RESET = "it needs a reset before it can be used: stop what uses it, then nvidia-smi --gpu-reset, or reboot the host"
_PAGES = "memory pages wait for their retirement: reset this GPU or reboot the host"
_ROW = "a memory row waits for its remapping: reset this GPU or reboot the host"
_NEED_RESET = frozenset({_RESET, _PAGES, _ROW})


def judge(signs: dict, failures=()) -> dict:
    """Judge a GPU that gave a handle: `signs` as nvml_fields collects them, `failures` of its calls."""
    codes = {failure.code for failure in failures}
    if GPU_IS_LOST in codes:
        return lost("it has fallen off the bus: look for Xid 79 in the kernel log, then reboot or power-cycle the host")
    reasons = [_RESET] if RESET_REQUIRED in codes else []
    reasons += [reason for look in _LOOKS for reason in look(signs)]
    return {"state": "degraded" if reasons else "ok", "reasons": reasons}


def needs_reset(reasons) -> bool:
    """Tell from the reasons of its health whether a GPU has to be reset, by itself or by a reboot."""
    return not _NEED_RESET.isdisjoint(reasons)


def unreachable(failure) -> dict:
    """Judge a GPU of which NVML does not even give a handle."""
    if failure.code == RESET_REQUIRED:
        return {"state": "degraded", "reasons": [_RESET]}
    if failure.code == NO_PERMISSION:
        return {"state": "degraded", "reasons": ["this user may not ask it anything: become root"]}
    if failure.code == GPU_IS_LOST:
        return judge({}, [failure])
    return lost(f"NVML gives no access to it: {failure}")


def lost(reason: str) -> dict:
    """Say that a GPU can not be used at all."""
    return {"state": "lost", "reasons": [reason]}


def _identity(signs: dict) -> list[str]:
    failure = signs.get("uuid_failure")
    return [f"it does not tell its UUID: {failure}; look into the kernel log for NVRM and Xid lines"] if failure else []


def _recovery(signs: dict) -> list[str]:
    action = signs.get("recovery_action")
    if action in (None, "none"):
        return []
    unknown = (
        f"the driver asks for recovery action {action.rpartition('_')[2]}, which this release does not know: look it "
        "up in NVML's documentation (nvmlDeviceGpuRecoveryAction_t)"
    )
    return [_RECOVERY.get(action, unknown)]


def _memory(signs: dict) -> list[str]:
    reasons = []
    rows = signs.get("remapped_rows") or {}
    if signs.get("retired_pages_pending"):
        reasons.append(_PAGES)
    if rows.get("pending"):
        reasons.append(_ROW)
    if rows.get("failed"):
        reasons.append("remapping a memory row failed: have this GPU replaced")
    return reasons


def _errors(signs: dict) -> list[str]:
    reasons = []
    count = signs.get("uncorrected_errors")
    if count:
        reasons.append(f"uncorrectable memory errors since the driver was loaded: {count}")
    if signs.get("sram_threshold_exceeded"):
        reasons.append("uncorrectable SRAM errors are beyond the threshold: have this GPU replaced")
    return reasons


def _pcie(signs: dict) -> list[str]:
    # The width says nothing by itself: sound boards run at half of it for good, and an idle link may shrink.
    link = signs.get("pcie") or {}
    generation, generation_max = link.get("generation"), link.get("generation_max")
    if generation and generation_max and generation < generation_max and _is_busy(signs):
        return [f"the PCIe link runs at generation {generation} under load, {generation_max} is possible"]
    return []


def _is_busy(signs: dict) -> bool:
    state, percent = signs.get("performance_state"), signs.get("gpu_percent")
    return state is not None and state <= _BUSY_PERFORMANCE_STATE and (percent or 0) >= _BUSY_PERCENT


def _throttling(signs: dict) -> list[str]:
    # "hardware_slowdown" comes along with either of the others, which say more.
    active = [name for name in _HARDWARE_THROTTLING if name in (signs.get("throttle_reasons") or [])]
    telling = [name for name in active if name != "hardware_slowdown"] or active
    return [_HARDWARE_THROTTLING[name] for name in telling]


def fabric(signs: dict) -> list[str]:
    """Say what keeps a GPU out of the NVLink fabric. One that has no fabric to join is well."""
    registration = signs.get("fabric") or {}
    state, status = registration.get("state"), registration.get("status")
    if state in ("not_started", "in_progress"):
        how = state.replace("_", " ")
        return [f"its registration with the NVLink fabric is {how}: check nvidia-fabricmanager"]
    if state == "completed" and status:
        return [f"its registration with the NVLink fabric failed with NVML code {status}: check nvidia-fabricmanager"]
    return []


_LOOKS = (_identity, _recovery, _memory, _errors, _pcie, _throttling, fabric)
