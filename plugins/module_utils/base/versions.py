# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sort versions, and find the upstream version in the version of a package."""

from __future__ import annotations

import re


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key for versions and kernel releases: 6.9 comes before 6.12."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"\d+|[^\d.]+", text)]


def upstream_version(version: str | None) -> str:
    """Remove the epoch, the revision and SUSE's kernel suffix: 1:535.261.03-1~deb12u1 becomes 535.261.03."""
    bare = re.sub(r"^\d+:", "", version or "")
    return re.split(r"[-+~]|_k\d", bare, maxsplit=1)[0]
