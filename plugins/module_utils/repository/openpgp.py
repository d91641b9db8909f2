# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the keys of OpenPGP key files without gpg.

Other programs read more of a file than its first key: gpg and rpm import every armor block, and gpg unpacks compressed
packets. So a file is read completely, and whatever is not part of a public key is named.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import NamedTuple

SIGNATURE, PUBLIC_KEY, SUBKEY = 2, 6, 14
# Besides these: user IDs and user attributes.
_PARTS = {SIGNATURE, PUBLIC_KEY, SUBKEY, 13, 17}
# Markers, trust of a local keyring, and padding. The standard requires that readers ignore them.
_IGNORED = {10, 12, 21}
_ARMOR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----[ \t]*\r?\n(?P<headers>(?:[^\r\n:]+:[^\r\n]*\r?\n)*)(?:[ \t]*\r?\n)?"
    rb"(?P<body>.*?)-----END PGP PUBLIC KEY BLOCK-----",
    re.DOTALL,
)
# What a line of text must not contain: control characters, and the start or the end of a block.
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]|-----(?:BEGIN|END)")


class KeyFileError(Exception):
    """The file contains no valid public key."""


class KeyFile(NamedTuple):
    """The content of a key file."""

    # The fingerprints of all primary keys, in capitals and without repetitions.
    fingerprints: list[str]
    # The packets of the public keys, without armor, text and ignored packets.
    packets: bytes
    # What else the file contains that a program could read as a key, or None.
    other: str | None


def read(data: bytes) -> KeyFile:
    """Read all armor blocks and all packets of a key file."""
    blocks, other = _blocks(data)
    found: dict[str, None] = {}
    kept = []
    for block in blocks:
        position = 0
        while position < len(block):
            start = position
            tag, body, position = _packet(block, position)
            if tag == PUBLIC_KEY:
                found[fingerprint(body)] = None
            if tag in _PARTS and found:
                kept.append(block[start:position])
            elif tag not in _IGNORED:
                other = other or f"a packet of type {tag}, which is not part of a public key"
    if not found:
        raise KeyFileError("the file contains no public key")
    return KeyFile([*found], b"".join(kept), other)


def packets_of(packets: bytes) -> list[tuple[int, bytes]]:
    """Return type and content of each packet."""
    return [(tag, body) for tag, body, _packet_with_header in parts_of(packets)]


def parts_of(packets: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return type and content of each packet, and the packet with its header."""
    found, position = [], 0
    while position < len(packets):
        start = position
        tag, body, position = _packet(packets, position)
        found.append((tag, body, packets[start:position]))
    return found


def fingerprints(data: bytes) -> list[str]:
    """Return the fingerprints of all primary keys in a key file, in capitals."""
    return read(data).fingerprints


def has_keys(data: bytes | None) -> bool:
    """Return whether a file contains public keys."""
    try:
        return bool(data and fingerprints(data))
    except KeyFileError:
        return False


def binary(data: bytes) -> bytes:
    """Return the packets of all blocks of a key file without their armor."""
    return b"".join(_blocks(data)[0])


def _is_binary(data: bytes) -> bool:
    """Return whether a file starts with a packet instead of text."""
    header = data[0] if data else 0
    tag = header & 0x3F if header & 0x40 else (header >> 2) & 0x0F
    return bool(header & 0x80) and (tag == PUBLIC_KEY or not _ARMOR.search(data))


def _blocks(data: bytes) -> tuple[list[bytes], str | None]:
    """Return the content of the armor blocks, or a binary file, and what else could be read as a key."""
    matches = [] if _is_binary(data) else [*_ARMOR.finditer(data)]
    if not matches:
        return [data], None
    texts = [match["headers"] for match in matches]
    position = 0
    for match in matches:
        texts.append(data[position : match.start()])
        position = match.end()
    texts.append(data[position:])
    is_text = not any(_NOT_TEXT.search(text) for text in texts)
    return [_decoded(match["body"]) for match in matches], None if is_text else "data besides its armored public keys"


def _decoded(body: bytes) -> bytes:
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    # The checksum is optional, and the standard requires that readers ignore a wrong one.
    if lines and re.fullmatch(rb"=[A-Za-z0-9+/]{4}", lines[-1]):
        del lines[-1]
    try:
        return base64.b64decode(b"".join(lines), validate=True)
    except binascii.Error as error:
        raise KeyFileError(f"the armor of the file is damaged ({error})") from error


def armored(data: bytes) -> bytes:
    """Return a key file in text form, with the checksum that older readers require."""
    if not _is_binary(data) and _ARMOR.search(data):
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


def fingerprint(body: bytes) -> str:
    """Return the fingerprint of the packet of a key or subkey."""
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
