# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What vendors have in common whose containers need only device nodes, because the libraries are in the images.

A vendor's class derives from NodeVendor, and adds what is special: the selection, the variables of its own runtime.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import accelerator_writing, specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import device_node_groups, isolation_choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Gpu,
    GpuProcess,
    Inventory,
    Unit,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import inspected_container
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import (
    AssignedGpus,
    NodeRoles,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import GpuUse, Holder, find_use
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import (
    CDI,
    DEVICES,
    NONE,
    RUNTIME,
    Choice,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpu_distance import Topology
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    Request,
    SelectionError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.required_readings import PROCESSES
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import ContainerTask
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    FIRST_DOCKER_WITH_CDI,
    Docker,
    EngineState,
    Image,
    Podman,
    environment,
    version_key,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.optional_features import Extras
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kubelet_pod_devices

Gather = Callable[[], Mapping[str, Any]]
# For each engine: the first version with CDI, and the first one that reads CDI 0.7.0: toolkit/version_compatibility.py.
_CDI_SINCE = {"docker": (FIRST_DOCKER_WITH_CDI, "26.1"), "podman": ("4.1", "5.1"), "containerd": ("1.7", "1.7.16")}
# The roles of the schema that do not give access to a device. Computing needs no node of a card.
_ROLES = {"control": inspected_container.CONTROL, "card": inspected_container.OPTIONAL}
_OPEN_NODES = "Give the node a group and mode 0660 with a rule of udev"
_CHARACTER_LINK = re.compile(r"/dev/char/(\d+):(\d+)", re.ASCII)


class NodeVendor:
    """See vendor_protocol.py. `gather` returns the facts of accelerator_facts for this vendor."""

    # The name in the neutral schema, and how messages name one device.
    name = ""
    title = "device"
    # The beginnings of the vendor's resources in Kubernetes.
    resources: tuple[str, ...] = ()
    # The preferred isolation comes first. A subclass can offer more, which a user has to request.
    preference: tuple[str, ...] = (CDI, DEVICES)
    gpu_class: type[Gpu] = Gpu
    # The vendor's runtime in Docker, its program, what installs it, and the variables in which it reads devices. It is
    # never chosen without a request. Empty: none.
    runtime_name = runtime_program = runtime_advice = ""
    runtime_variables: tuple[str, ...] = ()

    def __init__(self, gather: Gather, root: str = "/", cdi_kind: str | None = None) -> None:
        self._gather = gather
        self._root = root
        self._cdi_kind = cdi_kind or accelerator_writing.KINDS[self.name]
        self.inventory = Inventory()
        self.topology = Topology()
        # Control nodes by unit, and all nodes with their roles.
        self._control: dict[str, tuple[str, ...]] = {}
        self._roles: dict[str, str] = {}
        self._specs: dict[tuple[str, ...], specification_reader.Specs] = {}

    # -- to override -------------------------------------------------------------------------------------------

    def build_inventory(self, devices: Sequence[Mapping[str, Any]]) -> Inventory:
        """Return the devices of the neutral schema as units. A device without an index has no node."""
        gpus = [self.gpu(one) for one in devices if one["index"] is not None]
        return Inventory(tuple(gpus), tuple(Unit(gpu.uuid, gpu, nodes=gpu.nodes) for gpu in gpus))

    def build_topology(self, devices: Sequence[Mapping[str, Any]]) -> Topology:
        """Return how close the devices are to each other, besides their NUMA nodes."""
        return Topology()

    def image_request(self, image: Image, env: Mapping[str, str]) -> tuple[Request, str] | None:
        """Return the devices that an image requests. See vendor_protocol.py."""
        return None

    def obstacle(self, isolation: str, engine: EngineState, units: Sequence[Unit]) -> str | None:
        """Return why an isolation is not available, or None."""
        if isolation == CDI:
            return self._cdi_obstacle(engine, units)
        if isolation == RUNTIME and self.runtime_name:
            if engine.name != "docker":
                return "only docker can use the vendor's runtime here"
            return None if self.runtime_name in engine.runtimes else f"docker has no runtime {self.runtime_advice}"
        if isolation == DEVICES:
            missing = [node for unit in units for node in self._nodes_of(unit) if not self._exists(node)]
            return f"device node {missing[0]} does not exist" if missing else None
        return f"a container of {self.name} needs only device nodes"

    def units_in_variables(self, variables: Mapping[str, str]) -> frozenset[str]:
        """Return the devices that the vendor's runtime gives to a container with these variables."""
        return frozenset()

    def units_of_runtime(self, container: Mapping[str, Any], engine: EngineState) -> frozenset[str]:
        """Return the devices that a container has from the vendor's runtime."""
        runtime = (container.get("HostConfig") or {}).get("Runtime") or engine.default_runtime
        names = {runtime, os.path.basename(engine.runtimes.get(runtime) or "")} - {""}
        if not names & {self.runtime_name, self.runtime_program}:
            return frozenset()
        return self.units_in_variables(environment((container.get("Config") or {}).get("Env")))

    # -- protocol ----------------------------------------------------------------------------------------------

    def observe(self, needs: Collection[str] = ()) -> None:
        """Read the devices. Raise SelectionError if none can be used."""
        facts = self._gather()
        state = facts["accelerator_vendors"][self.name]
        devices = [one for one in facts["accelerators"] if one["vendor"] == self.name]
        if state["state"] != schema.READY:
            raise SelectionError(
                f"GPUs are requested, but this host has no usable {self.title} (state {state['state']}): "
                f"{state['reason']}"
            )
        for one in devices:
            self._roles |= {
                node["path"]: _ROLES.get(node["role"], inspected_container.ACCESS) for node in one["nodes"] or ()
            }
        inventory = self.build_inventory(devices)
        control = tuple(node for node, gives in self._roles.items() if gives == inspected_container.CONTROL)
        self._control = {unit.uuid: control for unit in inventory.units}
        self.inventory = self._with_processes(inventory) if PROCESSES in needs and os.geteuid() == 0 else inventory
        self.topology = self.build_topology(devices)

    def extras(self, features: Collection[str], channels: Collection[int], env: Mapping[str, str]) -> Extras:
        """Return nothing: these devices have no features."""
        return Extras()

    def choose_isolation(self, engine: EngineState, units: Sequence[Unit], task: ContainerTask) -> Choice:
        """Choose the isolation. Raise IsolationError if the requested one is not available."""
        return isolation_choice.choose(
            task.params["isolation"], task.current, self.preference, lambda name: self.obstacle(name, engine, units)
        )

    def access(self, isolation: str, engine: Docker | Podman, units: Sequence[Unit], task: ContainerTask) -> Access:
        """Return what the container is given. Without units, an engine gives access to no device."""
        state = engine.state()
        # Docker's own runtime, if the default one would add the devices that a variable names.
        is_named = any((task.env or {}).get(name) for name in self.runtime_variables)
        plain = "runc" if engine.name == "docker" and is_named and state.default_runtime == self.runtime_name else None
        if not units:
            return Access(runtime=plain)
        nodes = tuple(dict.fromkeys(node for unit in units for node in self._nodes_of(unit)))
        image_user = task.image.user if task.image else ""
        user = device_node_groups.node_user(engine.name, task.options, image_user, remaps=state.userns_remap)
        given_groups = task.options.get("group_add") or ()
        groups = device_node_groups.needed(self._root, nodes, user.user, _OPEN_NODES, is_mapped=user.is_mapped)
        if state.rootless:
            groups = device_node_groups.needed_rootless(self._root, nodes, engine.name, given_groups)
        given = Access(isolation, groups=groups.gids, warnings=groups.warnings, runtime=plain)
        if isolation == CDI:
            return replace(given, cdi_devices=self.cdi_names(state, units))
        return replace(given, devices=nodes)

    def driver_volume(
        self, accesses: Sequence[tuple[Docker | Podman, Access]], task: ContainerTask
    ) -> dict[str, Any] | None:
        """Return None: the libraries are in the images."""
        return None

    def assigned_gpus(
        self, container: Mapping[str, Any], engine: EngineState, exclude: Collection[str] = ()
    ) -> AssignedGpus:
        """Return the devices of a container, without those in `exclude`."""
        host = container.get("HostConfig") or {}
        names = inspected_container.cdi_names(container, exclude)
        by_cdi = self._units_of(node for name in names for node in self._nodes_of_name(name, engine))
        paths = [one.get("PathOnHost") or "" for one in host.get("Devices") or ()]
        by_node = self._units_of(node for path in paths if path not in exclude for node in self.nodes(path))
        requests = tuple(
            one
            for one in host.get("DeviceRequests") or ()
            if inspected_container.is_cdi(one) and any(self._is_own(name) for name in one.get("DeviceIDs") or ())
        )
        by_runtime = self.units_of_runtime(container, engine)
        isolation = CDI if by_cdi else DEVICES if by_node else RUNTIME if by_runtime else NONE
        return AssignedGpus((by_cdi or by_node) | by_runtime, isolation, by_cdi | by_node | by_runtime, requests)

    def nodes(self, device: str) -> NodeRoles:
        """Return what a device of a container stands for. See vendor_protocol.py."""
        if not device.startswith("/"):
            return {device: inspected_container.ACCESS if self._is_own(device) else None}
        inside = [node for node in self._roles if node.startswith(device.rstrip("/") + "/")]
        names = inside or [self._canonical(device)]
        return {name: self._roles.get(name) for name in names}

    def use(
        self,
        listed: Iterable[Holder],
        *,
        whole_host: bool,
        ignored: Collection[str] = (),
        own: tuple[str, str] | None = None,
    ) -> GpuUse:
        """Return how the devices are used. See gpu_holders.find_use."""
        if not whole_host:
            return find_use(self.inventory, listed, ignored=ignored, own=own)
        inventory = self._with_processes(self.inventory)
        pids = {process.pid for gpu in inventory.gpus for process in gpu.processes or ()}
        table = gpu_processes.read(self._root, pids)
        pods = kubelet_pod_devices.read(self._root, self.resources)
        return find_use(inventory, listed, table, pods, self.nodes, ignored=ignored, own=own)

    # -- private -----------------------------------------------------------------------------------------------

    def gpu(self, device: Mapping[str, Any], **more: Any) -> Gpu:
        """Return a device of the neutral schema. Its name is the model."""
        used, total = device["memory_used_mib"], device["memory_total_mib"]
        return self.gpu_class(
            index=device["index"],
            uuid=device["stable_id"] or f"{self.name}-{device['index']}",
            name=device["model"] or "",
            pci_bus_id=device["pci_address"],
            memory_total_mib=total,
            memory_free_mib=None if None in (used, total) else max(total - used, 0),
            numa_node=device["numa_node"],
            health_state=device["health"]["state"],
            health_reasons=tuple(device["health"]["reasons"]),
            nodes=frozenset(node["path"] for node in device["nodes"] or () if node["role"] != "control"),
            **more,
        )

    def _with_processes(self, inventory: Inventory) -> Inventory:
        """Return the inventory with the processes that have a node of each device open. Nobody else can use it."""
        nodes = {node for gpu in inventory.gpus for node in gpu.nodes}
        table = gpu_processes.read(self._root, nodes=nodes)
        gpus = {
            gpu.uuid: replace(
                gpu,
                processes=tuple(
                    GpuProcess(one.pid, one.command) for one in table.processes.values() if one.opened & gpu.nodes
                ),
            )
            for gpu in inventory.gpus
        }
        units = tuple(replace(unit, gpu=gpus[unit.gpu.uuid]) for unit in inventory.units)
        return replace(inventory, gpus=tuple(gpus.values()), units=units)

    def _nodes_of(self, unit: Unit) -> list[str]:
        return [*self._control.get(unit.uuid, ()), *sorted(unit.nodes)]

    def _units_of(self, nodes: Iterable[str]) -> frozenset[str]:
        found = set(nodes)
        known = {node for unit in self.inventory.units for node in unit.nodes}
        # A node without a device in the inventory remains a path: the driver is not loaded, or the device is gone.
        unknown = {node for node in found if self._roles.get(node) == inspected_container.ACCESS} - known
        return frozenset({unit.uuid for unit in self.inventory.by_nodes(found)} | unknown)

    def _canonical(self, path: str) -> str:
        """Return the name that the facts use for a device node: links and /dev/char/MAJOR:MINOR have others."""
        if path in self._roles:
            return path
        link = _CHARACTER_LINK.fullmatch(path)
        numbers = (int(link[1]), int(link[2])) if link else self._numbers(path)
        if numbers is None:
            return path
        return next((node for node in self._roles if self._numbers(node) == numbers), path)

    def _numbers(self, path: str) -> tuple[int, int] | None:
        try:
            status = os.stat(os.path.join(self._root, path.lstrip("/")))
        except OSError:
            return None
        return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else None

    def _exists(self, node: str) -> bool:
        return os.path.exists(os.path.join(self._root, node.lstrip("/")))

    def _is_own(self, name: str) -> bool:
        kinds = (self._cdi_kind, accelerator_writing.KINDS[self.name])
        return name.partition("=")[0] in kinds and "=" in name

    def _read_specs(self, engine: EngineState) -> specification_reader.Specs:
        if engine.cdi_dirs not in self._specs:
            self._specs[engine.cdi_dirs] = specification_reader.read(engine.cdi_dirs, self._root)
        return self._specs[engine.cdi_dirs]

    def _nodes_of_name(self, name: str, engine: EngineState) -> list[str]:
        """Return the nodes in the specification of a CDI device, which can be of any kind."""
        device = self._read_specs(engine).devices.get(name)
        return [node for path in device.nodes for node in self.nodes(path)] if device else []

    def cdi_names(self, engine: EngineState, units: Sequence[Unit]) -> tuple[str, ...]:
        """Return the CDI devices that have exactly the nodes of these units."""
        devices = (self._cdi_device(unit, engine) for unit in units)
        return tuple(device.qualified for device in devices if device)

    def _cdi_device(self, unit: Unit, engine: EngineState) -> specification_reader.CdiDevice | None:
        """Return the CDI device that has exactly the nodes of a unit. A name alone can be that of another device."""
        specs = self._read_specs(engine)
        names = (unit.uuid.replace("/", "-"), unit.index)
        devices = (specs.devices.get(f"{self._cdi_kind}={name}") for name in names)
        return next((one for one in devices if one and set(one.nodes) == set(self._nodes_of(unit))), None)

    def _cdi_obstacle(self, engine: EngineState, units: Sequence[Unit]) -> str | None:
        since, since_07 = _CDI_SINCE[engine.name]
        if engine.version_key < version_key(since):
            return f"{engine} does not support CDI, which requires {engine.name} {since} or later"
        if not engine.cdi_dirs:
            return f"CDI is disabled in {engine}: set features.cdi in daemon.json and restart docker"
        specs = self._read_specs(engine)
        for unit in units:
            device = self._cdi_device(unit, engine)
            if device is None:
                places = ", ".join(engine.cdi_dirs)
                return f"no CDI specification of kind {self._cdi_kind} in {places} describes {unit} as it is now"
            if device.qualified in specs.conflicts:
                one, other = specs.conflicts[device.qualified]
                return f"{one} and {other} define CDI device {device.qualified}: remove one"
            if device.missing:
                return f"the CDI specification {device.path} names {device.missing[0]}, which does not exist"
            if version_key(device.version) >= (0, 7) and engine.version_key < version_key(since_07):
                return f"the CDI specification {device.path} has version {device.version}, which {engine} cannot read"
        return None
