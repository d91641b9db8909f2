# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPU's handle, or a MIG device's: asks NVML about it, and knows which questions got no answer."""

from __future__ import annotations

import ctypes

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.values import NvmlFailure, flag, number

MAX_MIG_DEVICES = 64

# By nvmlValueType_t: double, unsigned int, unsigned long, unsigned long long, signed long long, signed int, short.
_FIELD_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_SRAM_COUNTERS = (
    "aggregateUncParity",
    "aggregateUncSecDed",
    "aggregateCor",
    "volatileUncParity",
    "volatileUncSecDed",
    "volatileCor",
    "aggregateUncBucketL2",
    "aggregateUncBucketSm",
    "aggregateUncBucketPcie",
    "aggregateUncBucketMcu",
    "aggregateUncBucketOther",
)


class FabricInfoV1(ctypes.Structure):
    _fields_ = (
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint),
    )


class FabricInfoV2(ctypes.Structure):
    VERSION = 2
    _fields_ = (("version", ctypes.c_uint), *FabricInfoV1._fields_, ("healthMask", ctypes.c_uint32))


class SramErrorStatus(ctypes.Structure):
    VERSION = 1
    _fields_ = (
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in _SRAM_COUNTERS),
        ("bThresholdExceeded", ctypes.c_uint),
    )


class FirmwareVersion(ctypes.Structure):
    _fields_ = (("value", ctypes.c_char * 64),)


class Handle:
    """One GPU's handle: asks each question once and remembers which failed how."""

    def __init__(self, nvml, handle) -> None:
        self._nvml = nvml
        self._handle = handle
        self._answers: dict[tuple, object] = {}
        self._mig_devices: list[tuple[int, Handle]] | None = None
        self.failures: dict[str, NvmlFailure] = {}

    def ask(self, name: str, *arguments):
        """Ask for one thing; None where there is no answer."""
        key = (name, *arguments)
        if key not in self._answers:
            self._answers[key] = self._ask(name, arguments)
        return self._answers[key]

    def _ask(self, name: str, arguments: tuple):
        try:
            return self._nvml.ask(name, self._handle, *arguments)
        except NvmlFailure as failure:
            self.failures[name] = failure
            return None

    def first(self, *names: str):
        """Ask under the newest name that gives an answer: calls get replaced, and bindings lag."""
        for name in names:
            answer = self.ask(name)
            if answer is not None:
                return answer
        return None

    def pair(self, name: str, *arguments) -> tuple:
        """Ask for a current and a pending value."""
        answer = self.ask(name, *arguments)
        return tuple(answer) if isinstance(answer, (list, tuple)) and len(answer) == 2 else (None, None)

    def filled(self, name: str, kind: type):
        """Have a structure filled. Its layout is ours: those of old bindings are wrong, or not there."""
        key = (name, kind)
        if key not in self._answers:
            struct = kind()
            if hasattr(kind, "VERSION"):
                struct.version = kind.VERSION << 24 | ctypes.sizeof(kind)
            filled = self._ask(name, (ctypes.byref(struct),)) is not None
            self._answers[key] = struct if filled else None
        return self._answers[key]

    def field(self, field_id: int):
        """Ask for one of the values that have a number in place of a call."""
        values = self.ask("nvmlDeviceGetFieldValues", (field_id,))
        try:
            value = values[0]
            kind = _FIELD_VALUE_MEMBERS[value.valueType]
            if value.nvmlReturn != 0:
                self.failures[f"field {field_id}"] = NvmlFailure.of(value.nvmlReturn)
                return None
            # Old bindings know no signed int; `_margin` makes one of it.
            return getattr(value.value, kind if hasattr(value.value, kind) else "uiVal")
        except (AttributeError, IndexError, TypeError):
            return None

    def gsp_firmware_enabled(self) -> bool | None:
        """Tell whether the GPU runs the driver's firmware. All bindings take places for the answers here."""
        enabled, by_default = ctypes.c_uint(), ctypes.c_uint()
        places = (ctypes.byref(enabled), ctypes.byref(by_default))
        return flag(enabled.value) if self._ask("nvmlDeviceGetGspFirmwareMode", places) is not None else None

    def mig_devices(self) -> list[tuple[int, Handle]]:
        """Give the MIG devices by their slots. These are sparse: a device that was destroyed leaves a hole."""
        if self._mig_devices is None:
            most = number(self.ask("nvmlDeviceGetMaxMigDeviceCount"), most=MAX_MIG_DEVICES) or 0
            handles = ((slot, self.ask("nvmlDeviceGetMigDeviceHandleByIndex", slot)) for slot in range(most))
            self._mig_devices = [(slot, Handle(self._nvml, handle)) for slot, handle in handles if handle is not None]
        return self._mig_devices

    def constant(self, name: str):
        return self._nvml.constant(name)

    def maybe(self, name: str, *arguments):
        """Make a call that is not about this GPU's handle."""
        return self._nvml.maybe(name, *arguments)
