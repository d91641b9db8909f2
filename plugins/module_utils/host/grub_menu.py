# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GRUB's menu, as its grub.cfg has it: which kernel an entry boots that is named by number, title or id."""

from __future__ import annotations

import os
import re

_ENTRY = re.compile(r"^\s*(menuentry|submenu)\s+(?:'([^']*)'|\"([^\"]*)\")(.*)\{\s*$")
_ID = re.compile(r"(?:\$menuentry_id_option|--id)[ =]+(?:'([^']*)'|\"([^\"]*)\"|(\S+))")
_KERNEL = re.compile(r"^\s*linux(?:efi|16)?\s+(\S+)")


def parse(text: str) -> list[dict]:
    """Return the entries of the menu in its order: `title`, `id`, `kernel` (the file), `entries` of a submenu."""
    top: list[dict] = []
    stack: list[dict | None] = []
    for line in text.splitlines():
        match = _ENTRY.match(line)
        around = next((entry for entry in reversed(stack) if entry is not None), None)
        if match:
            identity = _ID.search(match.group(4))
            entry: dict = {
                "title": match.group(2) or match.group(3) or "",
                "id": next(filter(None, identity.groups()), None) if identity else None,
                "kernel": None,
                "entries": [],
            }
            (around["entries"] if around else top).append(entry)
            stack.append(entry)
        elif line.rstrip().endswith("{"):
            stack.append(None)  # a function
        elif line.strip() == "}" and stack:
            stack.pop()
        elif around is not None and _KERNEL.match(line):
            around["kernel"] = os.path.basename(_KERNEL.match(line).group(1))  # type: ignore[union-attr]
    return top


def kernel_of(menu: list[dict], path: str) -> str | None:
    """Return the file's name of the kernel that an entry boots, such as 0, 1>2, or titles and ids joined by >."""
    entries, chosen = menu, None
    for step in path.split(">"):
        if step.isdigit():
            chosen = entries[int(step)] if int(step) < len(entries) else None
        else:
            chosen = next((entry for entry in entries if step in (entry["title"], entry["id"])), None)
        if chosen is None:
            return None
        entries = chosen["entries"]
    # A submenu boots its own first entry.
    while chosen is not None and chosen["entries"]:
        chosen = chosen["entries"][0]
    return chosen["kernel"] if chosen else None
