# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the fingerprints of OpenPGP public keys without gpg."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

_PUBLIC_KEY = 6
_ARMOR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?P<headers>(?:[^\r\n]+: [^\r\n]*\r?\n)*)\r?\n?(?P<body>.*?)"
    rb"-----END PGP PUBLIC KEY BLOCK-----",
    re.DOTALL,
)


class KeyFileError(Exception):
    """The file contains no valid public key."""


def binary(data: bytes) -> bytes:
    """Return the packets of a key file without its armor."""
    armor = _ARMOR.search(data)
    if not armor:
        return data
    lines = [line.strip() for line in armor["body"].splitlines()]
    body = b"".join(line for line in lines if line and not line.startswith(b"="))
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise KeyFileError(f"the armor of the file is damaged ({error})") from error


def armored(data: bytes) -> bytes:
    """Return a key file in text form, with the checksum that older readers require."""
    if _ARMOR.search(data):
        return data
    body = base64.b64encode(data)
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    checksum = b"=" + base64.b64encode(_crc24(data).to_bytes(3, "big"))
    begin, end = b"-----BEGIN PGP PUBLIC KEY BLOCK-----", b"-----END PGP PUBLIC KEY BLOCK-----"
    return b"\n".join([begin, b"", *lines, checksum, end, b""])


def _crc24(data: bytes) -> int:
    value = 0xB704CE
    for octet in data:
        value ^= octet << 16
        for _bit in range(8):
            value <<= 1
            if value & 0x1000000:
                value ^= 0x1864CFB
    return value & 0xFFFFFF


def fingerprints(data: bytes) -> list[str]:
    """Return the fingerprints of all primary keys in a key file, in capitals."""
    packets = binary(data)
    found, position = [], 0
    while position < len(packets):
        tag, body, position = _packet(packets, position)
        if tag == _PUBLIC_KEY:
            found.append(_fingerprint(body))
    if not found:
        raise KeyFileError("the file contains no public key")
    return found


def _fingerprint(body: bytes) -> str:
    version = body[0] if body else 0
    if version == 4:
        return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()
    if version == 6:
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise KeyFileError(f"key version {version} is not supported")


def _packet(data: bytes, position: int) -> tuple[int, bytes, int]:
    header = data[position]
    if not header & 0x80:
        raise KeyFileError("the file is not an OpenPGP key file")
    try:
        tag, start, size = _new_header(data, position) if header & 0x40 else _old_header(data, position)
    except IndexError as error:
        raise KeyFileError("the file is truncated") from error
    if start + size > len(data):
        raise KeyFileError("the file is truncated")
    return tag, data[start : start + size], start + size


def _new_header(data: bytes, position: int) -> tuple[int, int, int]:
    tag, first = data[position] & 0x3F, data[position + 1]
    if first < 192:
        return tag, position + 2, first
    if first < 224:
        return tag, position + 3, ((first - 192) << 8) + data[position + 2] + 192
    if first == 255:
        return tag, position + 6, int.from_bytes(data[position + 2 : position + 6], "big")
    raise KeyFileError("the file has a packet of unknown length")


def _old_header(data: bytes, position: int) -> tuple[int, int, int]:
    tag, kind = (data[position] >> 2) & 0x0F, data[position] & 0x03
    if kind == 3:
        raise KeyFileError("the file has a packet of unknown length")
    octets = 1 << kind
    data[position + octets]
    return tag, position + 1 + octets, int.from_bytes(data[position + 1 : position + 1 + octets], "big")
