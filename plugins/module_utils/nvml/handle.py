# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML handle of a GPU or a MIG device. It caches the answers and records failed calls."""

from __future__ import annotations

import ctypes

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import NvmlFailure, flag, number

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
    """The handle of one device. It makes each call once and records the failures."""

    def __init__(self, nvml, handle) -> None:
        self._nvml = nvml
        self._handle = handle
        self._answers: dict[tuple, object] = {}
        self._mig_devices: list[tuple[int, Handle]] | None = None
        self.failures: dict[str, NvmlFailure] = {}

    def call(self, name: str, *arguments):
        """Make a call for this device. Return None if it fails."""
        key = (name, *arguments)
        if key not in self._answers:
            self._answers[key] = self._call(name, arguments)
        return self._answers[key]

    def _call(self, name: str, arguments: tuple):
        try:
            return self._nvml.call(name, self._handle, *arguments)
        except NvmlFailure as failure:
            self.failures[name] = failure
            return None

    def first_answer(self, *names: str):
        """Return the first answer of several calls, newest first: older bindings lack newer calls."""
        for name in names:
            answer = self.call(name)
            if answer is not None:
                return answer
        return None

    def pair(self, name: str, *arguments) -> tuple:
        """Return a current and a pending value, or two None."""
        answer = self.call(name, *arguments)
        return tuple(answer) if isinstance(answer, (list, tuple)) and len(answer) == 2 else (None, None)

    def read_struct(self, name: str, kind: type):
        """Let a call fill a structure of this file. Older bindings lack these structures or define them wrongly."""
        key = (name, kind)
        if key not in self._answers:
            struct = kind()
            if hasattr(kind, "VERSION"):
                struct.version = kind.VERSION << 24 | ctypes.sizeof(kind)
            filled = self._call(name, (ctypes.byref(struct),)) is not None
            self._answers[key] = struct if filled else None
        return self._answers[key]

    def read_field(self, field_id: int):
        """Return one of the values that NVML identifies by a field number."""
        values = self.call("nvmlDeviceGetFieldValues", (field_id,))
        try:
            value = values[0]
            kind = _FIELD_VALUE_MEMBERS[value.valueType]
            if value.nvmlReturn != 0:
                self.failures[f"field {field_id}"] = NvmlFailure.of(value.nvmlReturn)
                return None
            # Older bindings have no signed int. `_margin` in activity.py converts the value.
            return getattr(value.value, kind if hasattr(value.value, kind) else "uiVal")
        except (AttributeError, IndexError, TypeError):
            return None

    def gsp_firmware_enabled(self) -> bool | None:
        """Return whether the GPU runs the driver's firmware. Every binding takes two output pointers for this call."""
        enabled, by_default = ctypes.c_uint(), ctypes.c_uint()
        outputs = (ctypes.byref(enabled), ctypes.byref(by_default))
        return flag(enabled.value) if self._call("nvmlDeviceGetGspFirmwareMode", outputs) is not None else None

    def mig_devices(self) -> list[tuple[int, Handle]]:
        """Return the MIG devices with their slots. Slots can be empty after a device was destroyed."""
        if self._mig_devices is None:
            most = number(self.call("nvmlDeviceGetMaxMigDeviceCount"), most=MAX_MIG_DEVICES) or 0
            handles = ((slot, self.call("nvmlDeviceGetMigDeviceHandleByIndex", slot)) for slot in range(most))
            self._mig_devices = [(slot, Handle(self._nvml, handle)) for slot, handle in handles if handle is not None]
        return self._mig_devices

    def constant(self, name: str):
        return self._nvml.constant(name)

    def call_or_none(self, name: str, *arguments):
        """Make a call without this handle."""
        return self._nvml.call_or_none(name, *arguments)
