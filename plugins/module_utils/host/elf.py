# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ELF headers of a shared library: class, machine, SONAME, needed libraries and kernel ABI.

Like the dynamic loader, this module reads program headers only. Stripped libraries may have no section headers.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, NamedTuple

MACHINES = {3: "i386", 8: "mips", 20: "ppc", 21: "ppc64le", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}

PT_LOAD, PT_DYNAMIC, PT_NOTE = 1, 2, 4
DT_NULL, DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME = 0, 1, 5, 10, 14
NT_GNU_ABI_TAG = 1
ET_DYN = 3
# Limits for damaged files. Real libraries have much smaller tables.
MAX_TABLE = 16 * 1024 * 1024
MAX_HEADERS = 1024


class ElfError(Exception):
    """The file is not an ELF file, or it is damaged."""


class Elf(NamedTuple):
    """One ELF file."""

    bits: int
    machine: str
    shared: bool
    soname: str | None
    needed: tuple[str, ...]
    kernel_abi: tuple[int, int, int] | None


def read(path: str) -> Elf:
    """Read the headers of the ELF file at `path`."""
    try:
        with open(path, "rb") as handle:
            return parse(handle)
    except ElfError as error:
        raise ElfError(f"{path}: {error}") from error


def parse(handle: BinaryIO) -> Elf:
    """Read the headers of an open ELF file."""
    try:
        return _parse(handle)
    except (struct.error, OverflowError, ValueError) as error:
        raise ElfError("the ELF headers are invalid") from error


def _parse(handle: BinaryIO) -> Elf:
    ident = _at(handle, 0, 16)
    if ident[:4] != b"\x7fELF":
        raise ElfError("not an ELF file")
    if ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise ElfError("unknown ELF class or byte order")
    wide, order = ident[4] == 2, "<" if ident[5] == 1 else ">"
    kind, machine = struct.unpack(order + "HH", _at(handle, 16, 4))
    if wide:
        (offset,) = struct.unpack(order + "Q", _at(handle, 32, 8))
        size, count = struct.unpack(order + "HH", _at(handle, 54, 4))
    else:
        (offset,) = struct.unpack(order + "I", _at(handle, 28, 4))
        size, count = struct.unpack(order + "HH", _at(handle, 42, 4))
    if count > MAX_HEADERS:
        raise ElfError(f"the file has too many program headers ({count})")
    headers = _program_headers(_at(handle, offset, size * count), size, count, wide, order)
    soname, needed = _dynamic(handle, headers, wide, order)
    return Elf(
        bits=64 if wide else 32,
        machine=MACHINES.get(machine, str(machine)),
        shared=kind == ET_DYN,
        soname=soname,
        needed=needed,
        kernel_abi=_kernel_abi(handle, headers, order),
    )


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def _at(handle: BinaryIO, offset: int, size: int) -> bytes:
    if size > MAX_TABLE:
        raise ElfError(f"an ELF table is too large ({size} bytes)")
    handle.seek(offset)
    data = handle.read(size)
    if len(data) != size:
        raise ElfError("the ELF headers are truncated")
    return data


def _program_headers(table: bytes, size: int, count: int, wide: bool, order: str) -> list[_Segment]:
    segments = []
    for index in range(count):
        start = index * size
        if wide:
            kind, _flags, offset, address, _physical, length = struct.unpack_from(order + "IIQQQQ", table, start)
        else:
            kind, offset, address, _physical, length = struct.unpack_from(order + "IIIII", table, start)
        segments.append(_Segment(kind, offset, address, length))
    return segments


def _dynamic(handle: BinaryIO, segments: list[_Segment], wide: bool, order: str) -> tuple[str | None, tuple[str, ...]]:
    dynamic = next((segment for segment in segments if segment.kind == PT_DYNAMIC), None)
    if dynamic is None:
        return None, ()
    entry = struct.Struct(order + ("qQ" if wide else "iI"))
    data = _at(handle, dynamic.offset, dynamic.size - dynamic.size % entry.size)
    needed, soname, strings_address, strings_size = [], None, None, 0
    for tag, value in entry.iter_unpack(data):
        if tag == DT_NULL:
            break
        if tag == DT_NEEDED:
            needed.append(value)
        elif tag == DT_SONAME:
            soname = value
        elif tag == DT_STRTAB:
            strings_address = value
        elif tag == DT_STRSZ:
            strings_size = value
    if strings_address is None:
        return None, ()
    strings = _at(handle, _offset_of(strings_address, segments), strings_size)
    return (
        None if soname is None else _string(strings, soname),
        tuple(_string(strings, position) for position in needed),
    )


def _offset_of(address: int, segments: list[_Segment]) -> int:
    for segment in segments:
        if segment.kind == PT_LOAD and segment.address <= address < segment.address + segment.size:
            return address - segment.address + segment.offset
    raise ElfError("the dynamic section refers to an address outside the file")


def _string(table: bytes, position: int) -> str:
    end = table.find(b"\0", position)
    if position >= len(table) or end < 0:
        raise ElfError("a name is outside the string table")
    return table[position:end].decode("utf-8", "surrogateescape")


def _kernel_abi(handle: BinaryIO, segments: list[_Segment], order: str) -> tuple[int, int, int] | None:
    for segment in segments:
        if segment.kind != PT_NOTE:
            continue
        data, position = _at(handle, segment.offset, segment.size), 0
        while position + 12 <= len(data):
            name_size, text_size, kind = struct.unpack_from(order + "III", data, position)
            name = position + 12
            text = name + (name_size + 3) // 4 * 4
            if kind == NT_GNU_ABI_TAG and data[name : name + name_size] == b"GNU\0" and text_size >= 16:
                return struct.unpack_from(order + "III", data, text + 4)
            position = text + (text_size + 3) // 4 * 4
    return None
