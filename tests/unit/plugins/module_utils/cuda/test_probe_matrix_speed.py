# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix product of the CUDA probe: its kernel, interpreted here, and the comparison with the CPU."""

from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import probe_matrix_speed

A, B, OUT = 1 << 20, 2 << 20, 3 << 20  # the addresses of the matrices
SHARED = {"tile_a": 0, "tile_b": 4096}
OPERATIONS = {
    "add": lambda x, y: x + y,
    "and": lambda x, y: x & y,
    "div": lambda x, y: x // y,
    "rem": lambda x, y: x % y,
    "shl": lambda x, y: x << y,
    "shr": lambda x, y: x >> y,
    "mul": lambda x, y: x * y,
    "mad": lambda x, y, z: x * y + z,
    "fma": lambda x, y, z: x * y + z,
}


class Block:
    """One block of threads, which run each instruction of the kernel together."""

    def __init__(self, size, block, memory):
        self.memory, self.shared = memory, {}
        given = {"[param_a]": A, "[param_b]": B, "[param_out]": OUT, "[param_n]": size}
        self.threads = [{**given, **SHARED, "%tid.x": t, "%ctaid.x": block} for t in range(probe_matrix_speed.THREADS)]

    def value(self, thread, word):
        if word in thread:
            return thread[word]
        return 0.0 if word == "0f00000000" else int(word)

    def address(self, thread, word):
        name, _plus, offset = word.strip("[]").partition("+")
        return thread[name] + int(offset or 0)

    def step(self, name, words):
        for thread in self.threads:
            if name.startswith(("ld.param", "mov", "cvta")):
                thread[words[0]] = self.value(thread, words[1])
            elif name.startswith(("ld.global", "ld.shared")):
                memory = self.memory if "global" in name else self.shared
                at = self.address(thread, words[-1])
                for number, word in enumerate(words[:-1]):
                    thread[word] = memory[at + 4 * number]
            elif name.startswith("st."):
                memory = self.memory if "global" in name else self.shared
                at = self.address(thread, words[0])
                assert at % (16 if ".v4" in name else 4) == 0, "a GPU refuses an address that is not aligned"
                memory.update({at + 4 * number: thread[word] for number, word in enumerate(words[1:])})
            elif name.startswith("setp.lt"):
                thread[words[0]] = self.value(thread, words[1]) < self.value(thread, words[2])
            else:
                operation = OPERATIONS[name.partition(".")[0]]
                thread[words[0]] = operation(*(self.value(thread, word) for word in words[1:]))

    def run(self, text):
        body = [line.strip() for line in text.partition("{\n")[2].splitlines()]
        lines = [line for line in body if line and not line.startswith(("//", ".", "}", "bar."))]
        position = 0
        while lines[position] != "ret;":
            line = lines[position]
            position += 1
            if line.startswith("@%p1"):
                if self.threads[0]["%p1"]:
                    position = lines.index("LOOP:")
            elif line != "LOOP:":
                name, _space, rest = line.rstrip(";").partition(" ")
                self.step(name, re.findall(r"[^\s,{}]+", rest))


@pytest.mark.parametrize("block", [0, 2])
def test_the_kernel_multiplies_a_tile(block):
    size = 128
    a, b = probe_matrix_speed.values(1, size), probe_matrix_speed.values(2, size)
    memory = {A + 4 * number: value for number, value in enumerate(a)}
    memory.update({B + 4 * number: value for number, value in enumerate(b)})
    Block(size, block, memory).run(probe_matrix_speed.ptx().decode().rstrip("\0"))
    written = {(at - OUT) // 4: value for at, value in memory.items() if at >= OUT}
    rows, columns = range(block // 2 * 64, block // 2 * 64 + 64), range(block % 2 * 64, block % 2 * 64 + 64)
    assert set(written) == {row * size + column for row in rows for column in columns}
    for row in (rows[0], rows[37], rows[63]):
        for column in columns:
            wanted = sum(x * y for x, y in zip(a[row * size : (row + 1) * size], b[column::size]))
            assert written[row * size + column] == wanted, (row, column)


def test_every_sum_of_the_largest_matrix_is_exact_in_single_precision():
    assert probe_matrix_speed.SIZE_MAX * 15 * 15 < 1 << 24


def test_a_wrong_element_is_named():
    a, b = probe_matrix_speed.values(1, 64), probe_matrix_speed.values(2, 64)
    right = [sum(a[row * 64 + k] * b[k * 64 + column] for k in range(64)) for row in range(64) for column in range(64)]
    assert probe_matrix_speed.first_wrong(a, b, right, 64) is None
    wanted = right[-1]
    right[-1] += 1
    assert (
        probe_matrix_speed.first_wrong(a, b, right, 64) == f"row 63, column 63 is {wanted + 1:g} instead of {wanted:g}"
    )
