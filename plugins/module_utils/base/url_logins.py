# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove or mask the logins in the URLs of mirrors and proxies, for messages and facts."""

from __future__ import annotations

import functools
import hashlib
import re
from typing import Callable
from urllib.parse import unquote

# Three forms: a login in a URL; a login in a URL that is quoted in the query of another URL, as in zypper's proxy
# parameter; zypper's parameters for the user and the password of a proxy.
_LOGIN = re.compile(
    r"(?P<scheme>://)(?P<login>\S*)(?P<end>@)"
    r"|(?P<in_query>(?:%3a|proxy=\w+:)(?:%2f%2f|//))(?P<quoted>[^\s&]*)(?P<quoted_end>%40)"
    r"|(?P<name>[?&]proxy(?:user|pass)=)(?P<value>[^\s&]+)",
    re.IGNORECASE,
)
# The login of a valid URL ends before the first slash.
_OF_ADDRESS = re.compile(r"(?<=://)[^/?#\s]*@")
_ROUNDS = 100_000


def masked(text: str) -> str:
    """Mask the logins of all URLs in a text. In doubt, mask more than necessary."""
    return _replaced(text, lambda _login: "...")


def sealed(text: str) -> str:
    """Replace each login in a text with a digest, so that a changed login still changes the text.

    The digest is slow to compute, which protects passwords from guessing.
    """
    return _replaced(text, digest)


def unsealed(text: str, original: str) -> str:
    """Replace the digests in a sealed text with the logins that `original` contains."""
    for found in _LOGIN.finditer(original):
        part = found.groupdict()
        if part["scheme"]:
            written = login = part["login"]
        else:
            written = part["quoted"] if part["in_query"] else part["value"]
            login = unquote(written)
        text = text.replace(digest(login), written)
    return text


def without_login(address: str) -> str:
    """Remove the login from a valid URL."""
    return _OF_ADDRESS.sub("", address)


def logins(*addresses: str | None) -> set[str]:
    """Return the logins of URLs. A module adds them to its `no_log` values."""
    found = (_OF_ADDRESS.search(address) for address in addresses if address)
    return {login.group()[:-1] for login in found if login and len(login.group()) > 1}


def plain(address: str) -> str:
    """Return a URL for facts and comparisons: without a login, and with masked logins in the query."""
    return masked(without_login(address))


def refused(text: str) -> str:
    """Mask possible logins in a text that is not a valid URL."""
    return re.sub(r"[^\s/@]+@", "...@", masked(text))


def _replaced(text: str, replacement: Callable[[str], str]) -> str:
    def replace(found: re.Match) -> str:
        part = found.groupdict()
        if part["scheme"]:
            return f"{part['scheme']}{replacement(part['login'])}{part['end']}"
        if part["in_query"]:
            return f"{part['in_query']}{replacement(unquote(part['quoted']))}{part['quoted_end']}"
        return f"{part['name']}{replacement(unquote(part['value']))}"

    return _LOGIN.sub(replace, text)


@functools.lru_cache(maxsize=256)
def digest(login: str) -> str:
    """Return the digest that stands for a login."""
    return hashlib.pbkdf2_hmac("sha256", login.encode("utf-8", "surrogateescape"), b"gpufleet", _ROUNDS, 16).hex()
