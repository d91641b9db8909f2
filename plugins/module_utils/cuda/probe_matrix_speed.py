# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A matrix product on one GPU, to compare GPUs of the same model. Its speed says nothing about libraries.

Each block of 256 threads computes a tile of 64 x 64 elements, and each thread 4 x 4 of them, from tiles of both
matrices in shared memory. This file imports the standard library only, like the CUDA probe.
"""

from __future__ import annotations

import array
import ctypes
import random
import statistics
import time
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.libcuda import CudaContext, ProbeError

ENTRY = b"gpufleet_matrix"
NOTE = "not comparable with libraries"
TILE, DEPTH, THREADS, WARM_UP = 64, 16, 256, 2
SIZE_MIN, SIZE_MAX = TILE, 16384
REPETITIONS_MAX = 1000
# A prime number of values, so that rows of the matrices differ.
_PERIOD = 8191
_SAMPLES = 256

_HEAD = """\
.version 6.0
.target sm_50
.address_size 64

.visible .entry gpufleet_matrix(
    .param .u64 param_a,
    .param .u64 param_b,
    .param .u64 param_out,
    .param .u32 param_n)
{
    .shared .align 16 .f32 tile_a[1024];
    .shared .align 16 .f32 tile_b[1024];
    .reg .pred %p<2>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<16>;
    .reg .f32 %a<4>;
    .reg .f32 %b<4>;
    .reg .f32 %l<8>;
    .reg .f32 %c<16>;

    ld.param.u64 %rd1, [param_a];
    ld.param.u64 %rd2, [param_b];
    ld.param.u64 %rd3, [param_out];
    ld.param.u32 %r1, [param_n];
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    cvta.to.global.u64 %rd3, %rd3;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    // First row and column of the block's tile.
    shr.u32 %r4, %r1, 6;
    div.u32 %r5, %r3, %r4;
    rem.u32 %r6, %r3, %r4;
    shl.b32 %r5, %r5, 6;
    shl.b32 %r6, %r6, 6;
    // What this thread copies: 4 elements of A in row %r7 from column %r8, 4 elements of B in row %r9 from column %r10.
    shr.u32 %r7, %r2, 2;
    and.b32 %r8, %r2, 3;
    shl.b32 %r8, %r8, 2;
    shr.u32 %r9, %r2, 4;
    and.b32 %r10, %r2, 15;
    shl.b32 %r10, %r10, 2;
    add.u32 %r11, %r5, %r7;
    mad.lo.u32 %r11, %r11, %r1, %r8;
    mad.wide.u32 %rd4, %r11, 4, %rd1;
    add.u32 %r12, %r6, %r10;
    mad.lo.u32 %r12, %r9, %r1, %r12;
    mad.wide.u32 %rd5, %r12, 4, %rd2;
    mul.wide.u32 %rd6, %r1, 64;
    mov.u32 %r13, tile_a;
    mov.u32 %r14, tile_b;
    // The tile of A is transposed, so that each thread reads its 4 rows at once.
    shl.b32 %r15, %r8, 6;
    add.u32 %r15, %r15, %r7;
    shl.b32 %r15, %r15, 2;
    add.u32 %r15, %r13, %r15;
    shl.b32 %r16, %r2, 4;
    add.u32 %r16, %r14, %r16;
    // Where this thread reads: rows from 4 * (thread / 16) of A, columns from 4 * (thread % 16) of B.
    shl.b32 %r17, %r9, 4;
    add.u32 %r17, %r13, %r17;
    shl.b32 %r18, %r10, 2;
    add.u32 %r18, %r14, %r18;
    mov.u32 %r19, 0;
"""


def ptx() -> bytes:
    """Return the text of the kernel. The driver compiles it for the GPU."""
    lines = [_HEAD, *(f"    mov.f32 %c{number}, 0f00000000;" for number in range(16)), "LOOP:"]
    lines += [
        "    ld.global.v4.f32 {%l0, %l1, %l2, %l3}, [%rd4];",
        "    ld.global.v4.f32 {%l4, %l5, %l6, %l7}, [%rd5];",
    ]
    lines += [f"    st.shared.f32 [%r15+{number * TILE * 4}], %l{number};" for number in range(4)]
    lines += ["    st.shared.v4.f32 [%r16], {%l4, %l5, %l6, %l7};", "    bar.sync 0;"]
    for depth in range(DEPTH):
        at = depth * TILE * 4
        lines += [
            f"    ld.shared.v4.f32 {{%a0, %a1, %a2, %a3}}, [%r17+{at}];",
            f"    ld.shared.v4.f32 {{%b0, %b1, %b2, %b3}}, [%r18+{at}];",
        ]
        for row in range(4):
            for column in range(4):
                number = row * 4 + column
                lines.append(f"    fma.rn.f32 %c{number}, %a{row}, %b{column}, %c{number};")
    lines += [
        "    bar.sync 0;",
        f"    add.u64 %rd4, %rd4, {DEPTH * 4};",
        "    add.u64 %rd5, %rd5, %rd6;",
        f"    add.u32 %r19, %r19, {DEPTH};",
        "    setp.lt.u32 %p1, %r19, %r1;",
        "    @%p1 bra LOOP;",
        "    shl.b32 %r20, %r9, 2;",
        "    add.u32 %r20, %r5, %r20;",
        "    add.u32 %r21, %r6, %r10;",
        "    mad.lo.u32 %r22, %r20, %r1, %r21;",
        "    mad.wide.u32 %rd7, %r22, 4, %rd3;",
        "    mul.wide.u32 %rd8, %r1, 4;",
    ]
    for row in range(4):
        values = ", ".join(f"%c{row * 4 + column}" for column in range(4))
        lines += [f"    st.global.v4.f32 [%rd7], {{{values}}};", "    add.u64 %rd7, %rd7, %rd8;"]
    return ("\n".join([*lines, "    ret;", "}"]) + "\n\0").encode()


def values(seed: int, size: int) -> array.array:
    """Return a matrix of small whole numbers, of which every product and every sum is exact in single precision."""
    generator = random.Random(seed)
    period = array.array("f", [generator.randrange(16) for _number in range(_PERIOD)])
    return (period * (size * size // _PERIOD + 1))[: size * size]


def first_wrong(a: array.array, b: array.array, out: array.array, size: int) -> str | None:
    """Compare some elements with the CPU's. Return what is wrong with the first wrong one, or None."""
    generator = random.Random(size)
    places = [(generator.randrange(size), generator.randrange(size)) for _number in range(_SAMPLES)]
    for row, column in [(0, 0), (size - 1, size - 1), *places]:
        wanted = sum(x * y for x, y in zip(a[row * size : (row + 1) * size], b[column::size]))
        actual = out[row * size + column]
        if actual != wanted:
            return f"row {row}, column {column} is {actual:g} instead of {wanted:g}"
    return None


def measure(context: CudaContext, size: int, repetitions: int) -> dict[str, Any]:
    """Multiply two matrices of `size` rows and columns, and return the duration of each repetition in seconds."""
    a, b = values(1, size), values(2, size)
    length = 4 * size * size
    memory_a, memory_b, memory_out = (context.allocate(length) for _matrix in range(3))
    context.copy_to_gpu(memory_a, a.tobytes())
    context.copy_to_gpu(memory_b, b.tobytes())
    context.copy_to_gpu(memory_out, bytes(length))
    seconds = []
    with context.function(ptx(), ENTRY) as function:
        for _repetition in range(WARM_UP + repetitions):
            started = time.perf_counter()
            context.run(function, (size // TILE) ** 2, THREADS, memory_a, memory_b, memory_out, ctypes.c_uint(size))
            seconds.append(time.perf_counter() - started)
    out = array.array("f")
    out.frombytes(context.copy_from_gpu(memory_out, length))
    wrong = first_wrong(a, b, out, size)
    if wrong:
        raise ProbeError(f"the matrix product of size {size} is wrong: {wrong}. The GPU may be faulty.")
    measured = seconds[WARM_UP:]
    return {
        "size": size,
        "dtype": "float32",
        "seconds": [round(value, 7) for value in measured],
        # A slow GPU with a small matrix must not become 0.
        "tflops": float(f"{2 * size**3 / statistics.median(measured) / 1e12:.4g}"),
        "note": NOTE,
    }
