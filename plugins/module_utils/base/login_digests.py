# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace the logins in texts and files with slow digests, so that a changed password still shows as a change."""

from __future__ import annotations

import functools
import hashlib
from urllib.parse import unquote

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins

# The digest is slow to compute, which protects passwords from guessing.
_ROUNDS = 100_000


def sealed(text: str) -> str:
    """Replace each login in a text with a digest, so that a changed login still changes the text.

    The digest is slow to compute, which protects passwords from guessing.
    """
    return url_logins.replaced(text, digest)


def unsealed(text: str, original: str) -> str:
    """Replace the digests in a sealed text with the logins that `original` contains."""
    for found in url_logins.LOGIN.finditer(original):
        part = found.groupdict()
        if part["scheme"]:
            written = login = part["login"]
        else:
            written = part["quoted"] if part["in_query"] else part["value"]
            login = unquote(written)
        text = text.replace(digest(login), written)
    return text


@functools.lru_cache(maxsize=256)
def digest(login: str) -> str:
    """Return the digest that stands for a login."""
    return hashlib.pbkdf2_hmac("sha256", login.encode("utf-8", "surrogateescape"), b"gpufleet", _ROUNDS, 16).hex()
