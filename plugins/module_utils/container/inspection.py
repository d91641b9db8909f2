# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a container has, read from the engine's inspection result. Any tool may have created the container.

A device node can have several paths. The functions take `nodes`, which maps a path to the nodes under the names that
the driver's tools use (see access.canonical_nodes).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpus import Inventory, same_pci_address
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.holders import Holder
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import (
    CDI,
    DEVICE_REQUESTS,
    NONE,
    RUNTIME,
    VOLUME,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import EngineState, environment

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

_GPU_NODE = re.compile(r"^/dev/nvidia(\d+)$")
_CAPABILITY_NODE = re.compile(r"^/dev/nvidia-caps/nvidia-cap(\d+)$")
# Any device of NVIDIA's kinds, or a UUID of any kind. NVIDIA's runtime resolves runtime.nvidia.com itself, and NVIDIA's
# GPU operator uses management.nvidia.com (NVIDIA/nvidia-container-toolkit, internal/modifier/cdi.go, d34b3046).
_CDI_NAME = re.compile(
    r"^(?:(?:runtime\.|management\.)?nvidia\.com/(?:gpu|mig)=(?=.)|[^/=\s]+/[^/=\s]+=(?=(?:GPU|MIG)-))"
)
# The drivers and capabilities of Docker's device requests that select NVIDIA's driver (moby/moby,
# daemon/devices_nvidia_linux.go, b985e231).
_REQUEST_DRIVERS = ("nvidia", "nvidia.cdi", "nvidia.runtime-hook")
_REQUEST_CAPABILITIES = frozenset({"gpu", "nvidia", "compute", "compat32", "graphics", "utility", "video", "display"})
_TYPE_INDEX = re.compile(r"^(?:gpu|mig)(\d+(?::\d+)?)$")
_CDI_ANNOTATION = "cdi.k8s.io/"
_MOUNTED_NAMES = re.compile(r"^/var/run/nvidia-container-devices/(?:cdi/[^/]+/(?:[^/]+/|[^/=]+=))?([^/]+)$")
_RUNTIME_NAME = re.compile(r"nvidia")

Nodes = Callable[[str], Collection[str]]


# Maps a CDI device to the device nodes in its specification.
CdiNodes = Callable[[str], Collection[str]]


def _as_is(path: str) -> Collection[str]:
    return (path,)


def _no_nodes(_name: str) -> Collection[str]:
    return ()


@dataclass(frozen=True)
class AssignedGpus:
    """The UUIDs of a container's units, and the isolation that gave access to them."""

    uuids: frozenset[str] = frozenset()
    isolation: str = NONE


def name_of(container: Mapping[str, Any]) -> str:
    return str(container.get("Name") or container.get("Id") or "").lstrip("/")


def labels_of(container: Mapping[str, Any]) -> Mapping[str, str]:
    return (container.get("Config") or {}).get("Labels") or {}


def are_labels_proven(container: Mapping[str, Any]) -> bool:
    """Return whether the container was created with all labels of this module, which replace those of its image."""
    return labels_of(container).get(LABEL_CONTAINER) == name_of(container)


def own_labels(container: Mapping[str, Any], image_labels: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the labels that this module set on the container.

    An engine shows the labels of the image as those of the container. Containers of earlier versions of this module
    have only the labels that they need, so a label that the image has, too, says nothing.
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


def assigned_gpus(
    container: Mapping[str, Any],
    engine: EngineState,
    inventory: Inventory,
    mig_minors: Mapping[str, int],
    *,
    nodes: Nodes = _as_is,
    cdi_nodes: CdiNodes = _no_nodes,
    swarm_variables: Collection[str] = (),
    exclude: Collection[str] = (),
) -> AssignedGpus:
    """Return the GPUs of a container, from the first isolation that gives access to any.

    `swarm_variables`: see isolation.swarm_variables. `exclude` are the device nodes and CDI devices that the user
    passed in addition to `gpus`.
    """
    resolver = _UuidResolver(inventory, mig_minors)
    found = _gpus_by_isolation(
        container, engine, resolver, nodes, exclude, cdi_nodes=cdi_nodes, swarm_variables=swarm_variables
    )
    by_runtime = dict(found)[RUNTIME]
    # NVIDIA's runtime adds its GPUs to those of every other isolation.
    return next((AssignedGpus(uuids | by_runtime, isolation) for isolation, uuids in found if uuids), AssignedGpus())


def _gpus_by_isolation(
    container: Mapping[str, Any],
    engine: EngineState,
    resolver: _UuidResolver,
    nodes: Nodes,
    exclude: Collection[str] = (),
    *,
    cdi_nodes: CdiNodes,
    swarm_variables: Collection[str],
) -> list[tuple[str, frozenset[str]]]:
    """Return the GPUs that each isolation gives access to.

    A CDI device of another vendor gives access to the GPUs whose nodes are in its specification.
    """
    config = container.get("Config") or {}
    host = container.get("HostConfig") or {}
    requests = host.get("DeviceRequests") or ()
    cdi = [name for request in requests if _is_cdi(request) for name in request.get("DeviceIDs") or ()]
    cdi += [name for name in _podman_cdi(config) if name not in exclude]

    others = [node for name in cdi if not _CDI_NAME.match(name) for path in cdi_nodes(name) for node in nodes(path)]

    by_request: set[str] = set()
    for request in requests:
        if not _is_cdi(request) and _requests_gpus(request):
            by_request |= resolver.by_request(request)

    paths = [device.get("PathOnHost") or "" for device in host.get("Devices") or ()]
    return [
        (CDI, resolver.by_names(name for name in cdi if _CDI_NAME.match(name)) | resolver.by_nodes(others)),
        (DEVICE_REQUESTS, frozenset(by_request)),
        (RUNTIME, resolver.by_names(_runtime_names(container, engine, swarm_variables, by_hook=bool(by_request)))),
        (VOLUME, resolver.by_nodes(node for path in paths if path not in exclude for node in nodes(path))),
    ]


def _runtime_names(
    container: Mapping[str, Any], engine: EngineState, swarm_variables: Collection[str], *, by_hook: bool
) -> list[str]:
    """Return the devices requested from NVIDIA's runtime, or nothing if the container uses another runtime.

    The runtime reads annotations first, then mounts, then the environment: the swarm's variables if one of them is set,
    else NVIDIA_VISIBLE_DEVICES. `by_hook`: Docker starts NVIDIA's hook for a device request, and sets
    NVIDIA_VISIBLE_DEVICES to the requested GPUs.
    """
    config = container.get("Config") or {}
    host = container.get("HostConfig") or {}
    env = environment(config.get("Env"))
    swarm = [name for name in swarm_variables if name in env]
    if by_hook:
        # From this version on, Docker can handle the request without the hook.
        return _visible_devices(env, swarm) if swarm and engine.version_key < (29, 2) else []
    # In Podman's result, HostConfig.Runtime is always "oci".
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
    names = names or [match.group(1) for target in mounts if (match := _MOUNTED_NAMES.match(target))]
    if names:
        return names
    if not swarm and "NVIDIA_VISIBLE_DEVICES" not in env and env.get("CUDA_VERSION"):
        # The runtime gives all GPUs to images of CUDA that are older than the variable for requirements.
        return [] if env.get("NVIDIA_REQUIRE_CUDA") else ["all"]
    return _visible_devices(env, swarm or ["NVIDIA_VISIBLE_DEVICES"])


def _visible_devices(env: Mapping[str, str], variables: Collection[str]) -> list[str]:
    visible = [name.strip() for variable in variables for name in env.get(variable, "").split(",")]
    return [] if "void" in visible or visible == ["none"] else [name for name in visible if name]


def gpu_nodes(container: Mapping[str, Any], nodes: Nodes = _as_is) -> set[str]:
    """Return the GPU device nodes of a container, including control nodes."""
    devices = (container.get("HostConfig") or {}).get("Devices") or ()
    return {node for device in devices for node in nodes(device.get("PathOnHost") or "") if is_gpu_node(node)}


def is_gpu_node(node: str) -> bool:
    """Return whether a node belongs to a GPU or is a control node of the driver."""
    return node.startswith(("/dev/nvidia", "/dev/dri/"))


def is_access_node(node: str) -> bool:
    """Return whether a node gives access to one GPU or MIG device. Other nodes only give access to the driver."""
    return bool(_GPU_NODE.match(node) or _CAPABILITY_NODE.match(node)) or node.startswith("/dev/dri/")


def gpu_devices_as_written(container: Mapping[str, Any], nodes: Nodes, exclude: Collection[str]) -> list[str]:
    """Return a container's GPU devices in the notation that the engine's module compares."""
    config, host = container.get("Config") or {}, container.get("HostConfig") or {}
    if "CreateCommand" in config:
        given = _option_values(config, "--device")
    else:
        given = []
        for device in host.get("Devices") or ():
            path, target = device.get("PathOnHost") or "", device.get("PathInContainer") or ""
            rights = device.get("CgroupPermissions") or "rwm"
            given.append(path if (target, rights) == (path, "rwm") else f"{path}:{target}:{rights}")
    return [
        device
        for device in given
        if not {device, host_path(device)} & set(exclude)
        and (_CDI_NAME.match(device) or any(is_gpu_node(node) for node in nodes(host_path(device))))
    ]


def host_path(device: str) -> str:
    """Return the host path of a device written as host:container:rights. Paths in /dev/char contain a colon."""
    match = re.match(r"^(/dev/char/\d+:\d+|[^:]+)", device)
    return match.group(1) if match else device


def gpu_device_requests(container: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a container's device requests for GPUs with the keys that community.docker uses."""
    keys = {
        "driver": "Driver",
        "count": "Count",
        "device_ids": "DeviceIDs",
        "capabilities": "Capabilities",
        "options": "Options",
    }
    requests = (container.get("HostConfig") or {}).get("DeviceRequests") or ()
    return [
        {option: request.get(key) for option, key in keys.items()}
        for request in requests
        if _requests_gpus(request) or (_is_cdi(request) and any(map(_CDI_NAME.match, request.get("DeviceIDs") or ())))
    ]


def requested_capabilities(container: Mapping[str, Any]) -> set[str]:
    """Return the driver capabilities in a container's device requests."""
    requests = (container.get("HostConfig") or {}).get("DeviceRequests") or ()
    kinds = {kind for request in requests for group in request.get("Capabilities") or () for kind in group}
    return kinds - {"gpu", "nvidia"}


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
    present = _option_values(config, "--volume") if "CreateCommand" in config else host.get("Binds") or ()
    directories = {mount.split(":")[0].rsplit("/", 2)[0] + "/" for mount in mounts}
    return tuple(mount for mount in present if mount.startswith(tuple(directories)))


def as_holder(
    container: Mapping[str, Any],
    engine: EngineState,
    inventory: Inventory,
    mig_minors: Mapping[str, int],
    *,
    nodes: Nodes = _as_is,
    cdi_nodes: CdiNodes = _no_nodes,
    swarm_variables: Collection[str] = (),
) -> Holder:
    """Return a container as a holder of GPUs. It has no UUIDs if the container holds none."""
    state = holding_state(container)
    uuids: frozenset[str] = frozenset()
    if state is not None:
        resolver = _UuidResolver(inventory, mig_minors)
        found = _gpus_by_isolation(
            container, engine, resolver, nodes, cdi_nodes=cdi_nodes, swarm_variables=swarm_variables
        )
        uuids = frozenset(uuid for _isolation, gpus in found for uuid in gpus)
    return Holder(
        name=name_of(container),
        engine=engine.name,
        uuids=uuids,
        exclusive=is_exclusive(container),
        detail="" if state in (None, "running") else state,
        identifier=str(container.get("Id") or ""),
    )


class _UuidResolver:
    """Map the indexes, minor numbers and names that engines store to UUIDs."""

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
        found = {unit.uuid for unit in self._inventory.by_nodes(minors, capabilities, self._mig_minors)}
        # A node without a GPU in the inventory remains a path: the driver is not loaded, or the GPU was removed.
        known = {gpu.minor for gpu in self._inventory.gpus}
        return frozenset(found | {f"/dev/nvidia{minor}" for minor in minors - known})

    def _by_name(self, name: str) -> set[str]:
        index = _TYPE_INDEX.sub(r"\1", name)
        found = {unit.uuid for unit in self._inventory.units if unit.uuid == name or unit.index == index}
        if found:
            return found
        # NVIDIA's runtime accepts UUID prefixes. If a prefix matches several devices, all of them count.
        lower = name.lower()
        prefix = lower.startswith(("gpu-", "mig-"))
        mig_devices = {
            unit.uuid
            for unit in self._inventory.units
            if unit.is_mig
            and prefix
            and (unit.uuid.lower().startswith(lower) or f"mig-{unit.gpu.uuid}/{unit.gi}/{unit.ci}".lower() == lower)
        }
        # If MIG was enabled after the container was created, the name stands for all MIG devices of the GPU.
        whole = [
            gpu
            for gpu in self._inventory.gpus
            if index == str(gpu.index)
            or (prefix and gpu.uuid.lower().startswith(lower))
            or same_pci_address(gpu.pci_bus_id, name)
        ]
        found = mig_devices | {
            unit.uuid for gpu in whole for unit in self._inventory.units if unit.gpu.uuid == gpu.uuid
        }
        if found:
            return found
        return {name} if prefix or not self._inventory.gpus else set()


def _is_cdi(request: Mapping[str, Any]) -> bool:
    return request.get("Driver") == "cdi"


def _requests_gpus(request: Mapping[str, Any]) -> bool:
    kinds = {kind for group in request.get("Capabilities") or () for kind in group}
    driver = request.get("Driver") or ""
    return driver in _REQUEST_DRIVERS or (not driver and not kinds.isdisjoint(_REQUEST_CAPABILITIES))


def _podman_cdi(config: Mapping[str, Any]) -> list[str]:
    """Return the CDI devices of a Podman container. Podman stores them only in the command that created it."""
    names = [
        *_option_values(config, "--device"),
        *(f"nvidia.com/gpu={value}" for value in _option_values(config, "--gpus")),
    ]
    return [name for name in names if not name.startswith("/")]


def _option_values(config: Mapping[str, Any], option: str) -> list[str]:
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
