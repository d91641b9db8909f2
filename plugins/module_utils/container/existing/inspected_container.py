# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices and CDI names of a container, read from the engine's inspection result. Any tool may have created it.

A device node can have several paths. The functions take `nodes`, which maps a path to the nodes under the names that
the driver's tools use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import NONE

# What a node gives: access to one device or partition, or only access to the driver (CONTROL). A container gets an
# OPTIONAL node if it exists, but does not require it. None: the node does not belong to the vendor.
ACCESS, CONTROL, OPTIONAL = "access", "control", "optional"
NodeRoles = Mapping[str, "str | None"]
Nodes = Callable[[str], NodeRoles]


@dataclass(frozen=True)
class AssignedGpus:
    """The UUIDs of a container's units, and the isolation that gave access to them.

    `held`: the units of every isolation. `requests`: the device requests of Docker for the vendor's devices.
    `capabilities`: those of the driver that the container has, None if the vendor or the isolation has none.
    """

    uuids: frozenset[str] = frozenset()
    isolation: str = NONE
    held: frozenset[str] = frozenset()
    requests: tuple[Mapping[str, Any], ...] = ()
    capabilities: tuple[str, ...] | None = None


def name_of(container: Mapping[str, Any]) -> str:
    return str(container.get("Name") or container.get("Id") or "").lstrip("/")


def is_running(container: Mapping[str, Any]) -> bool:
    state = container.get("State") or {}
    return bool(state.get("Running")) or state.get("Status") in ("running", "paused", "restarting")


def gpu_nodes(container: Mapping[str, Any], nodes: Nodes) -> dict[str, str]:
    """Return the vendor's device nodes of a container with their roles, including control nodes."""
    devices = (container.get("HostConfig") or {}).get("Devices") or ()
    found = (item for device in devices for item in nodes(device.get("PathOnHost") or "").items())
    return {node: gives for node, gives in found if gives}


def gpu_devices_as_written(container: Mapping[str, Any], nodes: Nodes, exclude: Collection[str]) -> list[str]:
    """Return a container's GPU devices in the notation that the engine's module compares."""
    config, host = container.get("Config") or {}, container.get("HostConfig") or {}
    if "CreateCommand" in config:
        given = option_values(config, "--device")
    else:
        given = []
        for device in host.get("Devices") or ():
            path, target = device.get("PathOnHost") or "", device.get("PathInContainer") or ""
            rights = device.get("CgroupPermissions") or "rwm"
            given.append(path if (target, rights) == (path, "rwm") else f"{path}:{target}:{rights}")
    return [
        device
        for device in given
        if not {device, host_path(device)} & set(exclude) and any(nodes(host_path(device)).values())
    ]


def host_path(device: str) -> str:
    """Return the host path of a device written as host:container:rights. Paths in /dev/char contain a colon."""
    match = re.match(r"^(/dev/char/\d+:\d+|[^:]+)", device)
    return match.group(1) if match else device


def described_requests(requests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return device requests of a container with the keys that community.docker uses."""
    keys = {
        "driver": "Driver",
        "count": "Count",
        "device_ids": "DeviceIDs",
        "capabilities": "Capabilities",
        "options": "Options",
    }
    return [{option: request.get(key) for option, key in keys.items()} for request in requests]


def is_cdi(request: Mapping[str, Any]) -> bool:
    """Return whether a device request of Docker names CDI devices."""
    return request.get("Driver") == "cdi"


def cdi_names(container: Mapping[str, Any], exclude: Collection[str] = ()) -> list[str]:
    """Return the CDI devices of a container, without those of Podman's options in `exclude`.

    Podman stores them only in the command that created the container.
    """
    config = container.get("Config") or {}
    requests = (container.get("HostConfig") or {}).get("DeviceRequests") or ()
    names = [name for request in requests if is_cdi(request) for name in request.get("DeviceIDs") or ()]
    given = option_values(config, "--device")
    return names + [name for name in given if not name.startswith("/") and name not in exclude]


def option_values(config: Mapping[str, Any], option: str) -> list[str]:
    """Return the values of an option in the command that created a Podman container."""
    command = [str(word) for word in config.get("CreateCommand") or []]
    container_command = [str(word) for word in config.get("Cmd") or []]
    if container_command and command[-len(container_command) :] == container_command:
        command = command[: -len(container_command)]
    values = []
    for position, word in enumerate(command):
        if word == option and position + 1 < len(command):
            values.append(command[position + 1])
        elif word.startswith(f"{option}="):
            values.append(word.partition("=")[2])
    return values
