# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker's image stores, and whether a change of the version or of daemon.json would hide the contents of the used one.

The stores do not share containers and images: docker/docs, content/manuals/engine/storage/containerd.md (00ba4d3).
Volumes belong to no store. The choice of the store: moby/moby, daemon/image_store_choice.go (docker-v29.1.2) and
daemon/daemon.go (v23.0.0, v24.0.0, v28.5.2).
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import plain_version, version_key

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# The storage driver of the containerd image store. Drivers of Docker's own store have other names.
_STORE = "overlayfs"
_OTHER_DRIVERS = ("aufs", "btrfs", "devicemapper", "fuse-overlayfs", "overlay", "overlay2", "vfs", "zfs")
_FEATURE = "containerd-snapshotter"
# The first version that can use the store, and the first one that uses it by default.
_FIRST, _DEFAULT_SINCE = (24,), (29,)


def problem(host: Host, before: t.Mapping[str, t.Any], after: t.Mapping[str, t.Any], version: str | None) -> str | None:
    """Refuse to hide the containers and images of the running Docker. Return None if it keeps its store.

    `before` and `after`: daemon.json. `version`: Docker's version after the role.
    """
    info = host["engines"]["docker"].get("info") or {}
    driver = info.get("storage_driver")
    if driver not in (_STORE, *_OTHER_DRIVERS) or not version_key(version):
        return None
    counts = {"containers": host["docker_data"]["containers"], "images": info.get("images") or 0}
    contents = ", ".join(f"{number} {kind if number != 1 else kind[:-1]}" for kind, number in counts.items() if number)
    kinds = " and ".join(kind for kind, number in counts.items() if number)
    running = str(info.get("server_version"))
    remedy = _remedy(host, after, driver, version)
    if not contents or not remedy or _remedy(host, before, driver, running):
        return None
    is_by_version = bool(_remedy(host, before, driver, version))
    change = f"Docker from {plain_version(running)} to {plain_version(version)}" if is_by_version else "daemon.json"
    store = "the containerd image store" if driver == _STORE else f"storage driver {driver}"
    return (
        f"Changing {change} would hide {contents}, because Docker would no longer use {store}, "
        f"which contains them. Nothing was changed. {remedy}, or remove these {kinds} first."
    )


def _remedy(host: Host, config: t.Mapping[str, t.Any], driver: str, version: str | None) -> str:
    """Return what to do so that Docker uses the driver, or nothing if it does."""
    number, storage = version_key(version), config.get("storage-driver")
    feature = _features(host, config).get(_FEATURE, driver == _STORE and number >= _DEFAULT_SINCE)
    if driver != _STORE:
        if feature and number >= _FIRST:
            return f"Remove features.{_FEATURE} from container_engine_docker_options"
        is_other = bool(storage) and storage != driver
        return f"Set storage-driver to {driver} in container_engine_docker_options" if is_other else ""
    if storage in _OTHER_DRIVERS:
        return "Remove storage-driver"
    if number < _FIRST:
        return "Request Docker 24.0 or later"
    return "" if feature else f"Set features.{_FEATURE} to true in container_engine_docker_options"


def _features(host: Host, config: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the features in daemon.json and in the flags of the unit."""
    features = config.get("features")
    found = dict(features) if isinstance(features, dict) else {}
    for flag in host["docker_daemon_json"]["flags"]:
        if flag["key"] == "features":
            found.update({word.partition("=")[0]: word.partition("=")[2] in ("", "true") for word in flag["value"]})
    return found
