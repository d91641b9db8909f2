# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a signing key trusted: its full fingerprint, or the SHA-256 digest of its file.

A digest is written as `sha256:` and 64 hexadecimal digits. Without this prefix, 64 digits are the fingerprint of an
OpenPGP key of version 6. The digest is that of the file as the server sends it, or of the file without the lines that
begin with `Version`, as NVIDIA computes it in its Dockerfiles.
"""

from __future__ import annotations

import hashlib
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import read_bytes, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import openpgp

LARGEST = 1024 * 1024
_PREFIX = "sha256:"


class KeyTrustError(Exception):
    """A value is neither a full fingerprint nor a digest."""


def normalized(trust: str) -> str:
    """Return a fingerprint in capitals or a digest in lower case, without blanks. Refuse everything else."""
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
    """Tell whether a normalized value is the digest of a file, and not a fingerprint."""
    return (trust or "").startswith(_PREFIX)


def digest(data: bytes) -> str:
    """Return the digest of a key file in the form in which it is trusted."""
    return f"{_PREFIX}{hashlib.sha256(data).hexdigest()}"


def without_version(data: bytes) -> bytes:
    """Return a key file without the lines that begin with `Version`, as `sed '/^Version/d'` prints it."""
    return re.sub(rb"(?m)^Version[^\n]*\n?", b"", data)


def covered(data: bytes, trust: str) -> bytes | None:
    """Return the part of a key file that is trusted, or nothing.

    What a digest does not cover must not be used: a line that begins with `Version` may also hold key material.
    """
    if is_digest(trust):
        return next((part for part in (data, without_version(data)) if digest(part) == trust), None)
    return data if openpgp.fingerprints(data) == [trust] else None


def note_path(path: str) -> str:
    """Return the file beside a key file that keeps the digest of what the server sent."""
    return f"{path}.sha256"


def note(data: bytes, trust: str) -> str | None:
    """Return the text of that file; nothing where the key file on the host tells enough.

    A key that is converted between its text and its binary form has another digest afterwards.
    """
    return f"{trust} {digest(data)}\n" if is_digest(trust) and digest(data) != trust else None


def describe(data: bytes, noted: str | None = None) -> dict[str, list[str]]:
    """Return the fingerprints of the keys in a file, and the digests by which the file can be trusted."""
    try:
        fingerprints = openpgp.fingerprints(data)
    except openpgp.KeyFileError:
        fingerprints = []
    digests = [digest(data)]
    served, _blank, written = (noted or "").strip().partition(" ")
    # A note about a key file that was replaced says nothing about the new one.
    if written == digests[0]:
        digests.append(served)
    return {"fingerprints": fingerprints, "digests": digests}


def read(root: str, path: str) -> dict[str, list[str]] | None:
    """Describe a key file of a host; nothing where there is none."""
    data = read_bytes(root, path, LARGEST)
    return None if data is None else describe(data, read_text(root, note_path(path), 1024))


def is_trusted(key: dict[str, list[str]] | None, trust: str) -> bool:
    """Tell whether a described key file is the trusted one, and holds no other key."""
    if key is None or not key["fingerprints"]:
        return False
    return trust in key["digests"] if is_digest(trust) else key["fingerprints"] == [trust]
