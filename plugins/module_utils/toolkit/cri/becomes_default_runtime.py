# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a vendor's runtime becomes the default one in a drop-in that two roles write. Pure functions.

The role of the vendor's runtime and role gpu_kubernetes_node each have a variable for it. A line in the drop-in says
that the setting is that of gpu_kubernetes_node, so neither role undoes that of the other one.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.role_variables import NODE_ROLE

MARK = f"# The default runtime is a setting of role gpufleet.hosts.{NODE_ROLE}.\n"


def decide(text: str | None, name: str, *, asked: bool, by_node: bool | None) -> tuple[bool, bool]:
    """Return whether the runtime is the default one, and whether the drop-in gets the mark.

    `text`: the drop-in, None without one. `asked`: the variable of the runtime's own role. `by_node`: that of
    gpu_kubernetes_node, None if another role plans.
    """
    has_mark = is_marked(text)
    if by_node is None:
        return asked or has_mark, has_mark and not asked
    is_default = re.search(rf'^\s*default_runtime(_name)?\s*=\s*"{re.escape(name)}"', text or "", re.MULTILINE)
    if is_default and not has_mark:
        return True, False
    return by_node, by_node


def is_marked(text: str | None) -> bool:
    """Return whether role gpu_kubernetes_node has made the runtime of the drop-in the default one."""
    return MARK in (text or "")


def marked(text: str | None) -> str | None:
    """Return a drop-in with the mark after its first line."""
    if text is None:
        return None
    first, _newline, rest = text.partition("\n")
    return f"{first}\n{MARK}{rest}"
