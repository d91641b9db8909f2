# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses as messages may show them: without the login that a mirror or a proxy may want."""

from __future__ import annotations

import re

# The second form is an address in the query of another one, as zypper is told of a proxy.
_LOGIN = re.compile(r"(?<=://)\S*(@)|(?<=%3a%2f%2f)[^\s&]*(%40)", re.IGNORECASE)


def masked(text: str) -> str:
    """Return a text without the logins of the addresses in it. Rather more than too little is left out."""
    return _LOGIN.sub(lambda found: f"...{found.group(1) or found.group(2)}", text)


def refused(text: str) -> str:
    """Return a text that was to be an address and is none, without what could be a login."""
    return re.sub(r"[^\s/@]+@", "...@", masked(text))
