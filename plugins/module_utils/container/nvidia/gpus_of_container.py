# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of NVIDIA's GPUs a container has, from the engine's inspection result. Any tool may have created the container.

A device node can have several paths. The functions take `nodes`, which maps a path to the nodes under the names that
the driver's tools use (see device_node_names.canonical_nodes).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import specification_kinds
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Inventory,
    same_pci_address,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import inspected_container
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import AssignedGpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import (
    CDI,
    DEVICE_REQUESTS,
    NONE,
    RUNTIME,
    VOLUME,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_capabilities import (
    driver_capabilities,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState, environment

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
# Nodes that a container gets if they exist but does not require.
OPTIONAL_NODES = frozenset({"/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"})
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


def assigned_gpus(
    container: Mapping[str, Any],
    engine: EngineState,
    inventory: Inventory,
    *,
    nodes: Nodes = _as_is,
    cdi_nodes: CdiNodes = _no_nodes,
    swarm_variables: Collection[str] = (),
    exclude: Collection[str] = (),
) -> AssignedGpus:
    """Return the GPUs of a container, from the first isolation that gives access to any.

    `swarm_variables`: see no_gpus_from_default_runtime.swarm_variables. `exclude` are the device nodes and CDI devices
    that the user passed in addition to `gpus`.
    """
    resolver = _UuidResolver(inventory)
    found = _gpus_by_isolation(
        container, engine, resolver, nodes, exclude, cdi_nodes=cdi_nodes, swarm_variables=swarm_variables
    )
    by_runtime = dict(found)[RUNTIME]
    isolation, uuids = next(((name, uuids) for name, uuids in found if uuids), (NONE, frozenset()))
    requests = (container.get("HostConfig") or {}).get("DeviceRequests") or ()
    return AssignedGpus(
        # NVIDIA's runtime adds its GPUs to those of every other isolation.
        uuids | by_runtime,
        isolation,
        frozenset(uuid for _isolation, gpus in found for uuid in gpus),
        tuple(request for request in requests if _is_own(request)),
        _capabilities(container, isolation, requests),
    )


def _capabilities(
    container: Mapping[str, Any], isolation: str, requests: Sequence[Mapping[str, Any]]
) -> tuple[str, ...] | None:
    """Return the capabilities in a container's device requests, else those in its environment."""
    if isolation == CDI:
        return None
    kinds = {kind for request in requests for group in request.get("Capabilities") or () for kind in group}
    requested = kinds - {"gpu", "nvidia"}
    if isolation == DEVICE_REQUESTS and requested:
        return tuple(sorted(requested))
    return tuple(driver_capabilities(environment((container.get("Config") or {}).get("Env"))))


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
    given = [f"{specification_kinds.KIND}={value}" for value in inspected_container.option_values(config, "--gpus")]
    cdi = [*inspected_container.cdi_names(container, exclude), *(name for name in given if name not in exclude)]

    others = [node for name in cdi if not _CDI_NAME.match(name) for path in cdi_nodes(name) for node in nodes(path)]

    by_request: set[str] = set()
    for request in requests:
        if not inspected_container.is_cdi(request) and _requests_gpus(request):
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


def node_role(node: str) -> str | None:
    """Return what a node or a CDI device gives, or None if it is not NVIDIA's."""
    if _GPU_NODE.match(node) or _CAPABILITY_NODE.match(node) or node.startswith("/dev/dri/") or _CDI_NAME.match(node):
        return inspected_container.ACCESS
    if node in OPTIONAL_NODES:
        return inspected_container.OPTIONAL
    return inspected_container.CONTROL if node.startswith("/dev/nvidia") else None


class _UuidResolver:
    """Map the indexes, minor numbers and names that engines store to UUIDs."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

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
        found = {unit.uuid for unit in self._inventory.by_nodes(paths)}
        # A node without a GPU in the inventory remains a path: the driver is not loaded, or the GPU was removed.
        known = {node for gpu in self._inventory.gpus for node in gpu.nodes}
        return frozenset(found | {path for path in paths if _GPU_NODE.match(path)} - known)

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
            if unit.is_partition
            and prefix
            and (unit.uuid.lower().startswith(lower) or lower in (name.lower() for name in unit.aliases))
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


def _is_own(request: Mapping[str, Any]) -> bool:
    """Return whether a device request names NVIDIA's GPUs, with Docker's driver or through CDI."""
    is_cdi = inspected_container.is_cdi(request) and any(map(_CDI_NAME.match, request.get("DeviceIDs") or ()))
    return _requests_gpus(request) or is_cdi


def _requests_gpus(request: Mapping[str, Any]) -> bool:
    kinds = {kind for group in request.get("Capabilities") or () for kind in group}
    driver = request.get("Driver") or ""
    return driver in _REQUEST_DRIVERS or (not driver and not kinds.isdisjoint(_REQUEST_CAPABILITIES))
