# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a container has, read from the engine's inspection result. Any tool may have created the container.

A device node can have several paths. The functions take `nodes`, which maps a path to the nodes under the names that
the driver's tools use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import Holder
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import NONE
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState

LABEL_GPUS = "gpufleet.gpus"
LABEL_ISOLATION = "gpufleet.isolation"
LABEL_CAPABILITIES = "gpufleet.capabilities"
LABEL_EXCLUSIVE = "gpufleet.exclusive"
LABEL_FEATURES = "gpufleet.features"
# The name of the container. It proves that the labels are not those of an image made from another container.
LABEL_CONTAINER = "gpufleet.container"
_ACCESS_LABELS = (LABEL_GPUS, LABEL_ISOLATION, LABEL_CAPABILITIES, LABEL_EXCLUSIVE)
LABELS = (*_ACCESS_LABELS, LABEL_FEATURES, LABEL_CONTAINER)
# A key that this module adds to an inspection result: the labels of the container's image.
IMAGE_LABELS = "gpufleet_image_labels"

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


def labels_of(container: Mapping[str, Any]) -> Mapping[str, str]:
    return (container.get("Config") or {}).get("Labels") or {}


def are_labels_proven(container: Mapping[str, Any]) -> bool:
    """Return whether the container was created with all labels of this module, which replace those of its image."""
    return labels_of(container).get(LABEL_CONTAINER) == name_of(container)


def own_labels(container: Mapping[str, Any], image_labels: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the labels that this module set on the container.

    An engine shows the labels of the image as those of the container. A renamed container does not prove its labels, so
    a label that the image has, too, says nothing.
    """
    labels = {name: value for name, value in labels_of(container).items() if name in LABELS}
    if are_labels_proven(container):
        return labels
    inherited = image_labels or container.get(IMAGE_LABELS) or {}
    labels = {name: value for name, value in labels.items() if inherited.get(name) != value}
    if not {LABEL_GPUS, LABEL_ISOLATION} <= set(labels):
        # The module sets them together.
        labels = {name: value for name, value in labels.items() if name not in _ACCESS_LABELS}
    return labels


def labeled_gpus(container: Mapping[str, Any]) -> frozenset[str]:
    """Return the GPUs in the label that this module sets."""
    return frozenset(uuid for uuid in own_labels(container).get(LABEL_GPUS, "").split(",") if uuid)


def is_exclusive(container: Mapping[str, Any]) -> bool:
    """Return whether this module assigned the GPUs exclusively."""
    return own_labels(container).get(LABEL_EXCLUSIVE) == "true"


def is_running(container: Mapping[str, Any]) -> bool:
    state = container.get("State") or {}
    return bool(state.get("Running")) or state.get("Status") in ("running", "paused", "restarting")


def holding_state(container: Mapping[str, Any]) -> str | None:
    """Return the state in which a container holds its GPUs, or None if it does not hold them.

    A running, paused or restarting container holds its GPUs. A stopped container holds them if the engine starts it
    again: with the restart policy `always`, or with `unless-stopped` if nobody stopped it. Then it was never started,
    or its last start failed, for example at boot.
    """
    details = container.get("State") or {}
    state = details.get("Status") or ("running" if is_running(container) else "exited")
    if is_running(container):
        return state
    if state == "dead":
        return None  # Its removal failed halfway, and Docker never starts it again.
    policy = ((container.get("HostConfig") or {}).get("RestartPolicy") or {}).get("Name") or ""
    is_waiting = state in ("created", "configured", "initialized") or bool(details.get("Error"))
    if policy == "always" or (policy == "unless-stopped" and is_waiting):
        return f"{state}, restart policy {policy}"
    return None


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


def as_holder(container: Mapping[str, Any], engine: EngineState, held: frozenset[str]) -> Holder:
    """Return a container as a holder. It has no UUIDs if it does not hold the GPUs that it was given."""
    state = holding_state(container)
    return Holder(
        name=name_of(container),
        engine=engine.name,
        uuids=frozenset() if state is None else held,
        exclusive=is_exclusive(container),
        detail="" if state in (None, "running") else state,
        identifier=str(container.get("Id") or ""),
    )


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
