# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sort versions, and find the upstream version in the version of a package."""

from __future__ import annotations

import re

# No version, index or ID has more digits. Python raises ValueError for a number with thousands of digits.
_MOST_DIGITS = 18


def whole_number(digits: str) -> int:
    """Return the number for digits of a host, a package or an image. Longer numbers all count as the same one."""
    number = digits.lstrip("0") or "0"
    return int(number) if len(number) <= _MOST_DIGITS else 10**_MOST_DIGITS


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key for versions and kernel releases: 6.9 comes before 6.12."""
    parts = re.findall(r"[0-9]+|[^0-9.]+", text)
    return [(1, whole_number(part), "") if part[0] in "0123456789" else (0, 0, part) for part in parts]


def upstream_version(version: str | None) -> str:
    """Remove the epoch, the revision and SUSE's kernel suffix: 1:535.261.03-1~deb12u1 becomes 535.261.03."""
    bare = re.sub(r"^\d+:", "", version or "")
    return re.split(r"[-+~]|_k\d", bare, maxsplit=1)[0]
