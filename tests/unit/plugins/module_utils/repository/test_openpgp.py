# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp

BODY = b"\x04" + bytes(range(200))
FINGERPRINT = hashlib.sha1(b"\x99" + len(BODY).to_bytes(2, "big") + BODY).hexdigest().upper()
# A public key in every packet length format, and a user ID.
OLD_TWO_OCTETS = b"\x99" + len(BODY).to_bytes(2, "big") + BODY
OLD_FOUR_OCTETS = b"\x9a" + len(BODY).to_bytes(4, "big") + BODY
NEW_TWO_OCTETS = b"\xc6" + bytes([192 + ((len(BODY) - 192) >> 8), (len(BODY) - 192) & 0xFF]) + BODY
NEW_FIVE_OCTETS = b"\xc6\xff" + len(BODY).to_bytes(4, "big") + BODY
USER_ID = b"\xb4\x04abcd"


@pytest.mark.parametrize("packet", [OLD_TWO_OCTETS, OLD_FOUR_OCTETS, NEW_TWO_OCTETS, NEW_FIVE_OCTETS])
def test_every_packet_format_has_the_same_fingerprint(packet):
    assert openpgp.fingerprints(packet + USER_ID) == [FINGERPRINT]


def test_every_key_in_a_file_gets_a_fingerprint():
    other = b"\x04" + b"z" * 50
    packet = b"\xc6\x33" + other
    expected = hashlib.sha1(b"\x99" + len(other).to_bytes(2, "big") + other).hexdigest().upper()
    assert openpgp.fingerprints(OLD_TWO_OCTETS + USER_ID + packet) == [FINGERPRINT, expected]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_armor_is_added_and_removed_without_changes(line_end):
    packets = OLD_TWO_OCTETS + USER_ID
    armored = openpgp.armored(packets).replace(b"\n", line_end)
    assert openpgp.binary(armored) == packets
    assert openpgp.armored(armored) == armored
    with_headers = armored.replace(
        b"BLOCK-----" + line_end, b"BLOCK-----" + line_end + b"Version: GnuPG v2" + line_end, 1
    )
    assert openpgp.fingerprints(with_headers) == [FINGERPRINT]


def test_the_armor_has_the_standard_checksum():
    # The check value of CRC-24/OPENPGP: 0x21CF02 over these nine octets.
    assert b"\n=Ic8C\n" in openpgp.armored(b"123456789")


DAMAGED = [
    (b"", "no public key"),
    (b"<html>not found</html>", "not an OpenPGP key file"),
    (USER_ID, "no public key"),
    (OLD_TWO_OCTETS[:50], "truncated"),
    (b"\x99", "truncated"),
    (b"\x99\x00\x02\x03\x00", "version 3"),
    (
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n@@@\n-----END PGP PUBLIC KEY BLOCK-----\n",
        "armor of the file is damaged",
    ),
]


@pytest.mark.parametrize(("data", "words"), DAMAGED)
def test_a_damaged_file_is_an_error(data, words):
    with pytest.raises(openpgp.KeyFileError, match=words):
        openpgp.fingerprints(data)


OTHER_BODY = b"\x04" + b"z" * 50
OTHER_KEY = b"\xc6\x33" + OTHER_BODY
OTHER = hashlib.sha1(b"\x99" + len(OTHER_BODY).to_bytes(2, "big") + OTHER_BODY).hexdigest().upper()
KEY = OLD_TWO_OCTETS + USER_ID
ARMORED, OTHER_ARMORED = openpgp.armored(KEY), openpgp.armored(OTHER_KEY)
PRIVATE = OTHER_ARMORED.replace(b"PUBLIC", b"PRIVATE")
TRUST, MARKER = b"\xb0\x02\x00\x00", b"\xca\x03PGP"
COMPRESSED = b"\xc8" + bytes([len(OTHER_KEY) + 1]) + b"\x00" + OTHER_KEY

# The file, its fingerprints, the packets that may be written, and whether it contains something else.
FILES = [
    (KEY, [FINGERPRINT], KEY, False),
    (ARMORED, [FINGERPRINT], KEY, False),
    (ARMORED + ARMORED, [FINGERPRINT], KEY + KEY, False),
    (b"pub  4096R/0000 2020 \xc2\xa9\n" + ARMORED + b"\nthe end\n", [FINGERPRINT], KEY, False),
    (KEY + TRUST + MARKER, [FINGERPRINT], KEY, False),
    (ARMORED + b"text\n" + OTHER_ARMORED, [FINGERPRINT, OTHER], KEY + OTHER_KEY, False),
    (KEY + OTHER_KEY, [FINGERPRINT, OTHER], KEY + OTHER_KEY, False),
    (KEY + COMPRESSED, [FINGERPRINT], KEY, True),
    (openpgp.armored(KEY + COMPRESSED), [FINGERPRINT], KEY, True),
    # Literal data, a secret key and a packet for private use.
    (KEY + b"\xcb\x01x", [FINGERPRINT], KEY, True),
    (KEY + b"\xc5\x01x", [FINGERPRINT], KEY, True),
    (KEY + b"\xfc\x01x", [FINGERPRINT], KEY, True),
    # A user ID without a key.
    (USER_ID + KEY, [FINGERPRINT], KEY, True),
    (ARMORED + PRIVATE, [FINGERPRINT], KEY, True),
    (ARMORED + b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n", [FINGERPRINT], KEY, True),
    (ARMORED + OTHER_KEY, [FINGERPRINT], KEY, True),
    (ARMORED.replace(b"-----\n", b"-----\nComment: -----BEGIN PGP MESSAGE-----\n", 1), [FINGERPRINT], KEY, True),
]


@pytest.mark.parametrize(("data", "fingerprints", "packets", "has_more"), FILES)
def test_every_block_and_every_packet_is_read(data, fingerprints, packets, has_more):
    found = openpgp.read(data)
    assert (found.fingerprints, found.packets, found.other is not None) == (fingerprints, packets, has_more)


@pytest.mark.parametrize(
    "data",
    [
        OTHER_KEY + b"\n" + ARMORED,
        ARMORED + OTHER_ARMORED.replace(b"\n\n", b"\n\n@"),
        ARMORED.replace(b"\n=", b"\n=AAAA\n="),
    ],
)
def test_a_file_with_a_damaged_part_is_an_error(data):
    with pytest.raises(openpgp.KeyFileError):
        openpgp.read(data)


def test_all_blocks_are_converted():
    assert openpgp.binary(ARMORED + OTHER_ARMORED) == KEY + OTHER_KEY
