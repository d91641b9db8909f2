# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The headers of an ELF file (class, machine, SONAME, needed libraries and kernel ABI), and the content of a section.

Like the dynamic loader, `read` uses program headers only. Stripped libraries may have no section headers.
"""

from __future__ import annotations

import contextlib
import struct
from collections import namedtuple  # typing would slow down the program behind nvidia_gpu_facts
from collections.abc import Iterator
from io import BufferedIOBase

MACHINES = {3: "i386", 8: "mips", 20: "ppc", 21: "ppc64le", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE = 1, 2, 3, 4
DT_NULL, DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME = 0, 1, 5, 10, 14
NT_GNU_ABI_TAG = 1
ET_DYN = 3
# Limits for damaged files. Real libraries have much smaller tables.
MAX_TABLE = 16 * 1024 * 1024
MAX_HEADERS = 1024

# `shared`: a library, not a program. `needed`: a tuple of names. `kernel_abi`: a version of three numbers, or None.
Elf = namedtuple("Elf", ["bits", "machine", "shared", "soname", "needed", "kernel_abi"])
_Header = namedtuple("_Header", ["wide", "order", "kind", "machine", "segments", "sections", "names_index"])
_Table = namedtuple("_Table", ["offset", "size", "count"])
_Segment = namedtuple("_Segment", ["kind", "offset", "address", "size"])


class ElfError(Exception):
    """The file is not an ELF file, or it is damaged."""


def read(path: str) -> Elf:
    """Read the headers of the ELF file at `path`."""
    with _errors_of(path), open(path, "rb") as handle:
        return parse(handle)


def interpreter(path: str) -> str | None:
    """Return the dynamic loader of the program at `path`, or None if the file has none, like a library."""
    with _errors_of(path), open(path, "rb") as handle, _format_errors():
        for segment in _segments(handle, _header(handle)):
            if segment.kind == PT_INTERP:
                return _at(handle, segment.offset, segment.size).rstrip(b"\0").decode("utf-8", "surrogateescape")
    return None


def section(path: str, name: str) -> bytes:
    """Return the content of a section of the ELF file at `path`. It is empty if the file has no such section."""
    with _errors_of(path), open(path, "rb") as handle, _format_errors():
        return _section(handle, name.encode())


def parse(handle: BufferedIOBase) -> Elf:
    """Read the headers of an open ELF file."""
    with _format_errors():
        return _parse(handle)


@contextlib.contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except ElfError as error:
        raise ElfError(f"{path}: {error}") from error


@contextlib.contextmanager
def _format_errors() -> Iterator[None]:
    try:
        yield
    except (struct.error, OverflowError, ValueError, IndexError) as error:
        raise ElfError("the ELF headers are invalid") from error


def _parse(handle: BufferedIOBase) -> Elf:
    header = _header(handle)
    segments = _segments(handle, header)
    soname, needed = _dynamic(handle, segments, header.wide, header.order)
    return Elf(
        bits=64 if header.wide else 32,
        machine=MACHINES.get(header.machine, str(header.machine)),
        shared=header.kind == ET_DYN,
        soname=soname,
        needed=needed,
        kernel_abi=_kernel_abi(handle, segments, header.order),
    )


def _section(handle: BufferedIOBase, wanted: bytes) -> bytes:
    header = _header(handle)
    entry = struct.Struct(header.order + ("IIQQQQ" if header.wide else "IIIIII"))
    table = header.sections
    data = _at(handle, table.offset, table.size * table.count)
    sections = [entry.unpack_from(data, table.size * index) for index in range(table.count)]
    if not sections:
        return b""
    names = _at(handle, *sections[header.names_index][4:])
    for name, _kind, _flags, _address, offset, size in sections:
        if names[name : names.index(b"\0", name)] == wanted:
            return _at(handle, offset, size)
    return b""


def _header(handle: BufferedIOBase) -> _Header:
    ident = _at(handle, 0, 16)
    if ident[:4] != b"\x7fELF":
        raise ElfError("not an ELF file")
    if ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise ElfError("unknown ELF class or byte order")
    wide, order = ident[4] == 2, "<" if ident[5] == 1 else ">"
    layout = struct.Struct(order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"))
    kind, machine, _version, _entry, segments_at, sections_at, _flags, _size, *counts = layout.unpack(
        _at(handle, 16, layout.size)
    )
    segments, sections = _Table(segments_at, *counts[:2]), _Table(sections_at, *counts[2:4])
    return _Header(wide, order, kind, machine, segments, sections, counts[4])


def _at(handle: BufferedIOBase, offset: int, size: int) -> bytes:
    if size > MAX_TABLE:
        raise ElfError(f"an ELF table is too large ({size} bytes)")
    try:
        handle.seek(offset)
    except OSError as error:  # beyond what the file system supports
        raise ElfError("the ELF headers refer to data outside the file") from error
    data = handle.read(size)
    if len(data) != size:
        raise ElfError("the ELF headers are truncated")
    return data


def _segments(handle: BufferedIOBase, header: _Header) -> list[_Segment]:
    table = header.segments
    if table.count > MAX_HEADERS:
        raise ElfError(f"the file has too many program headers ({table.count})")
    data = _at(handle, table.offset, table.size * table.count)
    segments = []
    for index in range(table.count):
        start = index * table.size
        if header.wide:
            kind, _flags, offset, address, _physical, length = struct.unpack_from(header.order + "IIQQQQ", data, start)
        else:
            kind, offset, address, _physical, length = struct.unpack_from(header.order + "IIIII", data, start)
        segments.append(_Segment(kind, offset, address, length))
    return segments


def _dynamic(
    handle: BufferedIOBase, segments: list[_Segment], wide: bool, order: str
) -> tuple[str | None, tuple[str, ...]]:
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


def _kernel_abi(handle: BufferedIOBase, segments: list[_Segment], order: str) -> tuple[int, int, int] | None:
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
