# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe what nvidia-docker 1 and 2 left on a host that has traces of them.

Docker is not queried: while the volume plugin of nvidia-docker 1.0 is gone, each query of its volumes takes 15 seconds.
The places: NVIDIA/nvidia-docker, tag v1.0.1, build/ and src/nvidia-docker-plugin; moby/moby, pkg/plugins/discovery.go.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import TYPE_CHECKING, Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import (
    exists,
    listing,
    read_bytes,
    read_text,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import systemd_units
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import (
    docker_volume_database,
    expired_copies_of_apt_key,
    traces,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import NvidiaDocker

Run = Callable[["list[str]"], "tuple[int, str, str]"]

DRIVER, DATA, UNITS = traces.DRIVER, traces.DATA, traces.UNITS
UNIT = "nvidia-docker.service"
SPECIFICATIONS = traces.SPECIFICATIONS
SOCKETS = (f"{DATA}/nvidia-docker.sock", traces.SOCKET)
_LARGEST = 1024 * 1024
_LARGEST_DATABASE = 64 * 1024 * 1024
# The files of package nvidia-docker, which a purge removes.
OF_PACKAGE = (*UNITS[1:], *traces.SETTINGS, "/usr/bin/nvidia-docker-plugin", "/usr/bin/nvidia-docker")
# The files that a purge of old packages deletes with the user's changes, and their copies.
KEPT = {
    owned.DAEMON_JSON: owned.MIGRATION_DAEMON_JSON,
    "/etc/nvidia-container-runtime/config.toml": f"{owned.MIGRATION}/config.toml",
}
RECORD = f"{owned.MIGRATION}/files.json"
# The state of a copy against its file.
EQUAL, DIFFERENT, GONE = "equal", "different", "gone"


def read(root: str, docker: str, run: Run) -> NvidiaDocker:
    """Return the traces. `docker`: Docker's data directory."""
    place = os.path.join(root, docker.lstrip("/"))
    database = read_bytes(place, "volumes/metadata.db", _LARGEST_DATABASE) or b""
    state = systemd_units.read([UNIT], run).get(UNIT) or {}
    return {
        "files": _distinct(root, [path for path in traces.FILES if exists(root, path)]) + _wrappers(root),
        "hooks": traces.hooks(root),
        "has_user": traces.has_user(root),
        "service": {name: state.get(name) for name in ("load_state", "active_state", "unit_file_state")},
        "answers": any(answers(os.path.join(root, path.lstrip("/"))) for path in SOCKETS),
        "volumes": _volumes(database) if DRIVER.encode() in database else [],
        "containers": _containers(place),
        "keys": expired_copies_of_apt_key.read(root, time.time()),
        "saved": traces.saved(root),
        "copies": {path: state for path in KEPT if (state := _copy_state(root, path))},
    }


def _distinct(root: str, paths: list[str]) -> list[str]:
    """Leave out the second name of a file. On most systems, /lib is a link to /usr/lib."""
    found: dict[str, str] = {}
    for path in paths:
        found.setdefault(os.path.realpath(os.path.join(root, path.lstrip("/"))), path)
    return list(found.values())


def _wrappers(root: str) -> list[str]:
    """Return the programs of nvidia-docker 1.0. Those of nvidia-docker 2 and of this collection are scripts."""
    return [
        path
        for path in ("/usr/bin/nvidia-docker", "/usr/local/bin/nvidia-docker")
        if read_bytes(root, path, 4) == b"\x7fELF"
    ]


def _copy_state(root: str, path: str) -> str | None:
    """Compare a file with its copy. Without a complete copy, the migration saves the file again."""
    copy = read_bytes(root, KEPT[path], _LARGEST)
    if copy is None or path not in _json(root, RECORD):
        return None
    current = read_bytes(root, path, _LARGEST)
    return GONE if current is None else EQUAL if current == copy else DIFFERENT


def answers(path: str) -> bool:
    """Return whether a program listens on a socket."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(1)
    try:
        client.connect(path)
    except OSError:
        return False
    finally:
        client.close()
    return True


def _volumes(database: bytes) -> list[str] | None:
    """Return the volumes of the plugin that Docker knows. None: the database cannot be read."""
    try:
        values = [json.loads(value) for value in docker_volume_database.read(database, b"volumes").values()]
        return sorted(value["Name"] for value in values if value.get("Driver") == DRIVER)
    except (docker_volume_database.BoltError, ValueError, KeyError, AttributeError):
        return None


def _containers(docker: str) -> list[dict[str, Any]]:
    """Describe the containers that use the plugin or a runtime other than Docker's."""
    found = []
    for name in listing(docker, "containers"):
        config = _json(docker, f"containers/{name}/config.v2.json")
        settings = _json(docker, f"containers/{name}/hostconfig.json")
        mounts = config.get("MountPoints")
        points = [point for point in (mounts if isinstance(mounts, dict) else {}).values() if isinstance(point, dict)]
        volumes = sorted(str(point.get("Name")) for point in points if point.get("Driver") == DRIVER)
        uses_plugin = bool(volumes) or settings.get("VolumeDriver") == DRIVER
        runtime = str(settings.get("Runtime") or "")
        if uses_plugin or (runtime not in ("", "runc") and not runtime.startswith("io.containerd.")):
            state = config.get("State")
            found.append(
                {
                    "id": name,
                    "name": str(config.get("Name") or name[:12]).lstrip("/"),
                    "running": bool(isinstance(state, dict) and state.get("Running")),
                    "runtime": runtime,
                    "volumes": volumes,
                    "plugin": uses_plugin,
                }
            )
    return sorted(found, key=lambda container: container["name"])


def _json(root: str, path: str) -> dict[str, Any]:
    try:
        value = json.loads(read_text(root, path) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
