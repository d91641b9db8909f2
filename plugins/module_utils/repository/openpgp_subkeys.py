# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify that the subkeys of an OpenPGP key belong to it, without gpg.

A fingerprint covers only the primary key. Some versions of rpm accept packages that any subkey in the file signed, even
if the primary key did not sign the subkey (CVE-2021-3521).
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp

_BINDING = 0x18
# ElGamal, ECDH, X25519 and X448 cannot sign.
_ENCRYPTION = {16, 18, 25, 26}
_RSA = {1, 3}
_EDDSA, _ED25519 = 22, 27
_CURVE_ED25519 = bytes.fromhex("2b06010401da470f01")
# The hash by its number, and what precedes the digest in an RSA signature.
_HASHES = {
    2: ("sha1", "3021300906052b0e03021a05000414"),
    8: ("sha256", "3031300d060960864801650304020105000420"),
    9: ("sha384", "3041300d060960864801650304020205000430"),
    10: ("sha512", "3051300d060960864801650304020305000440"),
    11: ("sha224", "302d300d06096086480165030402040500041c"),
}


class _Signature(NamedTuple):
    kind: int
    algorithm: int
    hash_number: int
    # What the digest covers of the signature itself, and the values of the signature.
    covered: bytes
    values: bytes


def unverified(packets: bytes) -> list[str]:
    """Return the fingerprints of the subkeys that can sign and that the primary key did not verifiably sign."""
    found: list[str] = []
    primary, subkey, is_bound = b"", b"", True
    for tag, body in [*openpgp.packets_of(packets), (openpgp.PUBLIC_KEY, b"")]:
        if tag in (openpgp.PUBLIC_KEY, openpgp.SUBKEY):
            if not is_bound:
                found.append(openpgp.fingerprint(subkey))
            primary = body if tag == openpgp.PUBLIC_KEY else primary
            subkey = body if tag == openpgp.SUBKEY else b""
            is_bound = not subkey or _algorithm(subkey) in _ENCRYPTION
        elif tag == openpgp.SIGNATURE and subkey and not is_bound:
            is_bound = _is_binding(primary, subkey, body)
    return found


def _algorithm(key: bytes) -> int:
    return key[5] if len(key) > 5 else 0


def _is_binding(primary: bytes, subkey: bytes, body: bytes) -> bool:
    signature = _signature(body)
    # Keys of version 6 have another form of signature.
    if signature is None or signature.kind != _BINDING or primary[:1] != b"\x04" or subkey[:1] != b"\x04":
        return False
    if signature.hash_number not in _HASHES:
        return False
    name, prefix = _HASHES[signature.hash_number]
    digest = hashlib.new(name)
    for key in (primary, subkey):
        digest.update(b"\x99" + len(key).to_bytes(2, "big") + key)
    digest.update(signature.covered + b"\x04\xff" + len(signature.covered).to_bytes(4, "big"))
    try:
        if _algorithm(primary) in _RSA and signature.algorithm in _RSA:
            return _is_rsa(primary[6:], signature.values, bytes.fromhex(prefix) + digest.digest())
        point = _ed25519_point(primary)
        if point and signature.algorithm == _algorithm(primary):
            return _is_ed25519(point, _ed25519_values(signature), digest.digest())
    except (IndexError, ValueError):
        return False
    return False


def _signature(body: bytes) -> _Signature | None:
    if len(body) < 6 or body[0] != 4:
        return None
    end = 6 + int.from_bytes(body[4:6], "big")
    values = end + 2 + int.from_bytes(body[end : end + 2], "big") + 2
    return _Signature(body[1], body[2], body[3], body[:end], body[values:])


def _numbers(data: bytes, count: int) -> list[int]:
    """Return the first numbers of a sequence. Each has its length in bits in front of it."""
    found, position = [], 0
    for _number in range(count):
        end = position + 2 + (int.from_bytes(data[position : position + 2], "big") + 7) // 8
        if end > len(data) or end < position + 3:
            raise ValueError("the sequence is too short")
        found.append(int.from_bytes(data[position + 2 : end], "big"))
        position = end
    return found


def _is_rsa(key: bytes, values: bytes, expected: bytes) -> bool:
    modulus, exponent = _numbers(key, 2)
    (signature,) = _numbers(values, 1)
    size = (modulus.bit_length() + 7) // 8
    padding = b"\xff" * (size - len(expected) - 3)
    if len(padding) < 8:
        return False
    return pow(signature, exponent, modulus) == int.from_bytes(b"\x00\x01" + padding + b"\x00" + expected, "big")


# --- Ed25519 (RFC 8032) -----------------------------------------------------------------------------------------------

_PRIME = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _PRIME - 2, _PRIME) % _PRIME
_BASE_Y = 4 * pow(5, _PRIME - 2, _PRIME) % _PRIME


def _ed25519_point(primary: bytes) -> bytes | None:
    """Return the public point of an Ed25519 key, or None for other keys."""
    if _algorithm(primary) == _ED25519:
        return primary[6:38]
    curve = bytes([len(_CURVE_ED25519)]) + _CURVE_ED25519
    if _algorithm(primary) == _EDDSA and primary[6:].startswith(curve):
        # A number: its length in bits, the octet 0x40, and the point.
        return primary[6 + len(curve) + 3 :][:32]
    return None


def _ed25519_values(signature: _Signature) -> bytes:
    if signature.algorithm == _ED25519:
        return signature.values[:64]
    return b"".join(number.to_bytes(32, "big") for number in _numbers(signature.values, 2))


def _is_ed25519(point: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether S * B equals R + k * A."""
    if len(point) != 32 or len(signature) != 64:
        return False
    factor = int.from_bytes(signature[32:], "little")
    if factor >= _ORDER:
        return False
    key, first, base = _decoded(point), _decoded(signature[:32]), _decoded(_BASE_Y.to_bytes(32, "little"))
    scalar = int.from_bytes(hashlib.sha512(signature[:32] + point + message).digest(), "little") % _ORDER
    left, right = _times(factor, base), _sum(first, _times(scalar, key))
    return all((left[axis] * right[2] - right[axis] * left[2]) % _PRIME == 0 for axis in (0, 1))


def _decoded(data: bytes) -> tuple[int, int, int]:
    """Return the point with this encoding in projective coordinates. Raise ValueError if there is none."""
    number = int.from_bytes(data, "little")
    is_odd, y = number >> 255, number & (2**255 - 1)
    square = (y * y - 1) * pow(_D * y * y + 1, _PRIME - 2, _PRIME) % _PRIME
    x = pow(square, (_PRIME + 3) // 8, _PRIME)
    if (x * x - square) % _PRIME:
        x = x * pow(2, (_PRIME - 1) // 4, _PRIME) % _PRIME
    if y >= _PRIME or (x * x - square) % _PRIME or (x == 0 and is_odd):
        raise ValueError("not a point of the curve")
    return (x if x & 1 == is_odd else _PRIME - x), y, 1


def _sum(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    """Add two points of the curve -x² + y² = 1 + d x² y², which also holds for two equal points."""
    z = one[2] * other[2] % _PRIME
    xx, yy = one[0] * other[0] % _PRIME, one[1] * other[1] % _PRIME
    cross = ((one[0] + one[1]) * (other[0] + other[1]) - xx - yy) % _PRIME
    product = _D * xx * yy % _PRIME
    low, high = (z * z - product) % _PRIME, (z * z + product) % _PRIME
    return z * low * cross % _PRIME, z * high * (yy + xx) % _PRIME, low * high % _PRIME


def _times(factor: int, point: tuple[int, int, int]) -> tuple[int, int, int]:
    found = (0, 1, 1)
    while factor:
        if factor & 1:
            found = _sum(found, point)
        point = _sum(point, point)
        factor >>= 1
    return found
