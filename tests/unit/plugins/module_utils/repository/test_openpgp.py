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
