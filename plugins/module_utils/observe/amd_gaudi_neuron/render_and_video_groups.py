# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The members of the groups that the device nodes of accelerators belong to, render and video."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text


def former_users(root: str, vendors: Iterable[str]) -> dict[str, list[str]]:
    """Return the members of the groups if a role added users for a vendor whose devices are gone."""
    others = [path for vendor, path in owned.ACCELERATOR_USERS.items() if vendor not in vendors]
    return members(root) if any(os.path.lexists(os.path.join(root, path.lstrip("/"))) for path in others) else {}


def members(root: str) -> dict[str, list[str]]:
    """Return the members of the groups that device nodes belong to, by name."""
    lines = (line.split(":") for line in (read_text(root, "/etc/group") or "").splitlines())
    return {line[0]: [name for name in line[3].split(",") if name] for line in lines if line[0] in ("render", "video")}
