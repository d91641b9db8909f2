# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files of the driver volume an existing container mounts, lacks and keeps. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import option_values


def has_mount(container: Mapping[str, Any], mount: str) -> bool:
    """Return whether a container has the mount `source:/directory:ro`. The source is a volume or a path."""
    volume, directory, _mode = mount.split(":")
    return any(
        volume in (entry.get("Name"), entry.get("Source"))
        and entry.get("Destination") == directory
        and not entry.get("RW")
        for entry in container.get("Mounts") or ()
    )


def missing_files(container: Mapping[str, Any], mounts: Sequence[str]) -> list[str]:
    """Return the targets of the mounts `source:target:ro` that a container lacks."""
    present = {entry.get("Destination") for entry in container.get("Mounts") or () if not entry.get("RW")}
    targets = [mount.rsplit(":", 2)[1] for mount in mounts]
    return [target for target in targets if target not in present]


def kept_files(container: Mapping[str, Any], mounts: Sequence[str]) -> tuple[str, ...]:
    """Return the mounts, and the container's other mounts of files of the same driver volume, as written."""
    return (*mounts, *(mount for mount in present_files(container, mounts) if mount not in mounts))


def present_files(container: Mapping[str, Any], mounts: Sequence[str]) -> tuple[str, ...]:
    """Return the container's mounts of files of the driver volume of `mounts`, as written."""
    config, host = container.get("Config") or {}, container.get("HostConfig") or {}
    present = option_values(config, "--volume") if "CreateCommand" in config else host.get("Binds") or ()
    directories = {mount.split(":")[0].rsplit("/", 2)[0] + "/" for mount in mounts}
    return tuple(mount for mount in present if mount.startswith(tuple(directories)))
