# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove or mask the logins in the URLs of mirrors and proxies, for messages and facts."""

from __future__ import annotations

import re
from typing import Callable
from urllib.parse import unquote

# Three forms: a login in a URL; a login in a URL that is quoted in the query of another URL, as in zypper's proxy
# parameter; zypper's parameters for the user and the password of a proxy.
LOGIN = re.compile(
    r"(?P<scheme>://)(?P<login>\S*)(?P<end>@)"
    r"|(?P<in_query>(?:%3a|proxy=\w+:)(?:%2f%2f|//))(?P<quoted>[^\s&]*)(?P<quoted_end>%40)"
    r"|(?P<name>[?&]proxy(?:user|pass)=)(?P<value>[^\s&]+)",
    re.IGNORECASE,
)
# The login of a valid URL ends before the first slash.
_OF_ADDRESS = re.compile(r"(?<=://)[^/?#\s]*@")


def masked(text: str) -> str:
    """Mask the logins of all URLs in a text. In doubt, mask more than necessary."""
    return replaced(text, lambda _login: "...")


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


def replaced(text: str, replacement: Callable[[str], str]) -> str:
    def replace(found: re.Match) -> str:
        part = found.groupdict()
        if part["scheme"]:
            return f"{part['scheme']}{replacement(part['login'])}{part['end']}"
        if part["in_query"]:
            return f"{part['in_query']}{replacement(unquote(part['quoted']))}{part['quoted_end']}"
        return f"{part['name']}{replacement(unquote(part['value']))}"

    return LOGIN.sub(replace, text)
