# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks that one GPU must pass: read its attributes, copy memory, and run a kernel.

The kernel is PTX text that the driver compiles for the GPU.
"""

from __future__ import annotations

import ctypes
import random
import struct
import time
from collections.abc import Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.libcuda import (
    Cuda,
    CudaContext,
    CudaDevice,
    ProbeError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.probe_matrix_speed import measure

ELEMENTS = 1 << 16
MIB = 1 << 20

# Maxwell is the oldest architecture that supported drivers compile for. The kernel uses integer and floating-point
# units. Every value is exact in single precision, so the CPU computes the same bits.
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

# CUdevice_attribute values, in the order of deviceQuery.
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
BOOLEAN_ATTRIBUTES = frozenset(
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


def random_numbers(seed: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}I", random.Random(seed).randbytes(4 * count))


def expected(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Compute the kernel's result on the CPU."""
    return [
        (((x * 1664525 + y) & 0xFFFFFFFF ^ i) + (x & 4095) * (y & 4095) + (i & 255)) & 0xFFFFFFFF
        for i, (x, y) in enumerate(zip(a, b))
    ]


def first_difference(wanted: Sequence[Any], actual: Sequence[Any]) -> int | None:
    return next((i for i, (x, y) in enumerate(zip(wanted, actual)) if x != y), None)


def pattern(size: int) -> bytes:
    """Return bytes that differ between addresses, also between addresses that are a power of two apart.

    Random.randbytes() takes seconds for large sizes and fails from 256 MiB, so a random block is repeated.
    """
    block = random.Random(size).randbytes(min(size, MIB + 1))
    return (block * (size // len(block) + 1))[:size]


def check_memory(context: CudaContext, size: int) -> None:
    """Copy bytes to the GPU, copy them on the GPU, copy them back and compare."""
    data = pattern(size)
    source, target = context.allocate(size), context.allocate(size)
    context.copy_to_gpu(source, data)
    context.copy_on_gpu(target, source, size)
    returned = context.copy_from_gpu(target, size)
    if returned != data:
        # Comparing slices first finds the byte of a large copy in time.
        start = next(
            start for start in range(0, size, MIB) if data[start : start + MIB] != returned[start : start + MIB]
        )
        position = start + first_difference(data[start : start + MIB], returned[start : start + MIB])
        raise ProbeError(f"memory round trip of {size} bytes: byte {position} changed. The memory may be faulty.")


def check_kernel(context: CudaContext, count: int) -> None:
    """Run the kernel and compare its result with the CPU's."""
    a, b = random_numbers(1, count), random_numbers(2, count)
    size = 4 * count
    memory_a, memory_b, memory_out = context.allocate(size), context.allocate(size), context.allocate(size)
    context.copy_to_gpu(memory_a, struct.pack(f"<{count}I", *a))
    context.copy_to_gpu(memory_b, struct.pack(f"<{count}I", *b))
    context.copy_to_gpu(memory_out, bytes(size))
    context.launch(PTX, b"gpufleet_probe", count, memory_a, memory_b, memory_out, ctypes.c_uint(count))
    actual = struct.unpack(f"<{count}I", context.copy_from_gpu(memory_out, size))
    wanted = expected(a, b)
    position = first_difference(wanted, actual)
    if position is not None:
        raise ProbeError(
            f"the kernel's result is wrong at element {position}: {actual[position]} instead of {wanted[position]}"
        )


def describe(cuda: Cuda, device: CudaDevice) -> dict[str, Any]:
    """Return what deviceQuery prints about a GPU."""
    attributes: dict[str, Any] = {}
    for name, attribute in ATTRIBUTES.items():
        value = cuda.attribute(device.number, attribute)
        if value is not None and name in BOOLEAN_ATTRIBUTES:
            attributes[name] = bool(value)
        elif name == "compute_mode":
            attributes[name] = None if value is None else COMPUTE_MODES.get(value, str(value))
        else:
            attributes[name] = value
    major = cuda.attribute(device.number, COMPUTE_CAPABILITY_MAJOR)
    minor = cuda.attribute(device.number, COMPUTE_CAPABILITY_MINOR)
    return {
        "index": device.index,
        "uuid": cuda.uuid(device.number),
        "name": cuda.name(device.number),
        "pci_bus_id": cuda.pci_bus_id(device.number),
        "compute_capability": None if major is None or minor is None else f"{major}.{minor}",
        "memory_total_mib": cuda.memory_total(device.number) // MIB,
        "attributes": attributes,
    }


def check(
    cuda: Cuda, device: CudaDevice, memory_mib: int, matrix_size: int | None = None, matrix_repetitions: int = 1
) -> dict[str, Any]:
    """Describe and check a GPU, and measure a matrix product if `matrix_size` is set. A failure is in the result."""
    gpu = empty_result(device.index)
    try:
        gpu.update(describe(cuda, device))
        with CudaContext(cuda, device.number) as context:
            for step, run, size in (
                ("memory_round_trip", check_memory, memory_mib * MIB),
                ("kernel", check_kernel, ELEMENTS),
            ):
                started = time.monotonic()
                gpu[step] = False
                run(context, size)
                gpu[step] = True
                gpu[f"{step}_ms"] = round((time.monotonic() - started) * 1000, 1)
            if matrix_size is not None:
                gpu["matrix"] = measure(context, matrix_size, matrix_repetitions)
        gpu.update(passed=True, result="PASS")
    except ProbeError as error:
        gpu["result"] = str(error)
        gpu["error_code"] = getattr(error, "code", None)
    return gpu


def empty_result(index: int | None = None) -> dict[str, Any]:
    """Return the result of a GPU that was not probed."""
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
        "matrix": None,
        "passed": False,
        "result": "not probed",
        "error_code": None,
    }
