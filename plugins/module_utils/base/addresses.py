# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses as messages and facts may show them: without the login that a mirror or a proxy may want."""

from __future__ import annotations

import functools
import hashlib
import re
from typing import Callable
from urllib.parse import unquote

# The second form is an address in the query of another one, as zypper is told of a proxy: quoted as a whole, or only in
# part. The third is its login by itself.
_LOGIN = re.compile(
    r"(?P<scheme>://)(?P<login>\S*)(?P<end>@)"
    r"|(?P<in_query>(?:%3a|proxy=\w+:)(?:%2f%2f|//))(?P<quoted>[^\s&]*)(?P<quoted_end>%40)"
    r"|(?P<name>[?&]proxy(?:user|pass)=)(?P<value>[^\s&]+)",
    re.IGNORECASE,
)
# Of an address that works: there, a login ends before the first slash.
_OF_ADDRESS = re.compile(r"(?<=://)[^/?#\s]*@")
_ROUNDS = 100_000


def masked(text: str) -> str:
    """Return a text without the logins of the addresses in it. Rather more than too little is left out."""
    return _replaced(text, lambda _login: "...")


def sealed(text: str) -> str:
    """Return a text with a digest in the place of each login, so that texts that differ in a login alone still differ.

    The digest takes long to compute: nobody finds a password by trying words.
    """
    return _replaced(text, _digest)


def unsealed(text: str, truth: str) -> str:
    """Return a sealed text with its logins, of which a digest is in it, as far as they are in another text."""
    for found in _LOGIN.finditer(truth):
        part = found.groupdict()
        if part["scheme"]:
            written = login = part["login"]
        else:
            written = part["quoted"] if part["in_query"] else part["value"]
            login = unquote(written)
        text = text.replace(_digest(login), written)
    return text


def has_login(text: str) -> bool:
    """Tell whether there is a login in a text."""
    return masked(text) != text


def without_login(address: str) -> str:
    """Return an address that works as it is without a login."""
    return _OF_ADDRESS.sub("", address)


def logins(*addresses: str | None) -> set[str]:
    """Return the logins of addresses, as they are written, for what a module must not show of its own arguments."""
    found = (_OF_ADDRESS.search(address) for address in addresses if address)
    return {login.group()[:-1] for login in found if login and len(login.group()) > 1}


def plain(address: str) -> str:
    """Return an address as facts name it and as addresses are compared: without a login, not even in a query."""
    return masked(without_login(address))


def refused(text: str) -> str:
    """Return a text that was to be an address and is none, without what could be a login."""
    return re.sub(r"[^\s/@]+@", "...@", masked(text))


def _replaced(text: str, put: Callable[[str], str]) -> str:
    def replace(found: re.Match) -> str:
        part = found.groupdict()
        if part["scheme"]:
            return f"{part['scheme']}{put(part['login'])}{part['end']}"
        if part["in_query"]:
            return f"{part['in_query']}{put(unquote(part['quoted']))}{part['quoted_end']}"
        return f"{part['name']}{put(unquote(part['value']))}"

    return _LOGIN.sub(replace, text)


@functools.lru_cache(maxsize=256)
def _digest(login: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", login.encode("utf-8", "surrogateescape"), b"gpufleet", _ROUNDS, 16).hex()
