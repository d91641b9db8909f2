# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dynamic loader's cache, /etc/ld.so.cache, which maps library names to paths.

Unlike `ldconfig -p`, this module can read the cache of another root directory.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

OLD_MAGIC = b"ld.so-1.7.0"
OLD_HEADER, OLD_ENTRY = 16, 12
NEW_MAGIC = b"glibc-ld.so.cache1.1"
NEW_HEADER = 48
NEW_ENTRY = struct.Struct("<iIIIQ")

FLAG_ELF = 0x0001
ABI_MASK = 0xFF00
# (machine, bits) by the ABI bits of an entry. i386 and other ABIs without a mark have the value 0.
ABIS = {
    0x0000: ("i386", 32),
    0x0300: ("x86_64", 64),
    0x0500: ("ppc64le", 64),
    0x0800: ("x32", 32),
    0x0900: ("arm", 32),
    0x0A00: ("aarch64", 64),
    0x0B00: ("arm", 32),
}


class LdCacheError(Exception):
    """The cache cannot be read."""


class LoaderCacheEntry(NamedTuple):
    """A library in the cache."""

    name: str
    path: str
    machine: str
    bits: int


def parse(data: bytes) -> list[LoaderCacheEntry]:
    """Parse a cache in the format of glibc 2.2 and later. An older table may precede it."""
    start = 0
    if data.startswith(OLD_MAGIC):
        if len(data) < OLD_HEADER:
            raise LdCacheError("the cache is truncated")
        (count,) = struct.unpack_from("<I", data, 12)
        start = (OLD_HEADER + count * OLD_ENTRY + 7) // 8 * 8
    if data[start : start + len(NEW_MAGIC)] != NEW_MAGIC:
        raise LdCacheError("the file does not have the format of glibc's cache")
    if len(data) < start + NEW_HEADER:
        raise LdCacheError("the cache is truncated")
    (count,) = struct.unpack_from("<I", data, start + len(NEW_MAGIC))
    if start + NEW_HEADER + count * NEW_ENTRY.size > len(data):
        raise LdCacheError("the cache is truncated")
    entries = []
    for index in range(count):
        flags, name, path, _os, _hwcap = NEW_ENTRY.unpack_from(data, start + NEW_HEADER + index * NEW_ENTRY.size)
        if not flags & FLAG_ELF or flags & ABI_MASK not in ABIS:
            continue
        machine, bits = ABIS[flags & ABI_MASK]
        entries.append(LoaderCacheEntry(_string(data, start + name), _string(data, start + path), machine, bits))
    return entries


def _string(data: bytes, position: int) -> str:
    end = data.find(b"\0", position)
    if position >= len(data) or end < 0:
        raise LdCacheError("a name is outside the cache")
    return data[position:end].decode("utf-8", "surrogateescape")
