# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find copies of NVIDIA's repository key whose signing subkey has expired, in the files that apt trusts.

The subkey expired on 2021-06-16. NVIDIA then extended it, with the same fingerprints, so apt trusts the old copy and
rejects the repository with EXPKEYSIG.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_bytes
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp, role_file_paths

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import OldKey

# Of the key in NVIDIA/nvidia-docker, branch gh-pages, gpgkey (295c69d).
FINGERPRINT = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
_FOLDERS = ("/etc/apt/trusted.gpg.d", "/etc/apt/keyrings", "/usr/share/keyrings")
# The key of a mirror, which the user chose.
_OWN = role_file_paths.repository_key(owned.CONTAINER_TOOLKIT_REPOSITORY_ID, "apt")
_LARGEST = 1024 * 1024
# The number of the subpacket with the seconds after which a key expires: RFC 9580, section 5.2.3.13.
_KEY_EXPIRATION = 9


def read(root: str, now: float) -> list[OldKey]:
    """Return the files with an expired copy. `alone`: whether the file has no other key."""
    paths = ["/etc/apt/trusted.gpg"]
    paths += [f"{folder}/{name}" for folder in _FOLDERS for name in listing(root, folder)]
    found: list[OldKey] = []
    for path in paths:
        if path == _OWN:
            continue
        data = read_bytes(root, path, _LARGEST) if path.endswith((".gpg", ".asc")) else None
        try:
            if data and is_expired(data, now):
                found.append({"path": path, "alone": openpgp.fingerprints(data) == [FINGERPRINT]})
        except openpgp.KeyFileError:
            continue
    return found


def is_expired(data: bytes, now: float) -> bool:
    """Return whether a key file has NVIDIA's key, and none of its subkeys is valid any more. Raise KeyFileError."""
    mine, subkey, ends = False, 0, {}
    for tag, body in openpgp.packets_of(openpgp.binary(data)):
        if tag == openpgp.PUBLIC_KEY:
            mine, subkey = openpgp.fingerprint(body) == FINGERPRINT, 0
        elif mine and tag == openpgp.SUBKEY:
            subkey = int.from_bytes(body[1:5], "big")
            ends.setdefault(subkey, 0.0)
        elif mine and subkey and tag == openpgp.SIGNATURE:
            seconds = _expiration(body)
            ends[subkey] = max(ends[subkey], subkey + seconds if seconds else float("inf"))
    return bool(ends) and max(ends.values()) <= now


def without(data: bytes) -> bytes:
    """Return the other keys of a binary key file."""
    kept, mine = [], False
    for tag, body, packet in openpgp.parts_of(openpgp.binary(data)):
        mine = openpgp.fingerprint(body) == FINGERPRINT if tag == openpgp.PUBLIC_KEY else mine
        kept += [] if mine else [packet]
    return b"".join(kept)


def _expiration(signature: bytes) -> int:
    """Return the seconds from the creation of a key to its end in a signature, 0 if it does not end."""
    if len(signature) < 6 or signature[0] != 4:
        return 0
    end = 6 + int.from_bytes(signature[4:6], "big")
    position = 6
    while position < end:
        size, position = _length(signature, position)
        if size and signature[position] & 0x7F == _KEY_EXPIRATION:
            return int.from_bytes(signature[position + 1 : position + size], "big")
        position += size
    return 0


def _length(data: bytes, position: int) -> tuple[int, int]:
    first = data[position]
    if first < 192:
        return first, position + 1
    if first < 255:
        return ((first - 192) << 8) + data[position + 1] + 192, position + 2
    return int.from_bytes(data[position + 1 : position + 5], "big"), position + 5
