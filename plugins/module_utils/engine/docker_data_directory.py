# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Docker's data directory contains, and which change of daemon.json would hide it."""

from __future__ import annotations

import glob
import os
import re
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import DockerData, Host

DEFAULT_ROOT = "/var/lib/docker"
# What Docker keeps in its directory, as patterns for one file or directory of each. With the containerd image store,
# images are in containerd's directory, which data-root does not change.
_KINDS = {
    "containers": "containers/*/config.v2.json",
    "images": "image/*/imagedb/content/sha256/*",
    "volumes": "volumes/*/_data",
}
# With userns-remap, the directory of the remapped user inside the data directory.
_REMAPPED = re.compile(r"/\d+\.\d+$")


def read(root: str, running: str | None, config: t.Mapping[str, t.Any], flag: t.Any = None) -> DockerData:
    """Count what the data directory contains.

    `running`: the directory of the running daemon. `config`: daemon.json. `flag`: the value of --data-root in the unit.
    """
    place = _REMAPPED.sub("", running) if running else str(flag or configured(config))
    full = os.path.join(root, place.lstrip("/"))
    places = [full, *glob.glob(os.path.join(glob.escape(full), "[0-9]*.[0-9]*"))]
    found: dict[str, t.Any] = {"root": place, "directory": _without(root, os.path.realpath(full))}
    for kind, pattern in _KINDS.items():
        found[kind] = sum(len(glob.glob(os.path.join(glob.escape(folder), pattern))) for folder in places)
    return t.cast("DockerData", found)


def _without(root: str, path: str) -> str:
    return "/" + os.path.relpath(path, os.path.realpath(root))


def configured(config: t.Mapping[str, t.Any]) -> str:
    """Return the data directory that daemon.json sets."""
    return str(config.get("data-root") or config.get("graph") or DEFAULT_ROOT)


def hidden(host: Host, before: t.Mapping[str, t.Any], after: t.Mapping[str, t.Any]) -> tuple[str, str, str] | None:
    """Return the old and the new data directory, and what Docker would no longer find. None if it finds everything.

    `before` and `after`: daemon.json.
    """
    new = os.path.normpath(configured(after))
    if new == os.path.normpath(configured(before)):
        return None
    data = host["docker_data"]
    counts = [_counted(data[kind], kind) for kind in ("containers", "images", "volumes") if data[kind]]
    if not counts or new in (os.path.normpath(data["root"]), data["directory"]):
        return None
    return data["root"], new, ", ".join(counts)


def remap_problem(host: Host, before: t.Mapping[str, t.Any], after: t.Mapping[str, t.Any]) -> str | None:
    """Refuse to change `userns-remap` of a Docker with data. Return None if nothing would be hidden.

    Docker has one directory for each remapped user: moby/moby, daemon/daemon_unix.go, setupDaemonRoot (v28.5.2).
    """
    old, new = (str(config.get("userns-remap") or "") for config in (before, after))
    if old == new:
        return None
    # With the containerd image store, the images are not in the directory, but Docker would not find them either.
    images = (host["engines"]["docker"].get("info") or {}).get("images")
    data = {**host["docker_data"], "images": images or host["docker_data"]["images"]}
    kinds = [kind for kind in ("containers", "images", "volumes") if data[kind]]
    if not kinds:
        return None
    change = "be removed" if not new else f"change from {old} to {new}" if old else f"be set to {new}"
    remedy = f"Set userns-remap to {old} in" if old else "Remove userns-remap from"
    return (
        f"userns-remap in daemon.json would {change}, which would hide "
        f"{', '.join(_counted(data[kind], kind) for kind in kinds)}, because Docker would use another directory in "
        f"{data['root']}. Nothing was changed. {remedy} container_engine_docker_options, or remove all of these first."
    )


def _counted(number: int, kind: str) -> str:
    return f"{number} {kind if number != 1 else kind[:-1]}"


def problem(old: str, new: str, contents: str) -> str:
    """Return the refusal to hide the data of an installed Docker."""
    return (
        f"data-root in daemon.json would change from {old} to {new}, but {old} has {contents}, which Docker would not "
        f"find in {new}. Nothing was changed. Keep {old} as data-root, or stop docker.socket and docker.service, move "
        f"{old} to {new} and run the role again."
    )
