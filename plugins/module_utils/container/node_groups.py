# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The groups that the user of a container needs to open the device nodes of its GPUs.

The driver's nodes are usually open to everybody (0666). NVreg_DeviceFileMode can restrict them to a group.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

_OTHERS, _GROUP = 0o006, 0o060


@dataclass(frozen=True)
class NodeGroups:
    """The groups to add to the container, and a warning that names the nodes, or why the groups do not help."""

    gids: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()


def needed(root: str, nodes: Iterable[str], user: str | None, *, is_mapped: bool = False) -> NodeGroups:
    """Return the groups of the nodes that the user of the container cannot open otherwise.

    `user`: that of the container or of its image; None, 0 and root need no group. `is_mapped`: the container has a user
    namespace, in which the groups of the host have other numbers.
    """
    if (user or "").partition(":")[0] in ("", "0", "root"):
        return NodeGroups()
    groups: dict[int, list[str]] = {}
    closed = []
    for node in nodes:
        try:
            status = os.stat(os.path.join(root, node.lstrip("/")))
        except OSError:
            continue
        if status.st_mode & _OTHERS == _OTHERS:
            continue
        if status.st_mode & _GROUP == _GROUP:
            groups.setdefault(status.st_gid, []).append(node)
        else:
            closed.append(node)
    warnings = [_closed(node, user) for node in closed[:1]]
    if not groups:
        return NodeGroups(warnings=tuple(warnings))
    named = "; ".join(f"group {gid} owns {', '.join(found)}" for gid, found in sorted(groups.items()))
    if is_mapped:
        warnings.append(
            f"user {user} cannot open all device nodes ({named}), and the container has a user namespace, in which "
            "groups of the host have other numbers. With rootless Podman, set engine_options: {group_add: "
            "[keep-groups]}, and add the user on the host to the group."
        )
        return NodeGroups(warnings=tuple(warnings))
    warnings.append(f"user {user} can open the device nodes only through their groups, which are added: {named}.")
    return NodeGroups(tuple(sorted(groups)), tuple(warnings))


def _closed(node: str, user: str | None) -> str:
    return (
        f"user {user} cannot open device node {node}: only its owner can. Set the module option "
        "NVreg_DeviceFileMode=0666 or NVreg_DeviceFileGID, or run the container as root."
    )
