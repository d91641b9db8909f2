# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's GPUs and MIG devices, as the planner uses them: see vendor_protocol.py."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import stale_driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import device_node_groups, engine_module_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import (
    AssignedGpus,
    NodeRoles,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import GpuUse, Holder, find_use
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import CDI, VOLUME, Choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import (
    access_by_isolation as container_access,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import (
    access_risks,
    device_node_names,
    device_nodes_by_capability,
    driver_capabilities,
    driver_files_of_container,
    gpus_of_container,
    image_requirements,
    isolation_host,
    no_gpus_from_default_runtime,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import (
    image_requirements as container_image,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import (
    isolation_choice as container_isolation,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_files_of_container import Libraries
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.image_requirements import ImageVerdict
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.inventory import (
    NvidiaUnit,
    inventory_from_facts,
    topology_from_facts,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpu_distance import Topology
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    Request,
    SelectionError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.required_readings import (
    PARTITION_MEMORY,
    PROCESSES,
    TOPOLOGY,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import ContainerTask
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    Docker,
    EngineState,
    Image,
    Podman,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import optional_features as driver_features
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.optional_features import Extras
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import NVIDIA
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kubelet_pod_devices
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import (
    complete_graphics,
    driver_files,
    driver_volume,
)

# The subsets of nvidia_gpu_facts. NVLinks belong to the health of a GPU.
_SUBSETS = frozenset({"min", "identity", "nvlink"})
_SUBSETS_OF_NEEDS = {TOPOLOGY: "topology", PROCESSES: "processes", PARTITION_MEMORY: "mig"}
_COMPUTE_NODE = "/dev/nvidia-uvm"
_OPEN_NODES = "Set the module option NVreg_DeviceFileMode=0666 or NVreg_DeviceFileGID"


class Nvidia:
    """NVIDIA's GPUs and MIG devices of this host. `gather` returns the facts of nvidia_gpu_facts for the given subsets.

    `driver_root` is the directory of the driver's user-space files if they are not those of the host itself.
    """

    name = NVIDIA

    def __init__(
        self,
        gather: Callable[[frozenset], Mapping[str, Any]],
        root: str = "/",
        driver_root: str = "/",
        cdi_kind: str | None = None,
    ) -> None:
        self._gather = gather
        self._root = root
        self._driver_root = driver_root
        self._cdi_kind = cdi_kind
        # Empty before `observe`. The topology stays empty without its subset.
        self.inventory = Inventory()
        self.topology = Topology()
        self._driver: Mapping[str, Any] = {}
        self._graphics_files: complete_graphics.Graphics | None = None
        self._specs: dict[tuple[str, ...], specification_reader.Specs] = {}

    def observe(self, needs: Collection[str] = ()) -> None:
        """Read the GPUs. Raise SelectionError if none is available."""
        facts = self._gather(_SUBSETS | {_SUBSETS_OF_NEEDS[need] for need in needs})
        state = facts["nvidia_gpu_state"]
        if state != "ready" and not facts["nvidia_gpus"]:
            raise SelectionError(
                f"GPUs are requested, but this host has no usable GPU (nvidia_gpu_state is {state}): "
                f"{facts['nvidia_gpu_state_reason']}"
            )
        self._driver = facts["nvidia_driver"]
        self.inventory = inventory_from_facts(facts["nvidia_gpus"], nvidia_device_nodes.mig_minors(self._root))
        self.topology = topology_from_facts(facts.get("nvidia_topology"))

    def extras(self, features: Collection[str], channels: Collection[int], env: Mapping[str, str]) -> Extras:
        """Return what a container needs for the features. Raise FeatureError if the host lacks one."""
        return driver_features.extras(features, channels, env, self._root)

    def image_request(self, image: Image, env: Mapping[str, str]) -> tuple[Request, str] | None:
        """Return the GPUs that an image requests, and the origin of the request. Return None if it requests none."""
        requested = container_image.requested_gpus(image.labels, env)
        if requested is None:
            return None
        value, source = requested
        return container_image.parse_visible_devices(value), f"GPUs are requested by {source} ({value})"

    def choose_isolation(self, engine: EngineState, units: Sequence[NvidiaUnit], task: ContainerTask) -> Choice:
        """Choose the isolation. Raise IsolationError if the requested one is not available."""
        host = self._host(engine)
        if {*complete_graphics.CAPABILITIES} & {*(task.params["capabilities"] or ())}:
            host = replace(host, needs_graphics=True, graphics_fault=self._graphics().fault)
        capabilities = self._capabilities(task)
        return container_isolation.choose(
            task.params["isolation"], engine, host, units, capabilities, current=task.current
        )

    def access(
        self, isolation: str, engine: Docker | Podman, units: Sequence[NvidiaUnit], task: ContainerTask
    ) -> Access:
        """Return what the container is given, with warnings. Without units, prevent access to GPUs."""
        state, env = engine.state(), task.env or {}
        host = self._host(state)
        if engine_module_options.has_more_variables(task.options):
            env = no_gpus_from_default_runtime.with_unknown_variables(host, env)
        if not units:
            return no_gpus_from_default_runtime.no_access(env, no_gpus_from_default_runtime.swarm_variables(host))
        verdict = self._check_image(isolation, state, units, task) if task.image else ImageVerdict()
        requested = task.params["capabilities"] or None
        effective = self._capabilities(task)
        libraries = self._libraries(engine, task)
        if isolation == VOLUME and {*complete_graphics.CAPABILITIES} & {*effective}:
            paths = [f"{libraries.directory}/{name}" for name, _target in self._graphics().mounts]
            libraries = replace(libraries, is_complete=self._has_files(paths))
        given = container_access.access(
            isolation,
            state,
            host,
            units,
            effective if isolation == VOLUME else requested,
            env=env,
            libraries=libraries,
        )
        # NVIDIA's runtime puts the image's CUDA compatibility package first itself.
        needs_compat = verdict.needs_compat and isolation in (CDI, VOLUME)
        groups = self._groups(state, units, effective, task)
        options = engine_module_options.risk_options(engine.name, task.options)
        found = [
            *access_risks.warnings(isolation, state, host, units, options),
            *driver_files_of_container.unmet_capabilities(given, requested or ()),
        ]
        return replace(
            given,
            search_first={container_image.COMPAT_DIRECTORY: needs_compat},
            groups=groups.gids,
            warnings=(*found, *verdict.warnings, *given.warnings, *groups.warnings),
        )

    def driver_volume(
        self, accesses: Sequence[tuple[Docker | Podman, Access]], task: ContainerTask
    ) -> dict[str, Any] | None:
        """Return the arguments that create the driver volume, or None if it is complete or not used in each engine."""
        engines = [engine.name for engine, access in accesses if self._lacks_volume(engine, access)]
        if not engines:
            return None
        arguments: dict[str, Any] = {"engine": engines, "path": task.params["driver_volume_path"]}
        if self._driver_root != "/":
            arguments["driver_root"] = self._driver_root
        if task.options.get("docker_host"):
            arguments["docker_host"] = task.options["docker_host"]
        return arguments

    def assigned_gpus(
        self, container: Mapping[str, Any], engine: EngineState, exclude: Collection[str] = ()
    ) -> AssignedGpus:
        """Return the GPUs of a container, without the devices in `exclude`."""
        return gpus_of_container.assigned_gpus(
            container,
            engine,
            self.inventory,
            nodes=self.nodes,
            cdi_nodes=self._cdi_nodes(engine),
            swarm_variables=no_gpus_from_default_runtime.swarm_variables(self._host(engine)),
            exclude=exclude,
        )

    def nodes(self, device: str) -> NodeRoles:
        """Return the device nodes that a path refers to, under the names that `access` uses, or the CDI device."""
        host = isolation_host.IsolationHost(None, self._root)
        names = device_node_names.canonical_nodes(host, device) if device.startswith("/") else [device]
        return {name: gpus_of_container.node_role(name) for name in names}

    def use(
        self,
        listed: Iterable[Holder],
        *,
        whole_host: bool,
        ignored: Collection[str] = (),
        own: tuple[str, str] | None = None,
    ) -> GpuUse:
        """Return how the GPUs are used. See gpu_holders.find_use.

        `whole_host`: whether other engines, other users, Kubernetes and processes outside containers count. This
        requires root.
        """
        if not whole_host:
            return find_use(self.inventory, listed, ignored=ignored, own=own)
        pids = {process.pid for gpu in self.inventory.gpus for process in gpu.processes or ()}
        unlisted = {node for gpu in self.inventory.gpus if gpu.processes is None for node in gpu.nodes}
        return find_use(
            self.inventory,
            listed,
            gpu_processes.read(self._root, pids, nodes=unlisted, compute_node=_COMPUTE_NODE),
            kubelet_pod_devices.read(self._root),
            self.nodes,
            ignored=ignored,
            own=own,
            compute_node=_COMPUTE_NODE,
        )

    def _capabilities(self, task: ContainerTask) -> Sequence[str]:
        return driver_capabilities.effective(task.params["capabilities"], task.env, lambda: self._graphics().fault)

    def _check_image(
        self, isolation: str, engine: EngineState, units: Sequence[NvidiaUnit], task: ContainerTask
    ) -> ImageVerdict:
        """Check the image's requirements. Raise RequirementError if the driver or the units do not meet them."""
        support = container_image.Support(
            cuda=self._driver.get("cuda_version"),
            driver=self._driver.get("version"),
            gpus=[
                {
                    "uuid": unit.uuid,
                    "arch": unit.gpu.compute_capability,
                    "brand": container_image.image_brand(unit.gpu.brand),
                }
                for unit in units
            ],
        )
        checker = image_requirements.requirement_checker(isolation, engine, self._host(engine), units)
        return container_image.check_requirements(task.image.labels, task.env or {}, support, checker)

    def _groups(
        self, engine: EngineState, units: Sequence[NvidiaUnit], capabilities: Sequence[str], task: ContainerTask
    ) -> device_node_groups.NodeGroups:
        """Return the groups that the container's user needs to open the device nodes."""
        image_user = task.image.user if task.image else ""
        user = device_node_groups.node_user(engine.name, task.options, image_user, remaps=engine.userns_remap)
        nodes = device_nodes_by_capability.device_nodes(self._host(engine), units, capabilities)
        is_mapped = user.is_mapped or engine.rootless
        return device_node_groups.needed(self._root, nodes, user.user, _OPEN_NODES, is_mapped=is_mapped)

    def _libraries(self, engine: Docker | Podman, task: ContainerTask) -> Libraries:
        """Return how the container gets the driver's libraries. A volume of the engine can have its own directory."""
        version = self._driver.get("version") or ""
        volume = engine.volume(driver_volume.volume_name(version))
        directory = driver_volume.volume_directory(task.params["driver_volume_path"], version)
        return Libraries(
            mode=task.params["libraries"],
            directory=volume.device if volume is not None and volume.device else directory,
            user_volumes=tuple(task.options.get(engine_module_options.NAMES[engine.name]["volumes"]) or ()),
        )

    def _lacks_volume(self, engine: Docker | Podman, access: Access) -> bool:
        if access.driver_volume is None:
            return False
        volume = engine.volume(access.driver_volume)
        return volume is None or not volume.device or not self._has_driver_files(volume.device, access)

    def _has_driver_files(self, directory: str, access: Access) -> bool:
        """Return whether a directory contains the loaded driver's files for containers, and those of the access."""
        library = f"{directory}/lib64/libnvidia-ml.so.{self._driver.get('version')}"
        return self._has_files([library, *(mount.split(":")[0] for mount in access.file_mounts)])

    def _has_files(self, paths: Collection[str]) -> bool:
        return all(os.path.exists(os.path.join(self._root, path.lstrip("/"))) for path in paths)

    def _cdi_nodes(self, engine: EngineState) -> Callable[[str], Collection[str]]:
        devices = self._host(engine).specs.devices
        return lambda name: devices[name].nodes if name in devices else ()

    def _graphics(self) -> complete_graphics.Graphics:
        if self._graphics_files is None:
            machine = driver_files.normal_machine(platform.machine())
            root = os.path.join(self._root, self._driver_root.lstrip("/"))
            self._graphics_files = complete_graphics.of_driver(self._driver.get("version"), machine, root)
        return self._graphics_files

    def _host(self, engine: EngineState) -> isolation_host.IsolationHost:
        if engine.cdi_dirs not in self._specs:
            self._specs[engine.cdi_dirs] = stale_driver_version.read(engine.cdi_dirs, self._root)
        # The driver is unknown before `observe`.
        version, specs = self._driver.get("version"), self._specs[engine.cdi_dirs]
        return isolation_host.IsolationHost(
            version, self._root, specs, driver_root=self._driver_root, cdi_kind=self._cdi_kind
        )
