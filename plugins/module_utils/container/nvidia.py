# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's GPUs, as the planner uses them.

The planner calls only the public methods of this class. A class for another vendor needs the same methods.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import access as container_access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import image as container_image
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import inspection, node_groups, risks
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import isolation as container_isolation
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import options as container_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.access import Access, Libraries
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpus import (
    Inventory,
    Unit,
    inventory_from_facts,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.holders import GpuUse, Holder, find_use
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.image import Verdict
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.inspection import AssignedGpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import Choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.options import NodeUser
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.request import (
    Request,
    SelectionError,
    parse_visible_devices,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.topology import Topology, topology_from_facts
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import process_table
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import Docker, EngineState, Image, Podman
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import device_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import features as driver_features
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.features import Extras
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kubelet
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, driver_volume, graphics


class Nvidia:
    """The GPUs and MIG devices of this host. `gather` returns the facts of nvidia_gpu_facts for the given subsets.

    `driver_root` is the directory of the driver's user-space files if they are not those of the host itself.
    """

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
        self._graphics_files: graphics.Graphics | None = None
        self._specs: dict[tuple[str, ...], reader.Specs] = {}

    def observe(self, subsets: Collection[str] = ()) -> None:
        """Read the GPUs, with more subsets of nvidia_gpu_facts. Raise SelectionError if none is available."""
        facts = self._gather(frozenset({"min", "identity", "nvlink", *subsets}))
        state = facts["nvidia_gpu_state"]
        if state != "ready" and not facts["nvidia_gpus"]:
            raise SelectionError(
                f"GPUs are requested, but this host has no usable GPU (nvidia_gpu_state is {state}): "
                f"{facts['nvidia_gpu_state_reason']}"
            )
        self._driver = facts["nvidia_driver"]
        self.inventory = inventory_from_facts(facts["nvidia_gpus"])
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
        return parse_visible_devices(value), f"GPUs are requested by {source} ({value})"

    def check_image(
        self, image: Image, env: Mapping[str, str], units: Sequence[Unit], isolation: str, engine: EngineState
    ) -> Verdict:
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
        checker = container_isolation.requirement_checker(isolation, engine, self._host(engine), units)
        return container_image.check_requirements(image.labels, env, support, checker)

    def choose_isolation(
        self,
        requested: str,
        engine: EngineState,
        units: Sequence[Unit],
        capabilities: Sequence[str],
        current: str | None,
        *,
        user_capabilities: Collection[str] = (),
    ) -> Choice:
        """Choose the isolation. Raise IsolationError if the requested one is not available.

        `capabilities`: those of the user, else those of the image. `user_capabilities`: only those of the user.
        """
        host = self._host(engine)
        if {*graphics.CAPABILITIES} & {*user_capabilities}:
            host = replace(host, needs_graphics=True, graphics_fault=self._graphics().fault)
        return container_isolation.choose(requested, engine, host, units, capabilities, current=current)

    def available_capabilities(self, capabilities: Sequence[str]) -> list[str]:
        """Return the capabilities of an image without graphics and display, if the driver has no complete graphics."""
        wants = any(name in graphics.CAPABILITIES for name in capabilities)
        left_out = graphics.CAPABILITIES if wants and self._graphics().fault else ()
        return [name for name in capabilities if name not in left_out]

    def access(
        self,
        isolation: str,
        engine: EngineState,
        units: Sequence[Unit],
        capabilities: Sequence[str] | None,
        *,
        env: Mapping[str, str],
        libraries: Libraries,
        needs_compat: bool = False,
        more_variables: bool = False,
    ) -> Access:
        """Return what the container is given. `env` combines the environments of the image and the user.

        `more_variables`: whether the container gets variables that are unknown here, for example of a file.
        With `needs_compat`, the libraries of the image's CUDA compatibility package come first. NVIDIA's runtime does
        this itself.
        """
        host = self._host(engine)
        if isolation == container_isolation.VOLUME and {*graphics.CAPABILITIES} & {*(capabilities or ())}:
            paths = [f"{libraries.directory}/{name}" for name, _target in self._graphics().mounts]
            libraries = replace(libraries, is_complete=self._has_files(paths))
        env = container_access.with_unknown_variables(host, env) if more_variables else env
        given = container_access.access(isolation, engine, host, units, capabilities, env=env, libraries=libraries)
        is_ours = isolation in (container_isolation.CDI, container_isolation.VOLUME)
        return replace(given, needs_compat=needs_compat and is_ours)

    def with_groups(
        self, access: Access, engine: EngineState, units: Sequence[Unit], capabilities: Sequence[str], options: NodeUser
    ) -> Access:
        """Return the access with the groups that the container's user needs to open the device nodes."""
        nodes = container_access.device_nodes(self._host(engine), units, capabilities)
        found = node_groups.needed(self._root, nodes, options.user, is_mapped=options.is_mapped or engine.rootless)
        return replace(access, groups=found.gids, warnings=(*access.warnings, *found.warnings))

    def libraries(
        self, engine: Docker | Podman, params: Mapping[str, Any], user_options: Mapping[str, Any]
    ) -> Libraries:
        """Return how the container gets the driver's libraries. A volume of the engine can have its own directory."""
        version = self._driver.get("version") or ""
        volume = engine.volume(driver_volume.volume_name(version))
        directory = driver_volume.volume_directory(params["driver_volume_path"], version)
        return Libraries(
            mode=params["libraries"],
            directory=volume.device if volume is not None and volume.device else directory,
            user_volumes=tuple(user_options.get(container_options.NAMES[engine.name]["volumes"]) or ()),
        )

    def driver_volume(
        self,
        accesses: Sequence[tuple[Docker | Podman, Access]],
        params: Mapping[str, Any],
        user_options: Mapping[str, Any],
    ) -> dict[str, Any] | None:
        """Return the arguments that create the driver volume, or None if it is complete or not used in each engine."""
        engines = [engine.name for engine, access in accesses if self._lacks_volume(engine, access)]
        if not engines:
            return None
        arguments: dict[str, Any] = {"engine": engines, "path": params["driver_volume_path"]}
        if self._driver_root != "/":
            arguments["driver_root"] = self._driver_root
        if user_options.get("docker_host"):
            arguments["docker_host"] = user_options["docker_host"]
        return arguments

    def unmet_capabilities(self, access: Access, capabilities: Collection[str]) -> list[str]:
        """Return a warning about the requested capabilities for which the driver volume has no file."""
        paths = [mount.split(":")[0].rsplit("/", 2) for mount in access.file_mounts]
        files = [driver_files.DriverFile("", subdirectory, name) for _parent, subdirectory, name in paths]
        unmet = [
            name
            for name in sorted({"ngx", "video"} & {*capabilities})
            if files and not any(driver_files.is_in_sets(file, [name]) for file in files)
        ]
        if "compat32" in capabilities and files and not any(file.subdirectory == "lib" for file in files):
            unmet.insert(0, "compat32")
        if not unmet:
            return []
        return [
            f"capabilities: the driver volume has no files for {', '.join(unmet)}. Install the driver's packages that "
            "contain them, and if nvidia_driver_volume limits sets, add them to sets."
        ]

    def no_access(self, engine: EngineState, env: Mapping[str, str], *, more_variables: bool = False) -> Access:
        """Return the access of a container without GPUs."""
        host = self._host(engine)
        env = container_access.with_unknown_variables(host, env) if more_variables else env
        return container_access.no_access(env, container_isolation.swarm_variables(host))

    def assigned_gpus(
        self, container: Mapping[str, Any], engine: EngineState, exclude: Collection[str] = ()
    ) -> AssignedGpus:
        """Return the GPUs of a container, without the devices in `exclude`."""
        minors = device_nodes.mig_minors(self._root)
        return inspection.assigned_gpus(
            container,
            engine,
            self.inventory,
            minors,
            nodes=self.nodes,
            cdi_nodes=self._cdi_nodes(engine),
            swarm_variables=container_isolation.swarm_variables(self._host(engine)),
            exclude=exclude,
        )

    def holder(self, container: Mapping[str, Any], engine: EngineState) -> Holder:
        """Return a container as a holder. It has no UUIDs if the container holds no GPU."""
        minors = device_nodes.mig_minors(self._root)
        return inspection.as_holder(
            container,
            engine,
            self.inventory,
            minors,
            nodes=self.nodes,
            cdi_nodes=self._cdi_nodes(engine),
            swarm_variables=container_isolation.swarm_variables(self._host(engine)),
        )

    def use(
        self,
        listed: Iterable[Holder],
        *,
        whole_host: bool,
        ignored: Collection[str] = (),
        own: tuple[str, str] | None = None,
    ) -> GpuUse:
        """Return how the GPUs are used. See holders.find_use.

        `whole_host`: whether other engines, other users, Kubernetes and processes outside containers count. This
        requires root.
        """
        if not whole_host:
            return find_use(self.inventory, listed, ignored=ignored, own=own)
        pids = {process.pid for gpu in self.inventory.gpus for process in gpu.processes or ()}
        unlisted = [gpu.minor for gpu in self.inventory.gpus if gpu.processes is None and gpu.minor is not None]
        return find_use(
            self.inventory,
            listed,
            process_table.read(self._root, pids, minors=unlisted),
            kubelet.read(self._root),
            device_nodes.mig_minors(self._root),
            ignored=ignored,
            own=own,
        )

    def nodes(self, path: str) -> Collection[str]:
        """Return the device nodes that a path refers to, under the names that `access` uses."""
        return container_access.canonical_nodes(container_isolation.Host(None, self._root), path)

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

    def risks(
        self, isolation: str, engine: EngineState, units: Sequence[Unit], options: Mapping[str, Any]
    ) -> list[str]:
        """Return warnings about events that can remove the access and about GPUs that cannot be used fully."""
        host = self._host(engine)
        found = [
            risks.daemon_reload_risk(isolation, engine, host, units),
            risks.selinux_risk(isolation, engine, host, options),
            risks.restart_risk(isolation, engine, host, options.get("restart_policy")),
        ]
        prohibited = [
            f"{unit.gpu} is in compute mode prohibited: CUDA programs cannot use it."
            for unit in units
            if unit.gpu.compute_mode == "prohibited"
        ]
        unhealthy = [
            f"{unit.gpu} is {unit.gpu.health_state}: {reason}"
            for unit in units
            if unit.gpu.health_state != "ok"
            for reason in unit.gpu.health_reasons or ("no reason given",)
        ]
        return [*(risk for risk in found if risk), *dict.fromkeys(prohibited), *dict.fromkeys(unhealthy)]

    def _cdi_nodes(self, engine: EngineState) -> Callable[[str], Collection[str]]:
        devices = self._host(engine).specs.devices
        return lambda name: devices[name].nodes if name in devices else ()

    def _graphics(self) -> graphics.Graphics:
        if self._graphics_files is None:
            machine = driver_files.normal_machine(platform.machine())
            root = os.path.join(self._root, self._driver_root.lstrip("/"))
            self._graphics_files = graphics.of_driver(self._driver.get("version"), machine, root)
        return self._graphics_files

    def _host(self, engine: EngineState) -> container_isolation.Host:
        if engine.cdi_dirs not in self._specs:
            self._specs[engine.cdi_dirs] = reader.read(engine.cdi_dirs, self._root)
        # The driver is unknown before `observe`.
        version, specs = self._driver.get("version"), self._specs[engine.cdi_dirs]
        return container_isolation.Host(
            version, self._root, specs, driver_root=self._driver_root, cdi_kind=self._cdi_kind
        )
