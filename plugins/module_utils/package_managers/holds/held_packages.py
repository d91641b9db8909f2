# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which installed packages the locks of dnf and zypper hold."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text


def locks(root: str, manager: str | None) -> list[str]:
    """Return the locks of dnf or zypper."""
    if manager == "dnf":
        lines = (read_text(root, "/etc/dnf/plugins/versionlock.list") or "").splitlines()
        locks = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith(("#", "!"))]
        toml = read_text(root, "/etc/dnf/versionlock.toml") or ""
        return locks + re.findall(r'^\s*name\s*=\s*"([^"]+)"', toml, re.MULTILINE)
    if manager == "zypper":
        return re.findall(r"^solvable_name:\s*(\S+)", read_text(root, "/etc/zypp/locks") or "", re.MULTILINE)
    return []


def lock_covers(pattern: str, name: str, version: str) -> bool:
    """Return whether a lock covers a package: `name`, `name*`, or `name-[epoch:]version-release[.arch]` with globs."""
    bare = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    epoch, _colon, rest = version.rpartition(":")
    candidates = (name, f"{name}-{rest}", f"{name}-{epoch or '0'}:{rest}")
    return any(re.fullmatch(bare + r"(\.\w+)?", candidate) for candidate in candidates) or any(
        re.fullmatch(bare, f"{candidate}.") for candidate in candidates
    )


def locked(patterns: list[str], copies: dict[str, list[tuple[str, str]]]) -> set[str]:
    """Return the packages that locks hold."""
    return {
        name
        for name, entries in (copies.items() if patterns else ())
        if any(lock_covers(pattern, name, entries[-1][0]) for pattern in patterns)
    }
