# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML handle of a GPU or a MIG device. It caches the answers and records failed calls."""

from __future__ import annotations

import ctypes

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import NvmlFailure, flag

# By nvmlValueType_t: double, unsigned int, unsigned long, unsigned long long, signed long long, signed int, short.
_FIELD_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class Handle:
    """The handle of one device. It makes each call once and records the failures."""

    def __init__(self, nvml, handle) -> None:
        self._nvml = nvml
        self._handle = handle
        self._answers: dict[tuple, object] = {}
        self._devices: dict[tuple, Handle | None] = {}
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
        """Let a call fill a structure of structures.py. Older bindings lack these structures or define them wrongly."""
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
            # Older bindings have no signed int. `_margin` in power_clocks_temperature.py converts the value.
            return getattr(value.value, kind if hasattr(value.value, kind) else "uiVal")
        except (AttributeError, IndexError, TypeError):
            return None

    def gsp_firmware_enabled(self) -> bool | None:
        """Return whether the GPU runs the driver's firmware. Every binding takes two output pointers for this call."""
        enabled, by_default = ctypes.c_uint(), ctypes.c_uint()
        outputs = (ctypes.byref(enabled), ctypes.byref(by_default))
        return flag(enabled.value) if self._call("nvmlDeviceGetGspFirmwareMode", outputs) is not None else None

    def device(self, name: str, *arguments) -> Handle | None:
        """Return the handle of another device, such as a MIG device, from a call. Return None if the call fails."""
        key = (name, *arguments)
        if key not in self._devices:
            handle = self.call(name, *arguments)
            self._devices[key] = None if handle is None else Handle(self._nvml, handle)
        return self._devices[key]

    def constant(self, name: str):
        return self._nvml.constant(name)

    def call_or_none(self, name: str, *arguments):
        """Make a call without this handle."""
        return self._nvml.call_or_none(name, *arguments)
