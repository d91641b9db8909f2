# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The failures and values that an NVML call can return. Invalid values become None."""

from __future__ import annotations

CODES = {
    1: "UNINITIALIZED",
    2: "INVALID_ARGUMENT",
    3: "NOT_SUPPORTED",
    4: "NO_PERMISSION",
    5: "ALREADY_INITIALIZED",
    6: "NOT_FOUND",
    7: "INSUFFICIENT_SIZE",
    8: "INSUFFICIENT_POWER",
    9: "DRIVER_NOT_LOADED",
    10: "TIMEOUT",
    11: "IRQ_ISSUE",
    12: "LIBRARY_NOT_FOUND",
    13: "FUNCTION_NOT_FOUND",
    14: "CORRUPTED_INFOROM",
    15: "GPU_IS_LOST",
    16: "RESET_REQUIRED",
    17: "OPERATING_SYSTEM",
    18: "LIB_RM_VERSION_MISMATCH",
    19: "IN_USE",
    20: "MEMORY",
    21: "NO_DATA",
    22: "VGPU_ECC_NOT_SUPPORTED",
    23: "INSUFFICIENT_RESOURCES",
    24: "FREQ_NOT_SUPPORTED",
    25: "ARGUMENT_VERSION_MISMATCH",
    26: "DEPRECATED",
    27: "NOT_READY",
    28: "GPU_NOT_FOUND",
    29: "INVALID_STATE",
    30: "RESET_TYPE_NOT_SUPPORTED",
    999: "UNKNOWN",
}

DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
UNKNOWN = 999

# NVML returns these numbers if a value is not available.
_NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
# An upper bound: one pebibyte is far more than the memory of any GPU.
MOST_BYTES = 1 << 50
MOST_GPUS = 1024
_EMPTY_TEXTS = ("", "N/A", "[N/A]", "[Not Supported]", "[Unknown Error]")


class NvmlFailure(Exception):
    """An NVML call that failed: `code` as in nvml.h, its `name` without the prefix, and a `text`."""

    def __init__(self, code: int, name: str, text: str) -> None:
        super().__init__(f"{text} (NVML_ERROR_{name})")
        self.code = code
        self.name = name
        self.text = text

    @classmethod
    def of(cls, code: int, text: str | None = None) -> NvmlFailure:
        """Return the failure for a return code."""
        name = CODES.get(code, str(code))
        return cls(code, name, text or name.replace("_", " ").capitalize())


def number(value, most: float | None = None):
    """Return a valid number. Return None if it is negative, not available or above `most`."""
    value = getattr(value, "value", value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not value >= 0 or value in _NOT_AVAILABLE or (most is not None and value > most):
        return None
    return value


def member(struct, name: str):
    """Return a member of a structure. Return None if it is missing or not valid text."""
    try:
        return getattr(struct, name, None)
    except UnicodeDecodeError:
        return None


def flag(value) -> bool | None:
    """Return an enable state as a bool, or None if it is neither on nor off."""
    value = number(value)
    return bool(value) if value in (0, 1) else None


def text(value) -> str | None:
    """Return printable text. Older bindings return bytes."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str) or not value.isprintable():
        return None
    value = value.strip()
    return None if value in _EMPTY_TEXTS else value


def choice(value, names: dict[int, str]) -> str | None:
    """Return the name of an enumeration value, or None if it is unknown."""
    value = number(value)
    return None if value is None else names.get(value)


def scaled(value, divisor: int) -> float | None:
    """Convert a number to another unit, for example milliwatts to watts."""
    value = number(value)
    return None if value is None else round(value / divisor, 2)
