# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse files of NAME=value lines, such as /etc/os-release."""

from __future__ import annotations

import re


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
