# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import elf
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree


@pytest.mark.parametrize(
    ("machine", "bits"), [("x86_64", 64), ("aarch64", 64), ("ppc64le", 64), ("i386", 32), ("arm", 32)]
)
def test_reads_what_a_library_says(tmp_path, machine, bits):
    path = driver_tree.write_elf(
        tmp_path / "lib.so", machine, "libcuda.so.1", ["libc.so.6", "libnvidia-glcore.so.580.95.05"], abi=(2, 3, 99)
    )
    assert elf.read(str(path)) == elf.Elf(
        bits, machine, True, "libcuda.so.1", ("libc.so.6", "libnvidia-glcore.so.580.95.05"), (2, 3, 99)
    )


def test_a_program_has_neither_name_nor_abi(tmp_path):
    header = elf.read(str(driver_tree.program(tmp_path / "nvidia-smi")))
    assert (header.shared, header.soname, header.kernel_abi) == (False, None, None)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut short"),
        (b"#!/bin/sh\nexit 0\n", "not an ELF file"),
        (b"\x7fELF" + bytes(60), "not an ELF file of a known class"),
        (driver_tree.elf_bytes(soname="liba.so.1")[:70], "cut short"),
    ],
)
def test_a_file_that_is_no_library_is_said_with_its_path(tmp_path, data, words):
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(data)
    with pytest.raises(elf.ElfError, match=f"{path}: .*{words}"):
        elf.read(str(path))


WHOLE = driver_tree.elf_bytes(soname="libcuda.so.1", needed=["libc.so.6"], abi=(2, 3, 99))


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=16), st.booleans())
def test_no_damage_does_more_than_raise_our_error(position, junk, cut):
    data = WHOLE[:position] + junk + (b"" if cut else WHOLE[position + len(junk) :])
    try:
        elf.parse(io.BytesIO(data))
    except elf.ElfError:
        return
