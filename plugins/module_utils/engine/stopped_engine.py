# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the volumes and containers of a container engine that is not running from its files.

A query would start the engine: systemd's docker.socket starts Docker, and Podman creates its storage on its first call.
Check mode, and runs that must not start the engine, therefore read its files.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import is_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError, EngineVolume

# Processes that listen on behalf of a service that has not started, and services that answer on Docker's socket.
SERVICE_MANAGERS = ("systemd", "init")
SERVERS = ("dockerd", "podman")
# Flag of a listening socket in /proc/net/unix.
LISTENING = 0x10000

# Docker of the system, Canonical's snap package, and rootless Docker.
DOCKER_DATA = ("var/lib/docker", "var/snap/docker/common/var-lib-docker", "home/*/.local/share/docker")
DOCKER_CONFIGURATION = owned.DAEMON_JSON.lstrip("/")
# Files in which distributions and administrators set flags of dockerd.
DOCKER_OPTIONS = (
    "etc/default/docker",
    "etc/sysconfig/docker",
    "etc/systemd/system/docker.service",
    "etc/systemd/system/docker.service.d/*.conf",
    "usr/lib/systemd/system/docker.service",
    "lib/systemd/system/docker.service",
)
DATA_OPTION = re.compile(r"(?:^|[\s\"'])(?:--data-root|--graph|-g)[= ][\"']?([^\s\"']+)")
PODMAN_DATA = "/var/lib/containers/storage"
PODMAN_CONFIGURATION = ("etc/containers/storage.conf", "usr/share/containers/storage.conf")
NEVER = "0001-01-01T00:00:00"


class Use(NamedTuple):
    """A container, and the volumes and directories that it mounts."""

    title: str
    sources: frozenset[str]
    identifier: str = ""

    def shown(self) -> str:
        """Return the title for a message."""
        name, sign, state = self.title.rpartition(" (")
        return shown(name) + sign + state


class StoppedEngine:
    """An engine that must not be started. It reports the volumes and containers on disk, and changes nothing."""

    def __init__(self, name: str, volumes: tuple[EngineVolume, ...] = (), uses: tuple[Use, ...] = ()) -> None:
        self.name, self._volumes, self._uses = name, volumes, uses

    def unavailable_reason(self) -> None:
        """Return None: the engine can be used, because a query would start it."""

    def volume(self, name: str) -> EngineVolume | None:
        """Return the named volume, None if it does not exist."""
        return next((volume for volume in self._volumes if volume.name == name), None)

    def volumes(self, prefix: str) -> list[EngineVolume]:
        """Return the volumes whose names begin with `prefix`."""
        return [volume for volume in self._volumes if volume.name.startswith(prefix)]

    def state_of(self, name: str) -> str | None:
        """Return the state of the named container, None if it does not exist."""
        states = (use.title.rpartition(" (") for use in self._uses)
        return next((state.rstrip(")") for title, _sign, state in states if title == name), None)

    def titles(self) -> dict[str, str]:
        """Return the names and states of all containers by their identifiers."""
        return {use.identifier: use.shown() for use in self._uses}

    def users(self, name: str, directory: str) -> list[str]:
        """Return the containers that mount the volume or its directory. With live-restore they may be running."""
        inside = os.path.realpath(directory)
        return sorted(
            use.shown()
            for use in self._uses
            if any(source == name or _is_below(source, inside) for source in use.sources)
        )


def _is_below(source: str, directory: str) -> bool:
    return source.startswith("/") and (os.path.realpath(source) + "/").startswith(directory + "/")


# The package podman-docker links Docker's socket to this one.
_PODMAN_SOCKET = "podman.sock"


def is_socket_activated(path: str, root: str = "/") -> bool:
    """Return whether a connection to the socket at `path` would start its service.

    This is the case if only the service manager listens on the socket. It does not count for Podman's socket, because
    Podman has no daemon: its service ends after seconds, and a request is the only way to see that it is Podman.
    """
    if os.path.basename(os.path.realpath(path)) == _PODMAN_SOCKET:
        return False
    proc = os.path.join(root, "proc")
    listening = _listening(path, proc)
    if not listening:
        return False
    for pid in _pids(proc):
        # A process may end at any time, and only root can read the files of other users' processes.
        with contextlib.suppress(OSError):
            with open(os.path.join(proc, pid, "comm"), encoding="utf-8", errors="replace") as handle:
                command = handle.read().strip()
            if command in SERVICE_MANAGERS:
                continue
            try:
                if listening & _sockets(os.path.join(proc, pid, "fd")):
                    return False
            except PermissionError:
                if command in SERVERS:
                    return False
    return True


def _listening(path: str, proc: str) -> set[str]:
    """Return the sockets that listen at `path`."""
    found, expected = set(), os.path.realpath(path)
    with contextlib.suppress(OSError), open(os.path.join(proc, "net/unix"), encoding="utf-8", errors="replace") as file:
        for line in file:
            # Num RefCount Protocol Flags Type St Inode Path
            fields = line.rstrip("\n").split(None, 7)
            is_listening = len(fields) == 8 and fields[7].startswith("/") and int(fields[3], 16) & LISTENING
            if is_listening and os.path.realpath(fields[7]) == expected:
                found.add(f"socket:[{fields[6]}]")
    return found


def _pids(proc: str) -> list[str]:
    return sorted((name for name in os.listdir(proc) if name.isdigit()), key=int)


def _sockets(directory: str) -> set[str]:
    found = set()
    for name in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(os.path.join(directory, name)))
    return found


def docker(root: str = "/") -> StoppedEngine:
    """Read the volumes and containers of Docker."""
    volumes, uses = [], []
    for data in _docker_data(root):
        volumes += _docker_volumes(data)
        uses += _docker_uses(data)
    return StoppedEngine("docker", tuple(volumes), tuple(uses))


def _docker_data(root: str) -> list[str]:
    """List the possible data directories of Docker, each with its subdirectories for remapped users."""
    places = [place for pattern in DOCKER_DATA for place in glob.glob(os.path.join(glob.escape(root), pattern))]
    with contextlib.suppress(OSError, ValueError, AttributeError):
        with open(os.path.join(root, DOCKER_CONFIGURATION), encoding="utf-8-sig") as file:
            configuration = json.load(file)
        places += [_inside(root, configuration[key]) for key in ("data-root", "graph") if configuration.get(key)]
    for pattern in DOCKER_OPTIONS:
        for path in glob.glob(os.path.join(glob.escape(root), pattern)):
            with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                places += [_inside(root, place) for place in DATA_OPTION.findall(file.read())]
    found = {}
    for place in places:
        for directory in (place, *glob.glob(os.path.join(glob.escape(place), "[0-9]*.[0-9]*"))):
            found[os.path.realpath(directory)] = None
    return list(found)


def _inside(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def _docker_volumes(data: str) -> Iterator[EngineVolume]:
    for name in _listing(os.path.join(data, "volumes")):
        directory = os.path.join(data, "volumes", name)
        if not os.path.isdir(directory):
            continue
        # The file does not exist for a volume without options or while a volume is being created.
        options = _json(os.path.join(directory, "opts.json"))
        bound = "bind" in str(options.get("MountOpts") or "").split(",")
        yield EngineVolume(name, "local", options.get("MountDevice") if bound else None)


def _docker_uses(data: str) -> Iterator[Use]:
    for name in _listing(os.path.join(data, "containers")):
        container = _json(os.path.join(data, "containers", name, "config.v2.json"))
        if not container:
            continue
        sources = set()
        for mount in (container.get("MountPoints") or {}).values():
            sources.update(part for part in (mount.get("Name"), mount.get("Source")) if part)
        title = (container.get("Name") or "").lstrip("/") or name[:12]
        yield Use(f"{title} ({_docker_state(container.get('State') or {})})", frozenset(sources), name)


def _docker_state(state: dict) -> str:
    if state.get("Paused"):
        return "paused"
    if state.get("Running"):
        return "running"
    return "created" if str(state.get("StartedAt") or NEVER).startswith(NEVER) else "exited"


def podman(root: str = "/") -> StoppedEngine | None:
    """Return an empty engine if Podman has never been called, None if it has storage and can be queried."""
    return None if any(os.path.isdir(directory) for directory in podman_data(root)) else StoppedEngine("podman")


def podman_data(root: str = "/") -> list[str]:
    """List the storage directories of Podman, which it creates on its first call."""
    if not is_root():
        data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
        return [_inside(root, os.path.join(data, "containers/storage"))]
    places = [_inside(root, PODMAN_DATA)]
    for path in PODMAN_CONFIGURATION:
        with contextlib.suppress(OSError), open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            given = re.findall(r"^\s*graphroot\s*=\s*[\"']([^\"']+)[\"']", file.read(), re.MULTILINE)
            places += [_inside(root, place) for place in given]
    return places


def _listing(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise EngineError(
            f"Docker is not running, and {directory} cannot be read: {error.strerror}. Set become: true, or start "
            "Docker."
        ) from error


def _json(path: str) -> dict:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
