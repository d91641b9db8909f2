# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's GPUs, as the planner uses them.

The planner calls only the public methods of this class. A class for another vendor needs the same methods.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import access as container_access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import image as container_image
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import inspection, risks
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import isolation as container_isolation
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpus import (
    Inventory,
    Unit,
    inventory_from_facts,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.holders import Holder
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.inspection import AssignedGpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import Choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.request import (
    Request,
    SelectionError,
    parse_visible_devices,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.topology import Topology, topology_from_facts
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import EngineState, Image


class Nvidia:
    """The GPUs and MIG devices of this host. `gather` returns the facts of nvidia_gpu_facts for the given subsets."""

    def __init__(self, gather: Callable[[frozenset], Mapping[str, Any]], root: str = "/") -> None:
        self._gather = gather
        self._root = root
        # Empty before `observe`. The topology stays empty without `with_topology`.
        self.inventory = Inventory()
        self.topology = Topology()
        self._driver: Mapping[str, Any] = {}
        self._hosts: dict[tuple[str, ...], container_isolation.Host] = {}

    def observe(self, with_topology: bool) -> None:
        """Read the GPUs. Raise SelectionError if none is available."""
        facts = self._gather(frozenset({"min", "identity"} | ({"topology"} if with_topology else set())))
        state = facts["nvidia_gpu_state"]
        if state != "ready" and not facts["nvidia_gpus"]:
            raise SelectionError(
                f"GPUs are requested, but this host has no usable GPU (nvidia_gpu_state is {state}): "
                f"{facts['nvidia_gpu_state_reason']}"
            )
        self._driver = facts["nvidia_driver"]
        self.inventory = inventory_from_facts(facts["nvidia_gpus"])
        self.topology = topology_from_facts(facts.get("nvidia_topology"))

    def image_request(self, image: Image, env: Mapping[str, str]) -> tuple[Request, str] | None:
        """Return the GPUs that an image requests, and the origin of the request. Return None if it requests none."""
        requested = container_image.requested_gpus(image.labels, env)
        if requested is None:
            return None
        value, source = requested
        return parse_visible_devices(value), f"GPUs are requested by {source} ({value})"

    def check_image(self, image: Image, env: Mapping[str, str], units: Sequence[Unit], isolation: str) -> list[str]:
        """Return warnings. Raise RequirementError if the driver or the units do not meet the image's requirements."""
        support = container_image.Support(
            cuda=self._driver.get("cuda_version"),
            driver=self._driver.get("version"),
            gpus=[
                {
                    "uuid": unit.uuid,
                    "arch": unit.gpu.compute_capability,
                    "brand": (unit.gpu.brand or "").replace("_", "") or None,
                }
                for unit in units
            ],
        )
        # NVIDIA's runtime checks the requirements itself and does not accept minor-version compatibility.
        enforced = isolation in (container_isolation.RUNTIME, container_isolation.DEVICE_REQUESTS)
        return container_image.check_requirements(image.labels, env, support, enforced)

    def choose_isolation(
        self,
        requested: str,
        engine: EngineState,
        units: Sequence[Unit],
        capabilities: Sequence[str],
        current: str | None,
    ) -> Choice:
        """Choose the isolation. Raise IsolationError if the requested one is not available."""
        return container_isolation.choose(requested, engine, self._host(engine), units, capabilities, current=current)

    def access(
        self,
        isolation: str,
        engine: EngineState,
        units: Sequence[Unit],
        capabilities: Sequence[str] | None,
        *,
        env: Mapping[str, str],
    ) -> Access:
        """Return what the container is given. `env` combines the environments of the image and the user."""
        return container_access.access(isolation, engine, self._host(engine), units, capabilities, env=env)

    def no_access(self, env: Mapping[str, str]) -> Access:
        """Return the access of a container without GPUs."""
        return container_access.no_access(env)

    def assigned_gpus(
        self, container: Mapping[str, Any], engine: EngineState, exclude: Collection[str] = ()
    ) -> AssignedGpus:
        """Return the GPUs of a container, without the devices in `exclude`."""
        minors = container_isolation.mig_minors(self._host(engine))
        return inspection.assigned_gpus(container, engine, self.inventory, minors, nodes=self.nodes, exclude=exclude)

    def holder(self, container: Mapping[str, Any], engine: EngineState) -> Holder | None:
        """Return a container as a holder, or None if it holds no GPU."""
        minors = container_isolation.mig_minors(self._host(engine))
        return inspection.as_holder(container, engine, self.inventory, minors, nodes=self.nodes)

    def nodes(self, path: str) -> Collection[str]:
        """Return the device nodes that a path refers to, under the names that `access` uses."""
        return container_access.canonical_nodes(container_isolation.Host(None, self._root), path)

    def has_driver_files(self, directory: str) -> bool:
        """Return whether a directory contains the loaded driver's files for containers."""
        library = f"lib64/libnvidia-ml.so.{self._driver.get('version')}"
        return os.path.exists(os.path.join(self._root, directory.lstrip("/"), library))

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

    def _host(self, engine: EngineState) -> container_isolation.Host:
        if engine.cdi_dirs not in self._hosts:
            specs = reader.read(engine.cdi_dirs, self._root)
            self._hosts[engine.cdi_dirs] = container_isolation.Host(self._driver.get("version"), self._root, specs)
        host = self._hosts[engine.cdi_dirs]
        return container_isolation.Host(self._driver.get("version"), host.root, host.specs)
