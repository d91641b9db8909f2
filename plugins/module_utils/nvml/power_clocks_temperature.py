# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power, clocks, throttle reasons and temperatures of a GPU through NVML."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import number, scaled
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.handle import Handle

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

_CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
_FIELD_MEMORY_TEMPERATURE = 82
_FIELD_MARGINS = {"shutdown": 193, "slowdown": 194, "memory_max": 195, "gpu_max": 196}


def read_power(gpu: Handle) -> dict:
    least, most = gpu.pair("nvmlDeviceGetPowerManagementLimitConstraints")
    return {
        "power": {
            "draw_w": scaled(gpu.call("nvmlDeviceGetPowerUsage"), 1000),
            "limit_w": scaled(gpu.call("nvmlDeviceGetPowerManagementLimit"), 1000),
            "enforced_limit_w": scaled(gpu.call("nvmlDeviceGetEnforcedPowerLimit"), 1000),
            "default_limit_w": scaled(gpu.call("nvmlDeviceGetPowerManagementDefaultLimit"), 1000),
            "min_limit_w": scaled(least, 1000),
            "max_limit_w": scaled(most, 1000),
            "energy_j": scaled(gpu.call("nvmlDeviceGetTotalEnergyConsumption"), 1000),
        },
    }


def read_clocks(gpu: Handle) -> dict:
    def clocks(call: str, prefix: str, names) -> dict:
        return {f"{prefix}{name}_mhz": number(gpu.call(call, _CLOCKS[name]), most=100_000) for name in names}

    return {
        "clocks": {
            **clocks("nvmlDeviceGetClockInfo", "", _CLOCKS),
            **clocks("nvmlDeviceGetMaxClockInfo", "max_", _CLOCKS),
            **clocks("nvmlDeviceGetApplicationsClock", "application_", ("graphics", "memory")),
            **clocks("nvmlDeviceGetDefaultApplicationsClock", "default_application_", ("graphics", "memory")),
        },
        "performance_state": performance_state(gpu),
        "throttle_reasons": throttle_reasons(gpu),
    }


def performance_state(gpu: Handle) -> int | None:
    return number(gpu.first_answer("nvmlDeviceGetPerformanceState", "nvmlDeviceGetPowerState"), most=15)


def throttle_reasons(gpu: Handle) -> list[str] | None:
    calls = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    mask = number(gpu.first_answer(*calls))
    return None if mask is None else [name for bit, name in THROTTLE_REASONS.items() if int(mask) & bit]


def read_temperature(gpu: Handle) -> dict:
    def threshold(kind: int) -> int | None:
        return _celsius(gpu.call("nvmlDeviceGetTemperatureThreshold", kind))

    current = gpu.call("nvmlDeviceGetTemperatureV", 0)
    return {
        "temperature": {
            "gpu_c": _celsius(current if current is not None else gpu.call("nvmlDeviceGetTemperature", 0)),
            "memory_c": _celsius(gpu.read_field(_FIELD_MEMORY_TEMPERATURE)) or None,
            "shutdown_c": threshold(0),
            "slowdown_c": threshold(1),
            "memory_max_c": threshold(2),
            "gpu_max_c": threshold(3),
            "margin_c": _margin(gpu.call("nvmlDeviceGetMarginTemperature")),
            **{f"{name}_margin_c": _margin(gpu.read_field(field)) for name, field in _FIELD_MARGINS.items()},
        },
        "fan_speed_percent": number(gpu.call("nvmlDeviceGetFanSpeed"), most=200),
    }


def _celsius(value) -> int | None:
    return number(value, most=250)


def _margin(value) -> int | None:
    """Return the distance to a limit. A negative distance may arrive as an unsigned number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    value = int(value)
    if value >= 1 << 31:
        value -= 1 << 32
    return value if abs(value) <= 250 else None
