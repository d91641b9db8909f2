# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observe group docker, whose members may use Docker's socket.

Docker's packages create the group, and docker.socket gives the socket to it: moby/moby,
contrib/init/systemd/docker.socket (b985e23); docker/docker-ce-packaging, deb/common/docker-ce.postinst and
rpm/SPECS/docker-ce.spec (2f12fe8).
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import DockerGroup

GROUP = "docker"
SOCKET = "/run/docker.sock"


def read(root: str, users: t.Iterable[str], find_user: t.Callable[[str], bool] | None = None) -> DockerGroup:
    """Return the members of the group, the group of the socket, and whether each of `users` exists.

    `find_user` looks up a user outside /etc/passwd, for example in a directory service. It is not called for members.
    """
    groups = _entries(root, "/etc/group", 4)
    own = next((entry for entry in groups if entry[0] == GROUP), None)
    accounts = {entry[0]: entry[3] for entry in _entries(root, "/etc/passwd", 4)}
    members = [name for name in own[3].split(",") if name] if own else []
    known = {*accounts, *members}
    return {
        "exists": own is not None,
        "members": members,
        "primary_members": sorted(name for name, group in accounts.items() if own and group == own[2]),
        "users": {name: name in known or bool(find_user and find_user(name)) for name in users},
        "socket_group": _socket_group(root, groups),
    }


def _entries(root: str, path: str, length: int) -> list[list[str]]:
    lines = (line.split(":") for line in (read_text(root, path) or "").splitlines())
    return [fields for fields in lines if len(fields) >= length]


def _socket_group(root: str, groups: list[list[str]]) -> str | None:
    """Return the name of the socket's group, its number if it has no name, or None without a socket."""
    try:
        number = str(os.stat(os.path.join(root, SOCKET.lstrip("/"))).st_gid)
    except OSError:
        return None
    return next((entry[0] for entry in groups if entry[2] == number), number)
