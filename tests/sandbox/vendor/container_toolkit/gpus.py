# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the GPUs and MIG devices of the host with NVML."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

from .main import Failure

_BUS_ID = 32


class Mig(NamedTuple):
    """A MIG device of a GPU."""

    index: int
    uuid: str
    gi: int
    ci: int


class Gpu(NamedTuple):
    """A GPU. `migs` is None if MIG is disabled."""

    index: int
    uuid: str
    minor: int
    bus_id: str
    name: str = ""
    migs: tuple[Mig, ...] | None = None


class _PciInfo(ctypes.Structure):
    _fields_ = (
        ("busIdLegacy", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("busId", ctypes.c_char * _BUS_ID),
    )


class Host(NamedTuple):
    """What NVML shows: the versions of the driver and of CUDA, and the GPUs."""

    driver: str
    cuda: str
    gpus: tuple[Gpu, ...]


class _Nvml:
    def __init__(self, library: Any) -> None:
        self.library = library

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raise Failure if it fails."""
        code = getattr(self.library, name)(*arguments)
        if code:
            self.library.nvmlErrorString.restype = ctypes.c_char_p
            text = (self.library.nvmlErrorString(code) or b"").decode()
            raise Failure(f"{'failed to initialize NVML' if name == 'nvmlInit_v2' else name}: {text or code}")

    def number(self, name: str, *arguments: Any) -> int:
        """Return the number that a function writes."""
        value = ctypes.c_uint()
        self.call(name, *arguments, ctypes.byref(value))
        return value.value

    def text(self, name: str, *arguments: Any) -> str:
        """Return the text that a function writes."""
        value = ctypes.create_string_buffer(96)
        self.call(name, *arguments, value, ctypes.c_uint(96))
        return value.value.decode()

    def handle(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """Return the handle that a function writes."""
        value = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(value))
        return value


@contextlib.contextmanager
def _session() -> Iterator[_Nvml]:
    try:
        nvml = _Nvml(ctypes.CDLL("libnvidia-ml.so.1"))
    except OSError:
        raise Failure("failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND") from None
    nvml.call("nvmlInit_v2")
    try:
        yield nvml
    finally:
        nvml.library.nvmlShutdown()


def read() -> Host:
    """Return what NVML shows on this host."""
    with _session() as nvml:
        cuda = nvml.number("nvmlSystemGetCudaDriverVersion_v2")
        count = nvml.number("nvmlDeviceGetCount_v2")
        found = tuple(_gpu(nvml, index) for index in range(count))
        return Host(nvml.text("nvmlSystemGetDriverVersion"), f"{cuda // 1000}.{cuda % 1000 // 10}", found)


def _gpu(nvml: _Nvml, index: int) -> Gpu:
    device = nvml.handle("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index))
    pci = _PciInfo()
    nvml.call("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci))
    # NVML writes the domain with eight digits, the kernel with four.
    bus_id = pci.busId.decode().lower().replace("0000", "", 1)
    minor = nvml.number("nvmlDeviceGetMinorNumber", device)
    names = (nvml.text("nvmlDeviceGetUUID", device), nvml.text("nvmlDeviceGetName", device))
    return Gpu(index, names[0], minor, bus_id, names[1], _migs(nvml, device))


def _migs(nvml: _Nvml, device: ctypes.c_void_p) -> tuple[Mig, ...] | None:
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    # A GPU without MIG does not support the call.
    if nvml.library.nvmlDeviceGetMigMode(device, ctypes.byref(current), ctypes.byref(pending)) or not current.value:
        return None
    found = []
    for index in range(nvml.number("nvmlDeviceGetMaxMigDeviceCount", device)):
        with contextlib.suppress(Failure):
            mig = nvml.handle("nvmlDeviceGetMigDeviceHandleByIndex", device, ctypes.c_uint(index))
            numbers = [nvml.number(f"nvmlDeviceGet{kind}InstanceId", mig) for kind in ("Gpu", "Compute")]
            found.append(Mig(index, nvml.text("nvmlDeviceGetUUID", mig), *numbers))
    return tuple(found)


def select(gpus: tuple[Gpu, ...], identifier: str) -> tuple[Gpu, Mig | None]:
    """Return the GPU and the MIG device that an index, a pair of indexes or a UUID names. Else raise Failure."""
    for gpu in gpus:
        if identifier in (str(gpu.index), gpu.uuid):
            return gpu, None
        for mig in gpu.migs or ():
            if identifier in (f"{gpu.index}:{mig.index}", mig.uuid):
                return gpu, mig
    if identifier.replace(":", "", 1).isdigit() or identifier.startswith(("GPU-", "MIG-")):
        raise Failure(f"failed to get device handle from {identifier}: Not Found")
    raise Failure(f'identifier is not a valid UUID or index: "{identifier}"')
