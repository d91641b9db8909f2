# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask CUDA itself whether the GPUs compute: libcuda by ctypes, a kernel in PTX, no toolkit and no framework.

Works as a module_util (see probe()) and as a plain script, `python3 cuda_driver.py`, that prints JSON: it needs nothing
but the standard library, so it also runs inside a container that has a Python.

Whatever touches the driver runs in a child process with a time limit. A driver that hangs, or a library that crashes,
is then a result like any other.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

LIBRARY = "libcuda.so.1"
JIT_LIBRARY = "libnvidia-ptxjitcompiler.so.1"
# Where a driver that is not in the loader's cache keeps its libraries, below its root.
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

ELEMENTS = 1 << 16
MIB = 1 << 20

# Maxwell is the oldest architecture that drivers in service still compile for. Integer and floating-point units are
# both used; every value is exact in single precision, so that the CPU's answer is the same to the bit.
PTX = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry gpufleet_probe(
    .param .u64 param_a,
    .param .u64 param_b,
    .param .u64 param_out,
    .param .u32 param_n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<16>;
    .reg .f32 %f<5>;
    .reg .b64 %rd<9>;

    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [param_n];
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra DONE;

    ld.param.u64 %rd1, [param_a];
    ld.param.u64 %rd2, [param_b];
    ld.param.u64 %rd3, [param_out];
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    cvta.to.global.u64 %rd3, %rd3;
    mul.wide.u32 %rd4, %r4, 4;
    add.u64 %rd5, %rd1, %rd4;
    add.u64 %rd6, %rd2, %rd4;
    add.u64 %rd7, %rd3, %rd4;
    ld.global.u32 %r6, [%rd5];
    ld.global.u32 %r7, [%rd6];

    mad.lo.u32 %r8, %r6, 1664525, %r7;
    xor.b32 %r8, %r8, %r4;

    and.b32 %r9, %r6, 4095;
    and.b32 %r10, %r7, 4095;
    and.b32 %r11, %r4, 255;
    cvt.rn.f32.u32 %f1, %r9;
    cvt.rn.f32.u32 %f2, %r10;
    cvt.rn.f32.u32 %f3, %r11;
    fma.rn.f32 %f4, %f1, %f2, %f3;
    cvt.rni.u32.f32 %r12, %f4;

    add.u32 %r13, %r8, %r12;
    st.global.u32 [%rd7], %r13;

DONE:
    ret;
}
\0"""

# CUdevice_attribute, in the order in which deviceQuery prints them.
ATTRIBUTES = {
    "multiprocessors": 16,
    "clock_rate_khz": 13,
    "memory_clock_rate_khz": 36,
    "memory_bus_width_bits": 37,
    "l2_cache_bytes": 38,
    "max_texture_1d_width": 21,
    "max_texture_2d_width": 22,
    "max_texture_2d_height": 23,
    "max_texture_3d_width": 24,
    "max_texture_3d_height": 25,
    "max_texture_3d_depth": 26,
    "max_layered_texture_1d_width": 42,
    "max_layered_texture_1d_layers": 43,
    "max_layered_texture_2d_width": 27,
    "max_layered_texture_2d_height": 28,
    "max_layered_texture_2d_layers": 29,
    "constant_memory_bytes": 9,
    "shared_memory_per_block_bytes": 8,
    "shared_memory_per_block_optin_bytes": 97,
    "shared_memory_per_multiprocessor_bytes": 81,
    "registers_per_block": 12,
    "registers_per_multiprocessor": 82,
    "warp_size": 10,
    "max_threads_per_multiprocessor": 39,
    "max_threads_per_block": 1,
    "max_blocks_per_multiprocessor": 106,
    "max_block_dim_x": 2,
    "max_block_dim_y": 3,
    "max_block_dim_z": 4,
    "max_grid_dim_x": 5,
    "max_grid_dim_y": 6,
    "max_grid_dim_z": 7,
    "max_pitch_bytes": 11,
    "texture_alignment_bytes": 14,
    "surface_alignment_bytes": 30,
    "copy_engines": 40,
    "kernel_time_limit": 17,
    "integrated": 18,
    "can_map_host_memory": 19,
    "concurrent_kernels": 31,
    "ecc_enabled": 32,
    "unified_addressing": 41,
    "managed_memory": 83,
    "concurrent_managed_access": 89,
    "pageable_memory_access": 88,
    "compute_preemption": 90,
    "cooperative_launch": 95,
    "stream_priorities": 78,
    "memory_pools": 115,
    "virtual_memory_management": 102,
    "gpu_direct_rdma": 116,
    "multi_gpu_board": 84,
    "single_to_double_ratio": 87,
    "compute_mode": 20,
    "pci_domain": 50,
    "pci_bus": 33,
    "pci_device": 34,
}
SWITCHES = frozenset(
    (
        "kernel_time_limit",
        "integrated",
        "can_map_host_memory",
        "concurrent_kernels",
        "ecc_enabled",
        "unified_addressing",
        "managed_memory",
        "concurrent_managed_access",
        "pageable_memory_access",
        "compute_preemption",
        "cooperative_launch",
        "stream_priorities",
        "memory_pools",
        "virtual_memory_management",
        "gpu_direct_rdma",
        "multi_gpu_board",
    )
)
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
COMPUTE_CAPABILITY_MAJOR = 75
COMPUTE_CAPABILITY_MINOR = 76

SUCCESS = 0
OUT_OF_MEMORY = 2
DEVICE_UNAVAILABLE = 46
NO_DEVICE = 100

# What to do about the errors that a host can be blamed for, by CUresult.
ADVICE = {
    OUT_OF_MEMORY: "other processes hold the GPU's memory; nvidia-smi shows which",
    34: "this libcuda is the toolkit's stub; take the stubs directory out of the library path",
    35: "the driver is older than this library expects; upgrade the driver",
    DEVICE_UNAVAILABLE: "the compute mode forbids it, or another process uses the GPU exclusively",
    NO_DEVICE: "is the nvidia module loaded, and are /dev/nvidiactl and a GPU's /dev/nvidia0 there and open to us?",
    101: "the device number is not valid",
    200: "the driver cannot load the kernel's image on this GPU",
    209: "the driver has no code generator for this GPU's architecture; upgrade the driver",
    214: "an uncorrectable ECC error; look at the kernel's log for Xid and reset the GPU",
    218: "the driver's compiler rejects the kernel",
    221: "libnvidia-ptxjitcompiler is missing beside libcuda; install the driver's compute libraries",
    222: "the driver is too old for the kernel's PTX version; upgrade the driver",
    304: "the operating system refused a call: are /dev/nvidia-uvm and the limits of this process all right?",
    700: "the kernel touched memory that it may not; look at the kernel's log for Xid",
    719: "the GPU threw an exception; look at the kernel's log for Xid",
    801: "not supported on this system",
    802: "the GPUs' fabric is not ready; is nvidia-fabricmanager running, of the driver's version?",
    803: "libcuda and the loaded kernel module are of different versions; reload the module or reboot",
    804: "the forward-compatibility libcuda in the library path does not fit this GPU; take it out of the path",
    999: "often /dev/nvidia-uvm: is the nvidia_uvm module loaded and its node there and open to us?",
}
# Names for libraries that are too old or too broken to say them.
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
    """The probe cannot be made; the text says why and what to do."""


class CudaError(ProbeError):
    """A call of libcuda failed."""

    def __init__(self, call: str, code: int, name: str | None, text: str | None) -> None:
        self.call = call
        self.code = code
        self.name = name or NAMES.get(code) or "unknown error"
        self.text = text
        words = f"{call}: {self.name} ({code})"
        if text:
            words += f", {text}"
        if code in ADVICE:
            words += f"; {ADVICE[code]}"
        super().__init__(words)


class MissingCall(ProbeError):
    """The library lacks a function."""

    def __init__(self, call: str) -> None:
        self.call = call
        super().__init__(f"{LIBRARY} has no {call}: the driver is too old, or the library is not NVIDIA's")


class Handle(NamedTuple):
    """A GPU as CUDA numbers it."""

    index: int
    device: int


def find_library(library: str | None = None, driver_root: str = "/", machine_default: bool = True) -> list[str]:
    """Give the names to try to load, best first."""
    if library:
        return [library]
    root = Path(driver_root)
    below = [str(root / directory / LIBRARY) for directory in LIBRARY_DIRS]
    if machine_default and root == Path("/"):
        return [LIBRARY, WSL_LIBRARY, *below]
    return below


class Cuda:
    """The few calls of the driver API that a probe needs, each of them checked."""

    def __init__(self, lib: Any, path: str = LIBRARY) -> None:
        self._lib = lib
        self.path = path

    @classmethod
    def load(cls, library: str | None = None, driver_root: str = "/") -> Cuda:
        """Load libcuda, and its PTX compiler beside it where the loader would not find that by itself."""
        candidates = find_library(library, driver_root)
        problems = []
        for candidate in candidates:
            if "/" in candidate and not os.path.exists(candidate):
                continue
            try:
                lib = ctypes.CDLL(candidate)
            except OSError as error:
                if candidate != LIBRARY:
                    problems.append(str(error))
                continue
            beside = Path(candidate).with_name(JIT_LIBRARY)
            if "/" in candidate and beside.exists():
                ctypes.CDLL(str(beside), mode=ctypes.RTLD_GLOBAL)
            return cls(lib, candidate)
        if problems:
            raise ProbeError(f"{LIBRARY} cannot be loaded: {'; '.join(problems)}")
        if library:
            raise ProbeError(f"{library} does not exist; 'library' is the path of the driver's {LIBRARY}")
        where = "by the loader or in the usual directories" if driver_root == "/" else f"below {driver_root}"
        raise ProbeError(
            f"{LIBRARY} was not found {where}; install the driver's compute libraries, or say where they are"
            " with 'driver_root' or 'library'"
        )

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function and raise what it complains of. A trailing version is tried first, then the plain name."""
        code = self._function(name)(*arguments)
        if code != SUCCESS:
            words = (self._words("cuGetErrorName", code), self._words("cuGetErrorString", code))
            raise CudaError(name.rsplit("_v", 1)[0], code, *words)

    def _function(self, name: str) -> Callable[..., int]:
        for symbol in dict.fromkeys((name, name.rsplit("_v", 1)[0])):
            try:
                function = getattr(self._lib, symbol)
            except AttributeError:
                continue
            function.restype = ctypes.c_int
            return function
        raise MissingCall(name.rsplit("_v", 1)[0])

    def _words(self, function: str, code: int) -> str | None:
        text = ctypes.c_char_p()
        try:
            found = self._function(function)(ctypes.c_int(code), ctypes.byref(text))
        except MissingCall:
            return None
        return text.value.decode(errors="replace") if found == SUCCESS and text.value else None

    def _int(self, name: str, *arguments: Any) -> int:
        value = ctypes.c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def init(self) -> None:
        self.call("cuInit", ctypes.c_uint(0))

    def driver_version(self) -> str:
        number = self._int("cuDriverGetVersion")
        return f"{number // 1000}.{number % 1000 // 10}"

    def handles(self) -> Iterator[Handle]:
        for index in range(self._int("cuDeviceGetCount")):
            yield Handle(index, self._int("cuDeviceGet", ctypes.c_int(index)))

    def attribute(self, device: int, number: int) -> int | None:
        """Read an attribute; one that this driver does not know is None."""
        try:
            return self._int("cuDeviceGetAttribute", ctypes.c_int(number), ctypes.c_int(device))
        except CudaError:
            return None

    def name(self, device: int) -> str:
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, ctypes.c_int(len(text)), ctypes.c_int(device))
        return text.value.decode(errors="replace")

    def uuid(self, device: int) -> str:
        """Give the UUID as nvidia-smi writes it. The second version of the call knows MIG devices."""
        raw = (ctypes.c_ubyte * 16)()
        prefix = "GPU"
        self.call("cuDeviceGetUuid_v2", ctypes.byref(raw), ctypes.c_int(device))
        text = bytes(raw).hex()
        if self._is_mig(device):
            prefix = "MIG"
        return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _is_mig(self, device: int) -> bool:
        return " MIG " in f"{self.name(device)} "

    def pci_bus_id(self, device: int) -> str | None:
        """Give the PCI address as the kernel writes it: lower case, at least four digits of domain."""
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


class Context:
    """The GPU's primary context, current for the time of a `with`. No flag of it is changed."""

    def __init__(self, cuda: Cuda, device: int) -> None:
        self._cuda = cuda
        self._device = ctypes.c_int(device)
        self._memory: list[ctypes.c_uint64] = []

    def __enter__(self) -> Context:
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
        """Take plain device memory, never managed memory: that can hang a GPU which has too little of it."""
        memory = ctypes.c_uint64()
        self._cuda.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
        self._memory.append(memory)
        return memory

    def put(self, memory: ctypes.c_uint64, data: bytes) -> None:
        self._cuda.call("cuMemcpyHtoD_v2", memory, data, ctypes.c_size_t(len(data)))

    def move(self, target: ctypes.c_uint64, source: ctypes.c_uint64, size: int) -> None:
        self._cuda.call("cuMemcpyDtoD_v2", target, source, ctypes.c_size_t(size))

    def get(self, memory: ctypes.c_uint64, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self._cuda.call("cuMemcpyDtoH_v2", data, memory, ctypes.c_size_t(size))
        return data.raw

    def launch(self, ptx: bytes, entry: bytes, count: int, *arguments: Any) -> None:
        """Compile a PTX text for this GPU and run one thread for each of `count` elements."""
        module = ctypes.c_void_p()
        function = ctypes.c_void_p()
        none = ctypes.c_void_p()
        self._cuda.call("cuModuleLoadDataEx", ctypes.byref(module), ptx, ctypes.c_uint(0), none, none)
        try:
            self._cuda.call("cuModuleGetFunction", ctypes.byref(function), module, entry)
            pointers = (ctypes.c_void_p * len(arguments))(
                *(ctypes.cast(ctypes.pointer(argument), ctypes.c_void_p) for argument in arguments)
            )
            one, block = ctypes.c_uint(1), ctypes.c_uint(256)
            grid = ctypes.c_uint((count + 255) // 256)
            shared = ctypes.c_uint(0)
            self._cuda.call("cuLaunchKernel", function, grid, one, one, block, one, one, shared, none, pointers, none)
            self._cuda.call("cuCtxSynchronize")
        finally:
            self._cuda.call("cuModuleUnload", module)


def numbers(seed: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}I", random.Random(seed).randbytes(4 * count))


def expected(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Compute on the CPU what the kernel has to give."""
    return [
        (((x * 1664525 + y) & 0xFFFFFFFF ^ i) + (x & 4095) * (y & 4095) + (i & 255)) & 0xFFFFFFFF
        for i, (x, y) in enumerate(zip(a, b))
    ]


def first_difference(want: Sequence[Any], have: Sequence[Any]) -> int | None:
    return next((i for i, (x, y) in enumerate(zip(want, have)) if x != y), None)


def round_trip(context: Context, size: int) -> None:
    """Send bytes to the GPU, let it copy them, and fetch the copy."""
    data = random.Random(size).randbytes(size)
    source, target = context.allocate(size), context.allocate(size)
    context.put(source, data)
    context.move(target, source, size)
    back = context.get(target, size)
    if back != data:
        at = first_difference(data, back)
        raise ProbeError(f"memory round trip of {size} bytes: byte {at} came back different; is the memory faulty?")


def compute(context: Context, count: int) -> None:
    """Run the kernel and compare with the CPU."""
    a, b = numbers(1, count), numbers(2, count)
    size = 4 * count
    memory_a, memory_b, memory_out = context.allocate(size), context.allocate(size), context.allocate(size)
    context.put(memory_a, struct.pack(f"<{count}I", *a))
    context.put(memory_b, struct.pack(f"<{count}I", *b))
    context.put(memory_out, bytes(size))
    context.launch(PTX, b"gpufleet_probe", count, memory_a, memory_b, memory_out, ctypes.c_uint(count))
    have = struct.unpack(f"<{count}I", context.get(memory_out, size))
    want = expected(a, b)
    at = first_difference(want, have)
    if at is not None:
        raise ProbeError(f"the kernel's result is wrong at element {at}: {have[at]} instead of {want[at]}")


def describe(cuda: Cuda, handle: Handle) -> dict[str, Any]:
    """Say of a GPU what deviceQuery says."""
    device = handle.device
    attributes: dict[str, Any] = {}
    for name, number in ATTRIBUTES.items():
        value = cuda.attribute(device, number)
        if value is not None and name in SWITCHES:
            attributes[name] = bool(value)
        elif name == "compute_mode":
            attributes[name] = None if value is None else COMPUTE_MODES.get(value, str(value))
        else:
            attributes[name] = value
    major = cuda.attribute(device, COMPUTE_CAPABILITY_MAJOR)
    minor = cuda.attribute(device, COMPUTE_CAPABILITY_MINOR)
    return {
        "index": handle.index,
        "uuid": cuda.uuid(device),
        "name": cuda.name(device),
        "pci_bus_id": cuda.pci_bus_id(device),
        "compute_capability": None if major is None or minor is None else f"{major}.{minor}",
        "memory_total_mib": cuda.memory_total(device) // MIB,
        "attributes": attributes,
    }


def examine(cuda: Cuda, handle: Handle, memory_mib: int) -> dict[str, Any]:
    """Describe a GPU and let it work. A failure is part of the answer."""
    gpu = blank(handle.index)
    step = None
    try:
        gpu.update(describe(cuda, handle))
        with Context(cuda, handle.device) as context:
            for step, work, argument in (
                ("memory_round_trip", round_trip, memory_mib * MIB),
                ("kernel", compute, ELEMENTS),
            ):
                started = time.monotonic()
                gpu[step] = False
                work(context, argument)
                gpu[step] = True
                gpu[f"{step}_ms"] = round((time.monotonic() - started) * 1000, 1)
        gpu.update(passed=True, result="PASS")
    except ProbeError as error:
        gpu["result"] = str(error)
        gpu["error_code"] = getattr(error, "code", None)
    return gpu


def blank(index: int | None = None) -> dict[str, Any]:
    """Give a GPU's result as it is before anything is known."""
    return {
        "index": index,
        "uuid": None,
        "name": None,
        "pci_bus_id": None,
        "compute_capability": None,
        "memory_total_mib": None,
        "attributes": {},
        "memory_round_trip": None,
        "memory_round_trip_ms": None,
        "kernel": None,
        "kernel_ms": None,
        "passed": False,
        "result": "not probed",
        "error_code": None,
    }


class Request(NamedTuple):
    """What a child is asked to do."""

    library: str | None = None
    driver_root: str = "/"
    memory_mib: int = 8
    visible: str | None = None
    skip: frozenset[int] = frozenset()
    only: frozenset[str] | None = None


def wanted(handle: Handle, uuid: str | None, only: frozenset[str] | None) -> bool:
    """Say whether a GPU was asked for: by index, UUID or the beginning of one."""
    if only is None:
        return True
    return str(handle.index) in only or any(uuid and len(w) > 4 and uuid.lower().startswith(w.lower()) for w in only)


def child(request: Request, say: Callable[[dict[str, Any]], None]) -> None:
    """Do the work. Each step is said before it is begun, so that a hang or a crash can be placed."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if request.visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = request.visible
    # The order of nvidia-smi; and leave no compiled kernel behind in the user's home.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    try:
        say({"doing": "loading " + LIBRARY})
        cuda = Cuda.load(request.library, request.driver_root)
        say({"doing": "cuInit", "library": cuda.path})
        cuda.init()
        say({"doing": "counting the GPUs", "cuda_version": cuda.driver_version()})
        handles = list(cuda.handles())
        say({"device_count": len(handles)})
    except ProbeError as error:
        say({"error": str(error), "error_code": getattr(error, "code", None)})
        return
    for handle in handles:
        if handle.index in request.skip:
            continue
        say({"doing": f"GPU {handle.index}", "begin": handle.index})
        try:
            uuid: str | None = cuda.uuid(handle.device)
        except ProbeError:
            uuid = None
        say({"seen": handle.index, "uuid": uuid})
        if wanted(handle, uuid, request.only):
            say({"gpu": examine(cuda, handle, request.memory_mib)})
    say({"end": True})


class Outcome(NamedTuple):
    """What a child said and how it ended."""

    messages: list[dict[str, Any]]
    trouble: str | None


def run_child(request: Request, timeout: float, work: Callable[..., None] = child) -> Outcome:
    """Run the work in a forked process and collect what it says until it ends, dies or is late.

    The parent never loads the library, so that forking is safe and a second try starts from a clean process.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read_end)
            devnull = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(devnull, descriptor)
            work(request, lambda message: _say(write_end, message))
            status = 0
        except BaseException as error:
            _say(write_end, {"error": f"{type(error).__name__}: {error}", "error_code": None})
        finally:
            os._exit(status)
    os.close(write_end)
    try:
        text, late = _collect(read_end, time.monotonic() + timeout)
    finally:
        os.close(read_end)
    trouble = None
    if late:
        os.kill(pid, signal.SIGKILL)
        trouble = f"no answer within {timeout:g} s"
    status = _reap(pid, 5.0)
    if not late and status is not None and os.WIFSIGNALED(status):
        trouble = f"the driver's library crashed ({signal.Signals(os.WTERMSIG(status)).name})"
    messages = [json.loads(line) for line in text.decode().splitlines() if line.endswith("}")]
    if trouble is None and not any("end" in message or "error" in message for message in messages):
        trouble = "the driver's library ended the process without a word"
    return Outcome(messages, trouble)


def _say(descriptor: int, message: dict[str, Any]) -> None:
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(descriptor, data) :]


def _collect(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    chunks = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return b"".join(chunks), True
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return b"".join(chunks), False
        chunks.append(chunk)


def _reap(pid: int, patience: float) -> int | None:
    """Wait for the child, but not for one that the kernel holds in a call that never ends."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    return None


def _last(messages: Sequence[dict[str, Any]], key: str) -> Any:
    return next((message[key] for message in reversed(messages) if key in message), None)


def probe(
    gpus: Sequence[str] | None = None,
    *,
    library: str | None = None,
    driver_root: str = "/",
    memory_mib: int = 8,
    timeout: float = 60.0,
    run: Callable[[Request, float], Outcome] = run_child,
) -> dict[str, Any]:
    """Probe the GPUs that CUDA shows, or those of them that are named; the answer is complete whatever happens.

    A GPU that hangs or takes the process down is reported, and the others are probed by a new process.
    """
    only = None if gpus is None else frozenset(str(g) for g in gpus if not _is_mig_uuid(g))
    request = Request(library, driver_root, memory_mib, only=only)
    result: dict[str, Any] = {
        "library": None,
        "cuda_version": None,
        "device_count": None,
        "gpus": [],
        "passed": False,
        "error": None,
        "error_code": None,
    }
    seen: dict[str, str | None] = {}
    if only is None or only or not gpus:
        _probe_into(result, seen, request, timeout, run)
    for uuid in (g for g in gpus or () if _is_mig_uuid(g)):
        # CUDA shows a process one MIG device at most, the one that is named to it.
        part: dict[str, Any] = {"gpus": [], "error": None}
        _probe_into(part, {}, request._replace(visible=uuid, only=None), timeout, run)
        result["library"] = result["library"] or part.get("library")
        result["cuda_version"] = result["cuda_version"] or part.get("cuda_version")
        if part["gpus"]:
            result["gpus"] += part["gpus"]
        else:
            words = part["error"] or "CUDA shows no such device"
            result["gpus"].append({**blank(), "uuid": uuid, "result": words, "error_code": part.get("error_code")})
    if only and result["error"] is None:
        result["gpus"] += _missing(only, seen)
    probed = result["gpus"]
    result["passed"] = result["error"] is None and bool(probed) and all(gpu["passed"] for gpu in probed)
    if result["error"] is None and not probed:
        result["error"] = "CUDA shows no GPU" if not gpus else "none of the GPUs asked for was probed"
    return result


def _is_mig_uuid(text: str) -> bool:
    return str(text).upper().startswith("MIG-")


def _missing(only: frozenset[str], seen: dict[str, str | None]) -> list[dict[str, Any]]:
    """Report each GPU that was asked for and that CUDA does not show, with what it does show."""
    there = ", ".join(f"{index} ({uuid or 'no UUID'})" for index, uuid in seen.items()) or "none"
    missing = []
    for name in sorted(only):
        if not any(wanted(Handle(int(i), 0), uuid, frozenset([name])) for i, uuid in seen.items()):
            by_index = name.isdigit()
            entry = blank(int(name) if by_index else None)
            entry["uuid"] = None if by_index else name
            entry["result"] = f"CUDA shows no GPU '{name}'; it shows {there}"
            missing.append(entry)
    return missing


def _probe_into(
    result: dict[str, Any],
    seen: dict[str, str | None],
    request: Request,
    timeout: float,
    run: Callable[[Request, float], Outcome],
) -> None:
    skip: set[int] = set()
    while True:
        outcome = run(request._replace(skip=frozenset(skip)), timeout)
        messages = outcome.messages
        for key in ("library", "cuda_version", "device_count"):
            value = _last(messages, key)
            if value is not None:
                result[key] = value
        seen.update({str(m["seen"]): m["uuid"] for m in messages if "seen" in m})
        done = [message["gpu"] for message in messages if "gpu" in message]
        result["gpus"] = sorted(result["gpus"] + done, key=lambda gpu: gpu["index"])
        error = next((message for message in messages if "error" in message), None)
        begun = _last(messages, "begin")
        if outcome.trouble is None and error is None:
            return
        words = error["error"] if error else f"{_last(messages, 'doing') or 'starting'}: {outcome.trouble}"
        if begun is None or begun in skip:
            result["error"] = words
            result["error_code"] = error.get("error_code") if error else None
            return
        # This GPU took the process with it. Go on with the others.
        skip |= {gpu["index"] for gpu in done} | {begun}
        if begun not in {gpu["index"] for gpu in done}:
            failed = {**blank(begun), "uuid": seen.get(str(begun)), "result": words}
            result["gpus"] = sorted([*result["gpus"], failed], key=lambda gpu: gpu["index"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Probe the GPUs through libcuda and print the result as JSON.")
    parser.add_argument("--gpu", action="append", metavar="INDEX|UUID", help="only this GPU; may be repeated")
    parser.add_argument("--library", help="path of libcuda.so.1")
    parser.add_argument("--driver-root", default="/", help="root directory or prefix of the driver")
    parser.add_argument("--memory-mib", type=int, default=8, help="size of the memory round trip")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for the driver")
    options = parser.parse_args(arguments)
    result = probe(
        options.gpu,
        library=options.library,
        driver_root=options.driver_root,
        memory_mib=options.memory_mib,
        timeout=options.timeout,
    )
    json.dump(result, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
