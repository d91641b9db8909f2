# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the users that the role adds to group docker, and their removal. Pure functions."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import USER, is_like
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.docker_group import GROUP, SOCKET

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import EngineRequest

_WITHOUT_GROUP = {
    "podman": "Podman has no daemon and needs no group; users run their own containers",
    "containerd": "containerd has no group; only root can use its socket",
}


@dataclasses.dataclass
class Users:
    """The users to add to the group. `record`: all users that the role has added, these included."""

    add: list[str] = dataclasses.field(default_factory=list)
    record: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)


def plan(host: Host, request: EngineRequest, *, installs: bool, is_active: bool) -> Users:
    """Return the users to add. `installs`: the role installs Docker, whose packages create the group."""
    result = Users()
    if request.name != "docker":
        if request.users:
            result.reasons.append(f"container_engine_users is ignored: {_WITHOUT_GROUP[request.name]}")
        return result
    recorded = _recorded(host)
    if not request.users:
        _stay(host, recorded, result)
        return result
    group = host["docker_group"]
    unknown = [name for name in request.users if not group["users"].get(name)]
    if unknown:
        result.problems.append(
            f"container_engine_users contains {', '.join(dict.fromkeys(unknown))}, but this host has no such user. "
            "Nothing was changed. Create the user first, or remove the name."
        )
    if not installs and not group["exists"]:
        result.problems.append(
            f"container_engine_users needs group {GROUP}, which /etc/group does not contain. Nothing was changed. Run "
            f"'groupadd --system {GROUP}' and restart docker.socket and docker.service."
        )
    elif not installs and is_active and group["socket_group"] not in (None, GROUP):
        result.problems.append(
            f"container_engine_users adds users to group {GROUP}, but {SOCKET} belongs to group "
            f"{group['socket_group']}. Nothing was changed. Set SocketGroup={GROUP} in docker.socket, or remove "
            "container_engine_users and add the users to that group yourself."
        )
    members = {*group["members"], *group["primary_members"]}
    result.add = [name for name in dict.fromkeys(request.users) if name not in members]
    if result.add:
        # Somebody else has removed the other recorded users.
        result.record = sorted({*result.add, *(name for name in recorded if name in group["members"])})
    _stay(host, [name for name in recorded if name not in request.users], result)
    return result


def added(host: Host) -> list[str]:
    """Return the members of the group that the role has added."""
    return [name for name in _recorded(host) if name in host["docker_group"]["members"]]


def has_record(host: Host) -> bool:
    """Return whether the role has recorded users."""
    return bool((host["files"].get(owned.ENGINE_USERS) or {}).get("exists"))


def _stay(host: Host, names: list[str], result: Users) -> None:
    """Say which users the role has added and no longer requests. Only `absent` removes them."""
    staying = [name for name in names if name in host["docker_group"]["members"]]
    if staying:
        result.reasons.append(
            f"{', '.join(staying)} stay in group {GROUP}, to which this role added them; to remove a user, run "
            f"'gpasswd --delete USER {GROUP}'"
        )


def _recorded(host: Host) -> list[str]:
    content = observed_files.content(host, owned.ENGINE_USERS)
    try:
        found = json.loads(content or "null")
    except ValueError:
        found = None
    names = found.get("users") if isinstance(found, dict) else None
    return [name for name in names if is_like(USER, name)] if isinstance(names, list) else []
