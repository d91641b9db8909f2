# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may come back from a call of NVML's: a failure, an answer, or nonsense that is no answer."""

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

# What NVML puts where it has no number to tell.
_NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
# No memory of one GPU comes near a pebibyte.
MOST_BYTES = 1 << 50
MEBIBYTE = 1 << 20
MOST_GPUS = 1024
_NAMELESS = ("", "N/A", "[N/A]", "[Not Supported]", "[Unknown Error]")


class NvmlFailure(Exception):
    """A call of NVML's that gave no answer: `code` as in nvml.h, its `name` without the prefix, and a `text`."""

    def __init__(self, code: int, name: str, text: str) -> None:
        super().__init__(f"{text} (NVML_ERROR_{name})")
        self.code = code
        self.name = name
        self.text = text

    @classmethod
    def of(cls, code: int, text: str | None = None) -> NvmlFailure:
        """Make the failure that a return code stands for."""
        name = CODES.get(code, str(code))
        return cls(code, name, text or name.replace("_", " ").capitalize())


NO_BINDING = "There is an NVIDIA driver on this host, but no pynvml to ask it with"


class BindingMissing(Exception):
    """No usable pynvml on this host, nor one that came along with the call."""

    def result(self) -> dict:
        """Say so in a module's result, from which its action plugin knows that the controller's has to come along."""
        return {
            "msg": f"{NO_BINDING} ({self}). Install python3-pynvml or nvidia-ml-py here, or nvidia-ml-py on the "
            "controller.",
            "nvml_binding_missing": True,
        }


def number(value, most: float | None = None):
    """Give back a number that makes sense; None for one that is negative, all ones or beyond `most`."""
    value = getattr(value, "value", value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not value >= 0 or value in _NOT_AVAILABLE or (most is not None and value > most):
        return None
    return value


def member(struct, name: str):
    """Give back a structure's member; None where there is none, or nothing that can be read as text."""
    try:
        return getattr(struct, name, None)
    except UnicodeDecodeError:
        return None


def flag(value) -> bool | None:
    """Give back an enable state as bool; None for what is neither on nor off."""
    value = number(value)
    return bool(value) if value in (0, 1) else None


def text(value) -> str | None:
    """Give back a printable text; old bindings tell bytes."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str) or not value.isprintable():
        return None
    value = value.strip()
    return None if value in _NAMELESS else value


def choice(value, names: dict[int, str]) -> str | None:
    """Give back the name of an enumeration's value; None for one that is not known."""
    value = number(value)
    return None if value is None else names.get(value)


def scaled(value, divisor: int, digits: int = 2, most: float | None = None) -> float | None:
    """Give back a number in another unit: milliwatts in watts, millijoules in joules."""
    value = number(value, most)
    return None if value is None else round(value / divisor, digits)


def mebibytes(value, *, up: bool = False) -> int | None:
    """Give back bytes as whole MiB; nvidia-smi rounds what is free or reserved up, and the rest down."""
    value = number(value, most=MOST_BYTES)
    return None if value is None else (int(value) + (MEBIBYTE - 1 if up else 0)) // MEBIBYTE
