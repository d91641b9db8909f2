# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import elf
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree, gpu_trees


@pytest.mark.parametrize(
    ("machine", "bits"), [("x86_64", 64), ("aarch64", 64), ("ppc64le", 64), ("i386", 32), ("arm", 32)]
)
def test_the_headers_of_a_library_are_read(tmp_path, machine, bits):
    path = driver_tree.write_elf(
        tmp_path / "lib.so", machine, "libcuda.so.1", ["libc.so.6", "libnvidia-glcore.so.580.95.05"], abi=(2, 3, 99)
    )
    assert elf.read(str(path)) == elf.Elf(
        bits, machine, True, "libcuda.so.1", ("libc.so.6", "libnvidia-glcore.so.580.95.05"), (2, 3, 99)
    )


def test_a_program_has_no_soname_and_no_abi(tmp_path):
    header = elf.read(str(driver_tree.program(tmp_path / "nvidia-smi")))
    assert (header.shared, header.soname, header.kernel_abi) == (False, None, None)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated"),
        (b"#!/bin/sh\nexit 0\n", "not an ELF file"),
        (b"\x7fELF" + bytes(60), "unknown ELF class"),
        (driver_tree.elf_bytes(soname="liba.so.1")[:70], "truncated"),
    ],
)
def test_the_error_for_an_invalid_file_has_its_path(tmp_path, data, message):
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(data)
    with pytest.raises(elf.ElfError, match=f"{path}: .*{message}"):
        elf.read(str(path))


WHOLE = driver_tree.elf_bytes(soname="libcuda.so.1", needed=["libc.so.6"], abi=(2, 3, 99))


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=16), st.booleans())
def test_damaged_files_raise_only_elf_errors(position, junk, cut):
    data = WHOLE[:position] + junk + (b"" if cut else WHOLE[position + len(junk) :])
    try:
        elf.parse(io.BytesIO(data))
    except elf.ElfError:
        return


MODULE = gpu_trees.kernel_module("580.95.05")


def test_the_content_of_a_section(tmp_path):
    path = tmp_path / "nvidia.ko"
    path.write_bytes(MODULE)
    assert b"version=580.95.05" in elf.section(str(path), ".modinfo").split(b"\0")
    assert elf.section(str(path), ".missing") == b""


def test_a_stripped_library_has_no_sections(tmp_path):
    path = driver_tree.write_elf(tmp_path / "lib.so", "i386", "libcuda.so.1", [])
    assert elf.section(str(path), ".modinfo") == b""


@given(st.integers(0, len(MODULE) - 1), st.binary(min_size=1, max_size=16), st.booleans())
def test_damaged_sections_raise_only_elf_errors(tmp_path_factory, position, junk, cut):
    path = tmp_path_factory.mktemp("damaged") / "nvidia.ko"
    path.write_bytes(MODULE[:position] + junk + (b"" if cut else MODULE[position + len(junk) :]))
    try:
        elf.section(str(path), ".modinfo")
    except elf.ElfError:
        return
