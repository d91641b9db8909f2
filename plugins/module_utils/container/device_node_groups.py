# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which user of a container opens the device nodes of its GPUs, and which groups it needs for that.

The nodes of some drivers are open to everybody (0666), those of others only to a group.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

# Podman's word for the groups of the user who starts the container.
KEEP_GROUPS = "keep-groups"
_OTHERS, _GROUP = 0o006, 0o060


@dataclass(frozen=True)
class NodeGroups:
    """The groups to add to the container, and a warning that names the nodes, or why the groups do not help."""

    # Numbers of the host, or Podman's word for the groups of the user.
    gids: tuple[int | str, ...] = ()
    warnings: tuple[str, ...] = ()


def needed(root: str, nodes: Iterable[str], user: str | None, remedy: str, *, is_mapped: bool = False) -> NodeGroups:
    """Return the groups of the nodes that the user of the container cannot open otherwise.

    `user`: that of the container or of its image; None, 0 and root need no group. `remedy`: what opens nodes that only
    their owner can open. `is_mapped`: the container has a user namespace, in which the groups of the host have other
    numbers.
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
    warnings = [_closed(node, user, remedy) for node in closed[:1]]
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


def needed_rootless(root: str, nodes: Iterable[str], engine: str, given: Iterable[str] = ()) -> NodeGroups:
    """Return the groups of a container of a rootless engine, in which root is the user of the engine.

    `given`: the groups in the user's options.
    """
    closed: dict[int, list[str]] = {}
    for node in nodes:
        try:
            status = os.stat(os.path.join(root, node.lstrip("/")))
        except OSError:
            continue
        if status.st_mode & _OTHERS != _OTHERS and status.st_mode & _GROUP == _GROUP:
            closed.setdefault(status.st_gid, []).append(node)
    if not closed:
        return NodeGroups()
    named = "; ".join(f"group {gid} owns {', '.join(found)}" for gid, found in sorted(closed.items()))
    others = [str(group) for group in given if str(group) != KEEP_GROUPS]
    text = None
    if set(closed) - {*os.getgroups(), os.getegid()}:
        text = f"the user of rootless {engine} is not in all groups of the device nodes: {named}. Add the user."
    elif engine != "podman":
        text = (
            f"rootless {engine} gives the groups of the user to no container, so its processes cannot open the device "
            f"nodes: {named}. Use Podman, or the engine of the system."
        )
    elif others:
        text = (
            f"engine_options.group_add={','.join(others)} cannot be combined with {KEEP_GROUPS}, through which a "
            f"rootless container can open the device nodes: {named}. Remove it."
        )
    return NodeGroups(warnings=(text,)) if text else NodeGroups((KEEP_GROUPS,))


def _closed(node: str, user: str | None, remedy: str) -> str:
    return f"user {user} cannot open device node {node}: only its owner can. {remedy}, or run the container as root."


class NodeUser(NamedTuple):
    """Who opens the device nodes in a container: its user, and whether it has a user namespace of its own."""

    user: str
    is_mapped: bool


def node_user(engine: str, options: Mapping[str, Any], image_user: str, *, remaps: bool = False) -> NodeUser:
    """Return the user of a container. `remaps`: whether the engine gives containers a user namespace by default."""
    namespace = options.get("userns_mode" if engine == "docker" else "userns")
    return NodeUser(str(options.get("user") or image_user or ""), namespace != "host" and bool(namespace or remaps))
