# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a signing key is trusted by its full fingerprint or the SHA-256 digest of its file.

A digest has the form `sha256:` and 64 hexadecimal digits. Without this prefix, 64 digits are the fingerprint of an
OpenPGP key of version 6. The digest covers the file as downloaded, or the file without the lines that start with
`Version`, as NVIDIA computes it in its Dockerfiles.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_bytes, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp, role_file_paths

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Keyring

LARGEST = 1024 * 1024
_PREFIX = "sha256:"


class KeyTrustError(Exception):
    """A value is neither a full fingerprint nor a digest."""


class SigningKeyError(KeyTrustError):
    """The key could not be downloaded, or is not the expected key."""


def normalized(trust: str) -> str:
    """Return a fingerprint in upper case or a digest in lower case, without blanks."""
    text = re.sub(r"\s", "", trust)
    if re.fullmatch(r"(?i:sha256:)[0-9A-Fa-f]{64}", text):
        return text.lower()
    if re.fullmatch(r"[0-9A-Fa-f]{40}|[0-9A-Fa-f]{64}", text):
        return text.upper()
    raise KeyTrustError(
        f"fingerprint: {text!r} is neither the full fingerprint of a key (40 or 64 hexadecimal digits, shown by "
        "'gpg --show-keys') nor the digest of a key file (sha256: and 64 hexadecimal digits, shown by 'sha256sum')."
    )


def is_digest(trust: str | None) -> bool:
    """Return whether a normalized value is a digest instead of a fingerprint."""
    return (trust or "").startswith(_PREFIX)


def digest(data: bytes) -> str:
    """Return the digest of a key file with its prefix."""
    return f"{_PREFIX}{hashlib.sha256(data).hexdigest()}"


def without_version(data: bytes) -> bytes:
    """Return a key file without the lines that start with `Version`, as `sed '/^Version/d'` prints it."""
    return re.sub(rb"(?m)^Version[^\n]*\n?", b"", data)


def covered(data: bytes, trust: str) -> bytes | None:
    """Return the trusted part of a key file, or None.

    Only the covered part may be used, because a line that starts with `Version` may also contain key material. A
    fingerprint covers the packets of the key. A package manager could find other keys in the rest of the file.
    """
    if is_digest(trust):
        return next((part for part in (data, without_version(data)) if digest(part) == trust), None)
    key = openpgp.read(data)
    return key.packets if key.fingerprints == [trust] and not key.other else None


def trusted_part(data: bytes, expected: str, shown: str) -> bytes:
    """Return the trusted part of a key file. Raise an error for any other file.

    `expected` is a normalized fingerprint or digest. `shown` is the place of the file for messages, without a login.
    """
    try:
        trusted = covered(data, expected)
        found = openpgp.read(data if trusted is None else trusted)
    except openpgp.KeyFileError as error:
        raise SigningKeyError(f"{shown} is not a public key: {error}.") from error
    if trusted is None:
        raise SigningKeyError(_refusal(data, expected, shown, found))
    return trusted


def _refusal(data: bytes, expected: str, shown: str, file: openpgp.KeyFile) -> str:
    """Return the message for a key file that is not the expected one."""
    found = file.fingerprints
    served, bare = digest(data), digest(without_version(data))
    end = "The key was not written. Find out why it has changed before you change the expected"
    if is_digest(expected):
        seen = served if served == bare else f"{served}, without its Version lines {bare},"
        return (
            f"The key file at {shown} has the digest {seen} instead of {expected}. It contains the key with the "
            f"fingerprint {', '.join(found)}. {end} digest."
        )
    if f"sha256:{expected.lower()}" in (served, bare):
        return (
            f"{expected} is the digest of the file at {shown}, not the fingerprint of its key. Set it as "
            f"sha256:{expected.lower()}."
        )
    if expected in found:
        content = f"the keys {', '.join(found)}" if len(found) > 1 else f"{file.other}," if file.other else ""
        return (
            f"The key file at {shown} contains {content} instead of only the key {expected}. The key was not written. "
            f"If you trust the whole file, set its digest instead of a fingerprint: {served}."
        )
    return f"The key at {shown} has the fingerprint {', '.join(found)} instead of {expected}. {end} fingerprint."


def note(data: bytes, trust: str) -> str | None:
    """Return the text of the note, or None if the key file on the host has the trusted digest itself.

    Converting a key between text and binary form changes its digest.
    """
    return f"{trust} {digest(data)}\n" if is_digest(trust) and digest(data) != trust else None


def describe(data: bytes, noted: str | None = None) -> Keyring:
    """Return the fingerprints and the trusted digests of a key file, and what else it contains."""
    try:
        fingerprints, _packets, other = openpgp.read(data)
    except openpgp.KeyFileError:
        fingerprints, other = [], None
    digests = [digest(data)]
    served, _blank, written = (noted or "").strip().partition(" ")
    # The note is only valid for the key file that it was written for.
    if written == digests[0]:
        digests.append(served)
    described: Keyring = {"fingerprints": fingerprints, "digests": digests}
    if other:
        described["other"] = other
    return described


def read(root: str, path: str) -> Keyring | None:
    """Describe a key file of a host. Return None if it does not exist."""
    data = read_bytes(root, path, LARGEST)
    return None if data is None else describe(data, read_text(root, role_file_paths.key_note(path), 1024))


def is_trusted(key: Keyring | None, trust: str) -> bool:
    """Return whether a described key file is trusted and contains no other key."""
    if key is None or not key["fingerprints"]:
        return False
    return trust in key["digests"] if is_digest(trust) else key["fingerprints"] == [trust] and not key.get("other")
