# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CUDA driver API: libcuda loaded with ctypes. No CUDA toolkit is needed.

This file imports the standard library only, because the CUDA probe also runs in containers without Ansible.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

LIBRARY = "libcuda.so.1"
JIT_LIBRARY = "libnvidia-ptxjitcompiler.so.1"
# Library directories below the driver root, for drivers that the dynamic loader does not know.
LIBRARY_DIRS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "lib/x86_64-linux-gnu",
    "lib64",
    "usr/local/nvidia/lib64",
    "lib",
)
WSL_LIBRARY = "/usr/lib/wsl/lib/" + LIBRARY

SUCCESS = 0
OUT_OF_MEMORY = 2
DEVICE_UNAVAILABLE = 46
NO_DEVICE = 100

# Causes and remedies, by CUresult.
ADVICE = {
    OUT_OF_MEMORY: "Other processes use the GPU's memory. Run nvidia-smi to list them.",
    34: "This libcuda is the toolkit's stub. Remove the stubs directory from the library path.",
    35: "The driver is older than this library requires. Upgrade the driver.",
    DEVICE_UNAVAILABLE: "The compute mode is prohibited, or another process uses the GPU exclusively.",
    NO_DEVICE: "Check that the nvidia module is loaded and that /dev/nvidiactl and /dev/nvidia0 are accessible.",
    101: "The device number is invalid.",
    200: "The driver cannot load the kernel image on this GPU.",
    209: "The driver cannot generate code for this GPU's architecture. Upgrade the driver.",
    214: "The GPU has an uncorrectable ECC error. Check the kernel log for Xid messages and reset the GPU.",
    218: "The driver's compiler rejects the kernel.",
    221: "libnvidia-ptxjitcompiler is not installed beside libcuda. Install the driver's compute libraries.",
    222: "The driver does not support the kernel's PTX version. Upgrade the driver.",
    304: "A system call failed. Check the permissions of /dev/nvidia-uvm and the resource limits of this process.",
    700: "The kernel accessed an invalid address. Check the kernel log for Xid messages.",
    719: "The GPU raised an exception. Check the kernel log for Xid messages.",
    801: "This system does not support the operation.",
    802: "The GPU fabric is not ready. Check that nvidia-fabricmanager runs and has the same version as the driver.",
    803: "libcuda and the loaded kernel module have different versions. Reload the module or reboot.",
    804: "The forward-compatibility libcuda in the library path does not support this GPU. Remove this library.",
    999: "Check that the nvidia_uvm module is loaded and that /dev/nvidia-uvm exists and is accessible.",
}
# Error names, for libraries that do not return them.
NAMES = {
    OUT_OF_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    34: "CUDA_ERROR_STUB_LIBRARY",
    DEVICE_UNAVAILABLE: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    NO_DEVICE: "CUDA_ERROR_NO_DEVICE",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    999: "CUDA_ERROR_UNKNOWN",
}


class ProbeError(Exception):
    """The probe failed. The message has the cause and the remedy."""


class CudaError(ProbeError):
    """A libcuda call returned an error."""

    def __init__(self, call: str, code: int, name: str | None, text: str | None) -> None:
        self.call = call
        self.code = code
        self.name = name or NAMES.get(code) or "unknown error"
        self.text = text
        message = f"{call}: {self.name} ({code})"
        if text:
            message += f", {text}"
        if code in ADVICE:
            message += f". {ADVICE[code]}"
        super().__init__(message)


class MissingFunctionError(ProbeError):
    """libcuda does not export a function."""

    def __init__(self, call: str) -> None:
        self.call = call
        super().__init__(f"{LIBRARY} has no function {call}. The driver is too old, or the library is not NVIDIA's.")


class CudaDevice(NamedTuple):
    """A GPU: its index and its CUdevice number."""

    index: int
    number: int


def find_library(library: str | None = None, driver_root: str = "/", use_loader: bool = True) -> list[str]:
    """Return the candidates to load, in order of preference."""
    if library:
        return [library]
    root = Path(driver_root)
    below = [str(root / directory / LIBRARY) for directory in LIBRARY_DIRS]
    if use_loader and root == Path("/"):
        return [LIBRARY, WSL_LIBRARY, *below]
    return below


class Cuda:
    """The driver API functions that the probe uses. A call that fails raises a ProbeError."""

    def __init__(self, lib: Any, path: str = LIBRARY) -> None:
        self._lib = lib
        self.path = path

    @classmethod
    def load(cls, library: str | None = None, driver_root: str = "/") -> Cuda:
        """Load libcuda. If it is loaded by path, load the PTX compiler from the same directory."""
        candidates = find_library(library, driver_root)
        errors = []
        for candidate in candidates:
            if "/" in candidate and not os.path.exists(candidate):
                continue
            try:
                lib = ctypes.CDLL(candidate)
            except OSError as error:
                if candidate != LIBRARY:
                    errors.append(str(error))
                continue
            compiler = Path(candidate).with_name(JIT_LIBRARY)
            if "/" in candidate and compiler.exists():
                ctypes.CDLL(str(compiler), mode=ctypes.RTLD_GLOBAL)
            return cls(lib, candidate)
        if errors:
            raise ProbeError(f"{LIBRARY} could not be loaded: {'; '.join(errors)}")
        if library:
            raise ProbeError(f"library={library} does not exist. Set it to the path of the driver's {LIBRARY}.")
        place = "by the dynamic loader or in the usual directories" if driver_root == "/" else f"below {driver_root}"
        raise ProbeError(
            f"{LIBRARY} was not found {place}. Install the driver's compute libraries, or set driver_root or library."
        )

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function and raise an exception if it fails. Without a versioned symbol, use the plain name."""
        code = self._function(name)(*arguments)
        if code != SUCCESS:
            texts = (self._error_text("cuGetErrorName", code), self._error_text("cuGetErrorString", code))
            raise CudaError(name.rsplit("_v", 1)[0], code, *texts)

    def _function(self, name: str) -> Callable[..., int]:
        for symbol in dict.fromkeys((name, name.rsplit("_v", 1)[0])):
            try:
                function = getattr(self._lib, symbol)
            except AttributeError:
                continue
            function.restype = ctypes.c_int
            return function
        raise MissingFunctionError(name.rsplit("_v", 1)[0])

    def _error_text(self, function: str, code: int) -> str | None:
        text = ctypes.c_char_p()
        try:
            status = self._function(function)(ctypes.c_int(code), ctypes.byref(text))
        except MissingFunctionError:
            return None
        return text.value.decode(errors="replace") if status == SUCCESS and text.value else None

    def _int(self, name: str, *arguments: Any) -> int:
        value = ctypes.c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def init(self) -> None:
        self.call("cuInit", ctypes.c_uint(0))

    def driver_version(self) -> str:
        number = self._int("cuDriverGetVersion")
        return f"{number // 1000}.{number % 1000 // 10}"

    def devices(self) -> Iterator[CudaDevice]:
        for index in range(self._int("cuDeviceGetCount")):
            yield CudaDevice(index, self._int("cuDeviceGet", ctypes.c_int(index)))

    def attribute(self, device: int, number: int) -> int | None:
        """Return an attribute, or None if the driver does not support it."""
        try:
            return self._int("cuDeviceGetAttribute", ctypes.c_int(number), ctypes.c_int(device))
        except CudaError:
            return None

    def name(self, device: int) -> str:
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, ctypes.c_int(len(text)), ctypes.c_int(device))
        return text.value.decode(errors="replace")

    def uuid(self, device: int) -> str:
        """Return the UUID in nvidia-smi's format. Only version 2 of the function supports MIG devices."""
        raw = (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetUuid_v2", ctypes.byref(raw), ctypes.c_int(device))
        text = bytes(raw).hex()
        prefix = "MIG" if self._is_mig(device) else "GPU"
        return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _is_mig(self, device: int) -> bool:
        return " MIG " in f"{self.name(device)} "

    def pci_bus_id(self, device: int) -> str | None:
        """Return the PCI address in the kernel's format: lower case, with a domain of at least four digits."""
        text = ctypes.create_string_buffer(32)
        try:
            self.call("cuDeviceGetPCIBusId", text, ctypes.c_int(len(text)), ctypes.c_int(device))
        except CudaError:
            return None
        domain, _colon, rest = text.value.decode(errors="replace").lower().partition(":")
        return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"

    def memory_total(self, device: int) -> int:
        size = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(size), ctypes.c_int(device))
        return size.value


class CudaContext:
    """Make the GPU's primary context current inside a `with` block, without changing its flags."""

    def __init__(self, cuda: Cuda, device: int) -> None:
        self._cuda = cuda
        self._device = ctypes.c_int(device)
        self._memory: list[ctypes.c_uint64] = []

    def __enter__(self) -> CudaContext:
        context = ctypes.c_void_p()
        self._cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        try:
            self._cuda.call("cuCtxSetCurrent", context)
        except ProbeError:
            self._cuda.call("cuDevicePrimaryCtxRelease_v2", self._device)
            raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            for memory in self._memory:
                self._cuda.call("cuMemFree_v2", memory)
            self._cuda.call("cuCtxSetCurrent", ctypes.c_void_p())
            self._cuda.call("cuDevicePrimaryCtxRelease_v2", self._device)
        except ProbeError:
            if error is None:
                raise

    def allocate(self, size: int) -> ctypes.c_uint64:
        """Allocate device memory. Managed memory can hang a GPU that has too little memory left."""
        memory = ctypes.c_uint64()
        self._cuda.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
        self._memory.append(memory)
        return memory

    def copy_to_gpu(self, memory: ctypes.c_uint64, data: bytes) -> None:
        self._cuda.call("cuMemcpyHtoD_v2", memory, data, ctypes.c_size_t(len(data)))

    def copy_on_gpu(self, target: ctypes.c_uint64, source: ctypes.c_uint64, size: int) -> None:
        self._cuda.call("cuMemcpyDtoD_v2", target, source, ctypes.c_size_t(size))

    def copy_from_gpu(self, memory: ctypes.c_uint64, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self._cuda.call("cuMemcpyDtoH_v2", data, memory, ctypes.c_size_t(size))
        return data.raw

    def launch(self, ptx: bytes, entry: bytes, count: int, *arguments: Any) -> None:
        """Compile PTX text for this GPU and run one thread for each of `count` elements."""
        with self.function(ptx, entry) as function:
            self.run(function, (count + 255) // 256, 256, *arguments)

    @contextlib.contextmanager
    def function(self, ptx: bytes, entry: bytes) -> Iterator[ctypes.c_void_p]:
        """Compile PTX text for this GPU, and return its function inside a `with` block."""
        module = ctypes.c_void_p()
        function = ctypes.c_void_p()
        none = ctypes.c_void_p()
        self._cuda.call("cuModuleLoadDataEx", ctypes.byref(module), ptx, ctypes.c_uint(0), none, none)
        try:
            self._cuda.call("cuModuleGetFunction", ctypes.byref(function), module, entry)
            yield function
        finally:
            self._cuda.call("cuModuleUnload", module)

    def run(self, function: ctypes.c_void_p, blocks: int, threads: int, *arguments: Any) -> None:
        """Run a function with this number of blocks and threads per block, and wait for its end."""
        none = ctypes.c_void_p()
        pointers = (ctypes.c_void_p * len(arguments))(
            *(ctypes.cast(ctypes.pointer(argument), ctypes.c_void_p) for argument in arguments)
        )
        one, zero = ctypes.c_uint(1), ctypes.c_uint(0)
        grid, block = ctypes.c_uint(blocks), ctypes.c_uint(threads)
        self._cuda.call("cuLaunchKernel", function, grid, one, one, block, one, one, zero, none, pointers, none)
        self._cuda.call("cuCtxSynchronize")
