# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a container has, read from what its engine says of it, whoever made it. Pure over inspection results.

Device nodes go by many names. `nodes` tells what a path means on this host: the nodes by the names that the driver's
own tools give them (see gpu_isolation.canonical_nodes).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import (
    CDI,
    DEVICE_REQUESTS,
    NONE,
    RUNTIME,
    VOLUME,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import (
    Holder,
    Inventory,
    same_pci_address,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import EngineState, environment

LABEL_GPUS = "gpufleet.gpus"
LABEL_ISOLATION = "gpufleet.isolation"
LABEL_CAPABILITIES = "gpufleet.capabilities"
LABEL_EXCLUSIVE = "gpufleet.exclusive"

_GPU_NODE = re.compile(r"^/dev/nvidia(\d+)$")
_CAPABILITY_NODE = re.compile(r"^/dev/nvidia-caps/nvidia-cap(\d+)$")
# A device by the vendor's kinds, or a UUID by whatever kind.
_CDI_NAME = re.compile(r"^(?:nvidia\.com/(?:gpu|mig)=(?=.)|[^/=\s]+/[^/=\s]+=(?=(?:GPU|MIG)-))")
_TYPE_INDEX = re.compile(r"^(?:gpu|mig)(\d+(?::\d+)?)$")
_CDI_ANNOTATION = "cdi.k8s.io/"
_MOUNTED_NAMES = re.compile(r"^/var/run/nvidia-container-devices/(?:cdi/[^/]+/[^/]+/)?([^/]+)$")
_RUNTIME_NAME = re.compile(r"nvidia")

Nodes = Callable[[str], Collection[str]]


def _plain(path: str) -> Collection[str]:
    return (path,)


@dataclass(frozen=True)
class Held:
    """What one container has: the units by UUID, and by which way it was given them."""

    uuids: frozenset[str] = frozenset()
    isolation: str = NONE


def name_of(container: Mapping[str, Any]) -> str:
    return str(container.get("Name") or container.get("Id") or "").lstrip("/")


def labels_of(container: Mapping[str, Any]) -> Mapping[str, str]:
    return (container.get("Config") or {}).get("Labels") or {}


def labelled(container: Mapping[str, Any]) -> frozenset[str]:
    """List the GPUs that this module gave a container, by its label."""
    return frozenset(uuid for uuid in labels_of(container).get(LABEL_GPUS, "").split(",") if uuid)


def is_exclusive(container: Mapping[str, Any]) -> bool:
    """Tell whether this module gave a container its GPUs for itself alone."""
    return labels_of(container).get(LABEL_EXCLUSIVE) == "true"


def is_running(container: Mapping[str, Any]) -> bool:
    state = container.get("State") or {}
    return bool(state.get("Running")) or state.get("Status") in ("running", "paused", "restarting")


def holds(container: Mapping[str, Any]) -> str | None:
    """Say in which state a container holds its GPUs, None when it holds none.

    A running, paused or restarting one does. A stopped one does where its engine starts it again by itself: with the
    restart policy `always`, or never started yet with `unless-stopped`.
    """
    state = (container.get("State") or {}).get("Status") or ("running" if is_running(container) else "exited")
    if is_running(container):
        return state
    policy = ((container.get("HostConfig") or {}).get("RestartPolicy") or {}).get("Name") or ""
    if policy == "always" or (policy == "unless-stopped" and state in ("created", "configured", "initialized")):
        return f"{state}, restart policy {policy}"
    return None


def held(
    container: Mapping[str, Any],
    engine: EngineState,
    inventory: Inventory,
    mig_minors: Mapping[str, int],
    *,
    nodes: Nodes = _plain,
    besides: Collection[str] = (),
) -> Held:
    """Find out which GPUs a container was given, by the foremost way that it was given any.

    `besides` are device nodes and CDI devices that its user gave it past this module.
    """
    ways = _ways(container, engine, _Finder(inventory, mig_minors), nodes, besides)
    return next((Held(uuids, isolation) for isolation, uuids in ways if uuids), Held())


def _ways(
    container: Mapping[str, Any], engine: EngineState, finder: _Finder, nodes: Nodes, besides: Collection[str] = ()
) -> list[tuple[str, frozenset[str]]]:
    """List what a container was given by each of the ways."""
    config = container.get("Config") or {}
    host = container.get("HostConfig") or {}
    requests = host.get("DeviceRequests") or ()
    cdi = [name for request in requests if _is_cdi(request) for name in request.get("DeviceIDs") or ()]
    cdi += [name for name in _podman_cdi(config) if name not in besides]

    by_request: set[str] = set()
    for request in requests:
        if not _is_cdi(request) and _asks_gpus(request):
            by_request |= finder.by_request(request)

    paths = [device.get("PathOnHost") or "" for device in host.get("Devices") or ()]
    return [
        (CDI, finder.by_names(name for name in cdi if _CDI_NAME.match(name))),
        (DEVICE_REQUESTS, frozenset(by_request)),
        (RUNTIME, finder.by_names(_runtime_names(container, engine))),
        (VOLUME, finder.by_nodes(node for path in paths if path not in besides for node in nodes(path))),
    ]


def _runtime_names(container: Mapping[str, Any], engine: EngineState) -> list[str]:
    """List what NVIDIA's runtime is asked for, where it is the container's: annotations, else mounts, else the
    environment.
    """
    config = container.get("Config") or {}
    host = container.get("HostConfig") or {}
    # Podman has both, and only its second one tells which runtime it is.
    runtime = container.get("OCIRuntime") or host.get("Runtime") or engine.default_runtime
    if not _RUNTIME_NAME.search(runtime) and not _RUNTIME_NAME.search(engine.runtimes.get(runtime) or ""):
        return []
    annotations = {**(config.get("Annotations") or {}), **(host.get("Annotations") or {})}
    names = [
        name
        for key, value in annotations.items()
        if str(key).startswith(_CDI_ANNOTATION)
        for name in str(value).split(",")
    ]
    mounts = (str(mount.get("Destination") or "") for mount in container.get("Mounts") or ())
    names = names or [match.group(1) for place in mounts if (match := _MOUNTED_NAMES.match(place))]
    if names:
        return names
    visible = [name.strip() for name in environment(config.get("Env")).get("NVIDIA_VISIBLE_DEVICES", "").split(",")]
    return [] if "void" in visible or visible == ["none"] else [name for name in visible if name]


def gpu_nodes(container: Mapping[str, Any], nodes: Nodes = _plain) -> set[str]:
    """List the GPU device nodes that a container was given, control nodes included."""
    devices = (container.get("HostConfig") or {}).get("Devices") or ()
    return {node for device in devices for node in nodes(device.get("PathOnHost") or "") if is_gpu_node(node)}


def is_gpu_node(node: str) -> bool:
    """Tell whether a node is a GPU's or of the driver's control."""
    return node.startswith(("/dev/nvidia", "/dev/dri/"))


def opens_gpu(node: str) -> bool:
    """Tell whether a node is that of one GPU or of one MIG device; all others only reach the driver."""
    return bool(_GPU_NODE.match(node) or _CAPABILITY_NODE.match(node)) or node.startswith("/dev/dri/")


def kept_devices(container: Mapping[str, Any], nodes: Nodes, besides: Collection[str]) -> list[str]:
    """List a container's GPU devices in the words in which its engine's module compares them."""
    config, host = container.get("Config") or {}, container.get("HostConfig") or {}
    if "CreateCommand" in config:
        given = _given(config, "--device")
    else:
        given = []
        for device in host.get("Devices") or ():
            path, inside = device.get("PathOnHost") or "", device.get("PathInContainer") or ""
            rights = device.get("CgroupPermissions") or "rwm"
            given.append(path if (inside, rights) == (path, "rwm") else f"{path}:{inside}:{rights}")
    return [
        one
        for one in given
        if not {one, host_path(one)} & set(besides)
        and (_CDI_NAME.match(one) or any(is_gpu_node(node) for node in nodes(host_path(one))))
    ]


def host_path(device: str) -> str:
    """Take the host's part of a device that is written host:container:rights; a node in /dev/char has a colon."""
    match = re.match(r"^(/dev/char/\d+:\d+|[^:]+)", device)
    return match.group(1) if match else device


def gpu_requests(container: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List a docker container's requests for GPUs as docker keeps them, in the words of community.docker."""
    words = {
        "driver": "Driver",
        "count": "Count",
        "device_ids": "DeviceIDs",
        "capabilities": "Capabilities",
        "options": "Options",
    }
    requests = (container.get("HostConfig") or {}).get("DeviceRequests") or ()
    return [
        {word: request.get(key) for word, key in words.items()}
        for request in requests
        if _asks_gpus(request) or (_is_cdi(request) and any(map(_CDI_NAME.match, request.get("DeviceIDs") or ())))
    ]


def requested_capabilities(container: Mapping[str, Any]) -> set[str]:
    """List the driver capabilities that a container's device requests name."""
    requests = (container.get("HostConfig") or {}).get("DeviceRequests") or ()
    kinds = {kind for request in requests for group in request.get("Capabilities") or () for kind in group}
    return kinds - {"gpu", "nvidia"}


def has_mount(container: Mapping[str, Any], mount: str) -> bool:
    """Tell whether a container mounts a named volume where and how `name:/place:ro` says."""
    name, place, _mode = mount.split(":")
    return any(
        entry.get("Name") == name and entry.get("Destination") == place and not entry.get("RW")
        for entry in container.get("Mounts") or ()
    )


def holder(
    container: Mapping[str, Any],
    engine: EngineState,
    inventory: Inventory,
    mig_minors: Mapping[str, int],
    *,
    nodes: Nodes = _plain,
) -> Holder | None:
    """Describe a container as a holder of GPUs, None when it holds none."""
    state = holds(container)
    if state is None:
        return None
    ways = _ways(container, engine, _Finder(inventory, mig_minors), nodes)
    uuids = frozenset(uuid for _isolation, found in ways for uuid in found)
    if not uuids:
        return None
    return Holder(
        name=name_of(container),
        engine=engine.name,
        uuids=uuids,
        exclusive=is_exclusive(container),
        detail="" if state == "running" else state,
    )


class _Finder:
    """Translate what engines store (indexes, minors, names) into UUIDs."""

    def __init__(self, inventory: Inventory, mig_minors: Mapping[str, int]) -> None:
        self._inventory = inventory
        self._mig_minors = mig_minors

    def all(self) -> frozenset[str]:
        return frozenset(unit.uuid for unit in self._inventory.units) or frozenset({"all"})

    def by_names(self, names: Iterable[str]) -> frozenset[str]:
        found: set[str] = set()
        for text in names:
            name = _CDI_NAME.sub("", text.strip())
            if name == "all":
                return self.all()
            found |= self._by_name(name)
        return frozenset(found)

    def by_request(self, request: Mapping[str, Any]) -> frozenset[str]:
        if request.get("DeviceIDs"):
            return self.by_names(request["DeviceIDs"])
        count = request.get("Count") or 0
        if count < 0:
            return self.all()
        return self.by_names(str(index) for index in range(count))

    def by_nodes(self, paths: Iterable[str]) -> frozenset[str]:
        paths = list(paths)
        minors = {int(match.group(1)) for path in paths if (match := _GPU_NODE.match(path))}
        capabilities = {int(match.group(1)) for path in paths if (match := _CAPABILITY_NODE.match(path))}
        found = set()
        for unit in self._inventory.units:
            if unit.gpu.minor not in minors:
                continue
            keys = (f"gpu{unit.gpu.minor}/gi{unit.gi}/access", f"gpu{unit.gpu.minor}/gi{unit.gi}/ci{unit.ci}/access")
            if not unit.is_mig or all(self._mig_minors.get(key) in capabilities for key in keys):
                found.add(unit.uuid)
        # A node of no GPU that is here: the driver is not up, or the GPU is gone.
        known = {gpu.minor for gpu in self._inventory.gpus}
        return frozenset(found | {f"/dev/nvidia{minor}" for minor in minors - known})

    def _by_name(self, name: str) -> set[str]:
        index = _TYPE_INDEX.sub(r"\1", name)
        found = {unit.uuid for unit in self._inventory.units if unit.uuid == name or unit.index == index}
        if found:
            return found
        # The beginning of a UUID serves NVIDIA's runtime as well; where it fits several, all of them count as held.
        lower = name.lower()
        prefix = lower.startswith(("gpu-", "mig-"))
        slices = {
            unit.uuid
            for unit in self._inventory.units
            if unit.is_mig
            and prefix
            and (unit.uuid.lower().startswith(lower) or f"mig-{unit.gpu.uuid}/{unit.gi}/{unit.ci}".lower() == lower)
        }
        # A GPU that has MIG on by now: all of its MIG devices.
        whole = [
            gpu
            for gpu in self._inventory.gpus
            if index == str(gpu.index)
            or (prefix and gpu.uuid.lower().startswith(lower))
            or same_pci_address(gpu.pci_bus_id, name)
        ]
        found = slices | {unit.uuid for gpu in whole for unit in self._inventory.units if unit.gpu.uuid == gpu.uuid}
        if found:
            return found
        return {name} if prefix or not self._inventory.gpus else set()


def _is_cdi(request: Mapping[str, Any]) -> bool:
    return request.get("Driver") == "cdi"


def _asks_gpus(request: Mapping[str, Any]) -> bool:
    kinds = {kind for group in request.get("Capabilities") or () for kind in group}
    return request.get("Driver") == "nvidia" or bool(kinds & {"gpu", "nvidia"})


def _podman_cdi(config: Mapping[str, Any]) -> list[str]:
    """Find the CDI devices on the command line that made a podman container: it tells them nowhere else."""
    names = [*_given(config, "--device"), *(f"nvidia.com/gpu={value}" for value in _given(config, "--gpus"))]
    return [name for name in names if _CDI_NAME.match(name)]


def _given(config: Mapping[str, Any], option: str) -> list[str]:
    """List what the command line that made a podman container gives for an option."""
    command = [str(word) for word in config.get("CreateCommand") or []]
    inside = [str(word) for word in config.get("Cmd") or []]
    if inside and command[-len(inside) :] == inside:
        command = command[: -len(inside)]
    values = []
    for place, word in enumerate(command):
        if word == option and place + 1 < len(command):
            values.append(command[place + 1])
        elif word.startswith(f"{option}="):
            values.append(word.partition("=")[2])
    return values
