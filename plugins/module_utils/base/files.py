# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions that read files of a host, and parse common values. They do not fail if a file is missing."""

from __future__ import annotations

import os
import re


def read_text(root: str, path: str, limit: int | None = None) -> str | None:
    """Return the text of a file below `root`, or None if it cannot be read."""
    try:
        with open(os.path.join(root, path.lstrip("/")), encoding="utf-8", errors="replace") as handle:
            return handle.read() if limit is None else handle.read(limit)
    except OSError:
        return None


def read_bytes(root: str, path: str, limit: int) -> bytes | None:
    """Return the first `limit` bytes of a file below `root`, or None if it cannot be read."""
    try:
        with open(os.path.join(root, path.lstrip("/")), "rb") as handle:
            return handle.read(limit)
    except OSError:
        return None


def listing(root: str, path: str) -> list[str]:
    """Return the sorted names in a directory below `root`."""
    try:
        return sorted(os.listdir(os.path.join(root, path.lstrip("/"))))
    except OSError:
        return []


def exists(root: str, path: str) -> bool:
    """Return whether a path below `root` exists. A dangling symlink exists."""
    return os.path.lexists(os.path.join(root, path.lstrip("/")))


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key for versions and kernel releases: 6.9 comes before 6.12."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"\d+|[^\d.]+", text)]


def upstream_version(version: str | None) -> str:
    """Remove the epoch, the revision and SUSE's kernel suffix: 1:535.261.03-1~deb12u1 becomes 535.261.03."""
    bare = re.sub(r"^\d+:", "", version or "")
    return re.split(r"[-+~]|_k\d", bare, maxsplit=1)[0]


def shell_assignments(text: str | None) -> dict[str, str]:
    """Parse NAME=value lines and remove quotes (os-release, grubenv, /etc/default/grub)."""
    found = {}
    for line in (text or "").splitlines():
        match = re.match(r"^\s*([A-Za-z_][A-Za-z0-9_]*)=(.*?)\s*$", line)
        if match:
            value = match.group(2)
            if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1]
            found[match.group(1)] = value
    return found
