# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read Docker's database of volumes without Docker: a Bolt file.

While a volume plugin is gone, each query of Docker for volumes takes 15 seconds. The format: etcd-io/bbolt, page.go and
bucket.go. Only complete values are read, so a file that Docker is writing is unknown, not wrong.
"""

from __future__ import annotations

import struct

_MAGIC = 0xED0CDAED
_BRANCH, _LEAF = 0x01, 0x02
_HEADER = struct.Struct("<QHHI")
_META = struct.Struct("<IIIIQQQQQQ")
_ELEMENT = struct.Struct("<IIII")
_BRANCH_ELEMENT = struct.Struct("<IIQ")
_BUCKET = struct.Struct("<QQ")
_SMALLEST_PAGE = 1024


class BoltError(Exception):
    """The file is not a complete Bolt database."""


def read(data: bytes, bucket: bytes) -> dict[bytes, bytes]:
    """Return the keys and values in a bucket. A bucket that does not exist is empty. Raise BoltError."""
    try:
        size, root = _newest(data)
        found = _Reader(data, size).items(root)
        value = next((value for key, value, is_bucket in found if is_bucket and key == bucket), None)
        if value is None:
            return {}
        root, _sequence = _BUCKET.unpack_from(value)
        reader = _Reader(data, size) if root else _Reader(value[_BUCKET.size :], len(value))
        return {key: value for key, value, is_bucket in reader.items(root) if not is_bucket}
    except (struct.error, IndexError) as error:
        raise BoltError(f"the file is incomplete ({error})") from error


def _newest(data: bytes) -> tuple[int, int]:
    """Return the size of a page and the root page of the newest complete transaction."""
    found = []
    for start in (0, *(1 << power for power in range(10, 17))):
        if start + _HEADER.size + _META.size > len(data):
            break
        text = data[start + _HEADER.size : start + _HEADER.size + _META.size]
        magic, _version, size, _flags, root, _sequence, _free, _pages, transaction, checksum = _META.unpack(text)
        # The second page has the other of the two transactions.
        if magic == _MAGIC and checksum == _checksum(text[:-8]) and start in (0, size) and size >= _SMALLEST_PAGE:
            found.append((transaction, size, root))
    if not found:
        raise BoltError("the file has no valid header")
    _transaction, size, root = max(found)
    return size, root


def _checksum(text: bytes) -> int:
    """Return the 64-bit FNV-1a hash."""
    value = 0xCBF29CE484222325
    for octet in text:
        value = ((value ^ octet) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


class _Reader:
    """The tree of pages of one bucket."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size
        self._pages: set[int] = set()

    def items(self, page: int) -> list[tuple[bytes, bytes, bool]]:
        """Return key, value and whether the value is a bucket, of all elements below a page."""
        if page in self._pages:
            raise BoltError("the pages of the file form a circle")
        self._pages.add(page)
        start = page * self._size
        _number, flags, count, _overflow = _HEADER.unpack_from(self._data, start)
        found: list[tuple[bytes, bytes, bool]] = []
        if flags not in (_BRANCH, _LEAF):
            raise BoltError(f"page {page} has the unknown type {flags}")
        for index in range(count):
            place = start + _HEADER.size + 16 * index
            if flags == _BRANCH:
                found += self.items(_BRANCH_ELEMENT.unpack_from(self._data, place)[2])
                continue
            kind, position, key_size, value_size = _ELEMENT.unpack_from(self._data, place)
            key = place + position
            end = key + key_size + value_size
            if end > len(self._data):
                raise BoltError("the file is truncated")
            found.append((self._data[key : key + key_size], self._data[key + key_size : end], bool(kind & 1)))
        return found
