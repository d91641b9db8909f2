# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read files of a host. A missing file is not an error.

This file must not import `re`, which loads slowly: the facts program uses this file before it starts NVML.
"""

from __future__ import annotations

import os


def read_text(root: str, path: str, limit: int | None = None, newline: str | None = None) -> str | None:
    """Return the text of a file below `root`, or None if it cannot be read. `newline`: "" keeps the line ends."""
    try:
        with open(os.path.join(root, path.lstrip("/")), encoding="utf-8", errors="replace", newline=newline) as handle:
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
