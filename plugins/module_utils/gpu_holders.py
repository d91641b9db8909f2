# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a container has, read from what its engine says of it, whoever made it. Pure over inspection results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.engines import EngineState, environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.gpu_isolation import (
    CDI,
    DEVICE_REQUESTS,
    NONE,
    RUNTIME,
    VOLUME,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.gpu_selection import Holder, Inventory

LABEL_GPUS = "gpufleet.gpus"
LABEL_ISOLATION = "gpufleet.isolation"
LABEL_CAPABILITIES = "gpufleet.capabilities"
LABEL_EXCLUSIVE = "gpufleet.exclusive"

_GPU_NODE = re.compile(r"^/dev/nvidia(\d+)$")
_CAPABILITY_NODE = re.compile(r"^/dev/nvidia-caps/nvidia-cap(\d+)$")
_CDI_NAME = re.compile(r"^nvidia\.com/(?:gpu|mig)=(.+)$")
_RUNTIME_NAME = re.compile(r"nvidia")


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
    container: Mapping[str, Any], engine: EngineState, inventory: Inventory, mig_minors: Mapping[str, int]
) -> Held:
    """Find out which GPUs a container was given."""
    config = container.get("Config") or {}
    host = container.get("HostConfig") or {}
    env = environment(config.get("Env"))
    finder = _Finder(inventory, mig_minors)

    cdi = [
        name
        for request in host.get("DeviceRequests") or ()
        if _is_cdi(request)
        for name in request.get("DeviceIDs") or ()
    ]
    cdi += _podman_cdi(config)
    by_cdi = finder.by_names(match.group(1) for name in cdi if (match := _CDI_NAME.match(name)))
    if by_cdi:
        return Held(by_cdi, CDI)

    by_request: set[str] = set()
    for request in host.get("DeviceRequests") or ():
        if not _is_cdi(request) and _asks_gpus(request):
            by_request |= finder.by_request(request)
    if by_request:
        return Held(frozenset(by_request), DEVICE_REQUESTS)

    # Podman has both, and only its second one tells which runtime it is.
    runtime = container.get("OCIRuntime") or host.get("Runtime") or engine.default_runtime
    visible = env.get("NVIDIA_VISIBLE_DEVICES", "")
    if _RUNTIME_NAME.search(runtime) and visible not in ("", "void", "none"):
        by_runtime = finder.by_names(visible.split(","))
        if by_runtime:
            return Held(by_runtime, RUNTIME)

    by_nodes = finder.by_nodes(device.get("PathOnHost") or "" for device in host.get("Devices") or ())
    return Held(by_nodes, VOLUME) if by_nodes else Held()


def gpu_nodes(container: Mapping[str, Any]) -> set[str]:
    """List the GPU device nodes that a container was given, control nodes included."""
    devices = (container.get("HostConfig") or {}).get("Devices") or ()
    paths = {device.get("PathOnHost") or "" for device in devices}
    return {path for path in paths if path.startswith(("/dev/nvidia", "/dev/dri/"))}


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


def has_mount(container: Mapping[str, Any], mount: str) -> bool:
    """Tell whether a container mounts a named volume where and how `name:/place:ro` says."""
    name, place, _mode = mount.split(":")
    return any(
        entry.get("Name") == name and entry.get("Destination") == place and not entry.get("RW")
        for entry in container.get("Mounts") or ()
    )


def holder(
    container: Mapping[str, Any], engine: EngineState, inventory: Inventory, mig_minors: Mapping[str, int]
) -> Holder | None:
    """Describe a container as a holder of GPUs, None when it holds none."""
    state = holds(container)
    if state is None:
        return None
    found = held(container, engine, inventory, mig_minors)
    if not found.uuids:
        return None
    return Holder(
        name=name_of(container),
        engine=engine.name,
        uuids=found.uuids,
        exclusive=labels_of(container).get(LABEL_EXCLUSIVE) == "true",
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
            name = _CDI_NAME.sub(r"\1", text.strip())
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
        found = {unit.uuid for unit in self._inventory.units if name in (unit.uuid, unit.index)}
        if found:
            return found
        # A GPU that has MIG on by now, or one by an older name: all of its MIG devices, or what the name says.
        whole = [gpu for gpu in self._inventory.gpus if name in (gpu.uuid, str(gpu.index), gpu.pci_bus_id)]
        if whole:
            return {unit.uuid for gpu in whole for unit in self._inventory.units if unit.gpu.uuid == gpu.uuid}
        return {name} if name.startswith(("GPU-", "MIG-")) or not self._inventory.gpus else set()


def _is_cdi(request: Mapping[str, Any]) -> bool:
    return request.get("Driver") == "cdi"


def _asks_gpus(request: Mapping[str, Any]) -> bool:
    kinds = {kind for group in request.get("Capabilities") or () for kind in group}
    return request.get("Driver") == "nvidia" or bool(kinds & {"gpu", "nvidia"})


def _podman_cdi(config: Mapping[str, Any]) -> list[str]:
    """Find the CDI devices on the command line that made a podman container: it tells them nowhere else."""
    command = config.get("CreateCommand") or []
    names = []
    for place, word in enumerate(command):
        if word in ("--device", "--gpus") and place + 1 < len(command):
            names.append(_as_cdi(word, command[place + 1]))
        elif word.startswith(("--device=", "--gpus=")):
            names.append(_as_cdi(*word.split("=", 1)))
    return [name for name in names if _CDI_NAME.match(name)]


def _as_cdi(option: str, value: str) -> str:
    return f"nvidia.com/gpu={value}" if option == "--gpus" else value
