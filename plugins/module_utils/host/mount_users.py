# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of a host: their start times, and which of them have a directory mounted."""

from __future__ import annotations

import contextlib
import os
import re
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import container_cgroups

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_START_FIELD = 19  # counted from the field after the command name
_DOCKER_PID_FILES = ("run/docker.pid", "var/run/docker.pid")


class MountUser(NamedTuple):
    """A process, and the ID of its container."""

    pid: int
    command: str
    container: str | None = None

    def __str__(self) -> str:
        return f"process {self.pid} ({shown(self.command)})" + (
            f" of container {self.container[:12]}" if self.container else ""
        )


def docker_started(root: str = "/") -> float | None:
    """Return the start time of dockerd in seconds since 1970, or None without a PID file."""
    for path in _DOCKER_PID_FILES:
        pid = (_text(root, path) or "").strip()
        if pid.isdigit():
            return started(int(pid), root)
    return None


def started(pid: int, root: str = "/") -> float | None:
    """Return the start time of a process in seconds since 1970."""
    fields = (_text(root, f"proc/{pid}/stat") or "").rpartition(")")[2].split()
    booted = re.search(r"^btime (\d+)$", _text(root, "proc/stat") or "", re.MULTILINE)
    if booted is None or len(fields) <= _START_FIELD:
        return None
    return int(booted.group(1)) + int(fields[_START_FIELD]) / _TICKS_PER_SECOND


def mount_users(directory: str, root: str = "/") -> list[MountUser]:
    """Return one process of each mount namespace that has `directory` or a part of it mounted.

    The mount tables of processes cover every engine. Engines do not list the mounts of a CDI specification, and the
    containers of Kubernetes belong to no engine that the modules query.
    """
    proc = os.path.join(root, "proc")
    device, path = _location(os.path.realpath(directory), _mounts(os.path.join(proc, "self/mountinfo")))
    # If this host is a container itself, the ID of that container can be part of every cgroup name.
    own_containers = set(_containers(os.path.join(proc, "self")))
    namespaces, found = set(), []
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdigit()):
        # A process may end at any time.
        with contextlib.suppress(OSError):
            process = os.path.join(proc, str(pid))
            namespace = os.readlink(os.path.join(process, "ns/mnt"))
            if namespace in namespaces:
                continue
            namespaces.add(namespace)
            for mount_device, mount_root, _point in _mounts(os.path.join(process, "mountinfo")):
                if mount_device == device and (mount_root + "/").startswith(path.rstrip("/") + "/"):
                    with open(os.path.join(process, "comm"), encoding="utf-8", errors="replace") as handle:
                        command = handle.read().strip()
                    containers = [name for name in _containers(process) if name not in own_containers]
                    found.append(MountUser(pid, command, containers[-1] if containers else None))
                    break
    return found


def _text(root: str, path: str) -> str | None:
    try:
        with open(os.path.join(root, path), encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _containers(process: str) -> list[str]:
    """Return the container IDs in the cgroup names of a process, the innermost container last."""
    try:
        with open(os.path.join(process, "cgroup"), encoding="utf-8", errors="replace") as handle:
            return container_cgroups.container_ids(handle.read())
    except OSError:
        return []


def _mounts(path: str) -> list[tuple[str, str, str]]:
    """Return the device, the root in the file system and the mount point of each line of a mountinfo file."""
    with open(path, encoding="utf-8", errors="surrogateescape") as handle:
        lines = [line.split(" ") for line in handle]
    return [(line[2], _unescaped(line[3]), _unescaped(line[4])) for line in lines if len(line) > 5]


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def _location(directory: str, mounts: list[tuple[str, str, str]]) -> tuple[str, str]:
    """Return the device of a directory's file system, and the directory's path in it."""
    best = ("", "", "")
    for device, root, point in mounts:
        # If several file systems are mounted on one mount point, the last one is visible.
        if (directory + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best[2]):
            best = (device, root, point)
    device, root, point = best
    return device, os.path.normpath(os.path.join(root, os.path.relpath(directory, point or "/")))
