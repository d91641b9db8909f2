# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has a directory mounted, whichever engine did it: the mount tables of all processes tell.

An engine does not list what a CDI specification mounts, and Kubernetes' containers belong to none that we ask. Which
container a process belongs to is told by its cgroup, which engines name by the container's identifier.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import NamedTuple

_IDENTIFIER = re.compile(r"(?:^|[/-])([0-9a-f]{64})(?=\.scope|/|$)")


class User(NamedTuple):
    """A process, and the identifier of the container that it is in."""

    pid: int
    command: str
    container: str | None = None

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})" + (
            f" of container {self.container[:12]}" if self.container else ""
        )


def users(directory: str, root: str = "/") -> list[User]:
    """List the processes, one of each mount namespace, that have `directory` or something in it mounted."""
    proc = os.path.join(root, "proc")
    device, path = _location(os.path.realpath(directory), _mounts(os.path.join(proc, "self/mountinfo")))
    # Where this runs in a container itself, that one's name may stand before all others.
    around = set(_containers(os.path.join(proc, "self")))
    seen, found = set(), []
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdigit()):
        # Processes come and go while we look.
        with contextlib.suppress(OSError):
            process = os.path.join(proc, str(pid))
            namespace = os.readlink(os.path.join(process, "ns/mnt"))
            if namespace in seen:
                continue
            seen.add(namespace)
            for mount_device, mount_root, _point in _mounts(os.path.join(process, "mountinfo")):
                if mount_device == device and (mount_root + "/").startswith(path.rstrip("/") + "/"):
                    with open(os.path.join(process, "comm"), encoding="utf-8", errors="replace") as handle:
                        command = handle.read().strip()
                    inside = [one for one in _containers(process) if one not in around]
                    found.append(User(pid, command, inside[-1] if inside else None))
                    break
    return found


def _containers(process: str) -> list[str]:
    """List the identifiers of containers in the names of a process's cgroups, the innermost last."""
    try:
        with open(os.path.join(process, "cgroup"), encoding="utf-8", errors="replace") as handle:
            return [found for line in handle for found in _IDENTIFIER.findall(line.rstrip("\n"))]
    except OSError:
        return []


def _mounts(path: str) -> list[tuple[str, str, str]]:
    """Read device, root in the file system, and mount point of each line of a mountinfo file."""
    with open(path, encoding="utf-8", errors="surrogateescape") as handle:
        lines = [line.split(" ") for line in handle]
    return [(line[2], _unescaped(line[3]), _unescaped(line[4])) for line in lines if len(line) > 5]


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def _location(directory: str, mounts: list[tuple[str, str, str]]) -> tuple[str, str]:
    """Return the file system of a directory and its path there."""
    best = ("", "", "")
    for device, root, point in mounts:
        # Of mounts on one point, the last covers the others.
        if (directory + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best[2]):
            best = (device, root, point)
    device, root, point = best
    return device, os.path.normpath(os.path.join(root, os.path.relpath(directory, point or "/")))
