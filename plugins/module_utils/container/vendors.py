# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an accelerator's vendor means by "give this container two of them": one class a vendor behind one interface.

The planner (gpu_assignment) knows nothing of NVIDIA; another vendor's class answers the same questions.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import holders
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import image as container_image
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import isolation as container_isolation
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.holders import Held
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import Access, Choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import (
    Holder,
    Inventory,
    Request,
    SelectionError,
    Topology,
    Unit,
    inventory_from_facts,
    parse_visible,
    topology_from_facts,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import EngineState, Image


class Accelerator(ABC):
    """The accelerators of one vendor on this host."""

    @abstractmethod
    def observe(self, with_topology: bool) -> None:
        """Look at the devices; raise SelectionError where the driver cannot serve any."""

    @property
    @abstractmethod
    def inventory(self) -> Inventory:
        """The devices, none before `observe`."""

    @property
    @abstractmethod
    def topology(self) -> Topology:
        """How close they are, empty unless observed with it."""

    @abstractmethod
    def wanted_by_image(self, image: Image, env: Mapping[str, str]) -> tuple[Request, str] | None:
        """Tell what an image asks for by itself, and why in words; None where it needs no accelerator."""

    @abstractmethod
    def check_image(self, image: Image, env: Mapping[str, str], units: Sequence[Unit], isolation: str) -> list[str]:
        """Raise RequirementError where the image is not served; give remarks otherwise."""

    @abstractmethod
    def choose_isolation(
        self, wanted: str, engine: EngineState, units: Sequence[Unit], capabilities: Sequence[str], current: str | None
    ) -> Choice:
        """Choose how the units are given, and say why; raise IsolationError where it cannot work."""

    @abstractmethod
    def access(
        self,
        isolation: str,
        engine: EngineState,
        units: Sequence[Unit],
        capabilities: Sequence[str] | None,
        *,
        env: Mapping[str, str],
    ) -> Access:
        """Say what the engine must be asked for; `env` is the image's and the user's environment together."""

    @abstractmethod
    def no_access(self, env: Mapping[str, str]) -> Access:
        """Say what keeps all accelerators away."""

    @abstractmethod
    def held(self, container: Mapping[str, Any], engine: EngineState, besides: Collection[str] = ()) -> Held:
        """Find out what a container was given, `besides` these devices."""

    @abstractmethod
    def holder(self, container: Mapping[str, Any], engine: EngineState) -> Holder | None:
        """Describe a container as a holder, None where it holds nothing."""

    @abstractmethod
    def nodes(self, path: str) -> Collection[str]:
        """Name the device nodes that a path means, by the names that `access` uses."""

    @abstractmethod
    def serves(self, directory: str) -> bool:
        """Tell whether a directory holds the driver's files for containers."""

    @abstractmethod
    def risks(
        self, isolation: str, engine: EngineState, units: Sequence[Unit], options: Mapping[str, Any]
    ) -> list[str]:
        """Say what may take the access away later, and what keeps the chosen units from being used."""


class Nvidia(Accelerator):
    """NVIDIA's GPUs and MIG devices. `gather` gives the facts of nvidia_gpu_facts for the subsets it is called with."""

    def __init__(self, gather: Callable[[frozenset], Mapping[str, Any]], root: str = "/") -> None:
        self._gather = gather
        self._root = root
        self._inventory = Inventory()
        self._topology = Topology()
        self._driver: Mapping[str, Any] = {}
        self._hosts: dict[tuple[str, ...], container_isolation.Host] = {}

    def observe(self, with_topology: bool) -> None:
        facts = self._gather(frozenset({"min", "identity"} | ({"topology"} if with_topology else set())))
        state = facts["nvidia_gpu_state"]
        if state != "ready" and not facts["nvidia_gpus"]:
            raise SelectionError(
                f"GPUs are asked for, but this host cannot give any (nvidia_gpu_state is {state}): "
                f"{facts['nvidia_gpu_state_reason']}"
            )
        self._driver = facts["nvidia_driver"]
        self._inventory = inventory_from_facts(facts["nvidia_gpus"])
        self._topology = topology_from_facts(facts.get("nvidia_topology"))

    @property
    def inventory(self) -> Inventory:
        return self._inventory

    @property
    def topology(self) -> Topology:
        return self._topology

    def wanted_by_image(self, image: Image, env: Mapping[str, str]) -> tuple[Request, str] | None:
        wanted = container_image.wanted_gpus(image.labels, env)
        if wanted is None:
            return None
        return parse_visible(wanted[0]), f"GPUs are given as {wanted[1]} asks ({wanted[0]})"

    def check_image(self, image: Image, env: Mapping[str, str], units: Sequence[Unit], isolation: str) -> list[str]:
        served = container_image.Served(
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
        # Under the vendor's runtime the requirements are checked once more, to the letter.
        enforced = isolation in (container_isolation.RUNTIME, container_isolation.DEVICE_REQUESTS)
        return container_image.check(image.labels, env, served, enforced)

    def choose_isolation(
        self, wanted: str, engine: EngineState, units: Sequence[Unit], capabilities: Sequence[str], current: str | None
    ) -> Choice:
        return container_isolation.choose(wanted, engine, self._host(engine), units, capabilities, current=current)

    def access(
        self,
        isolation: str,
        engine: EngineState,
        units: Sequence[Unit],
        capabilities: Sequence[str] | None,
        *,
        env: Mapping[str, str],
    ) -> Access:
        return container_isolation.access(isolation, engine, self._host(engine), units, capabilities, env=env)

    def no_access(self, env: Mapping[str, str]) -> Access:
        return container_isolation.no_access(env)

    def held(self, container: Mapping[str, Any], engine: EngineState, besides: Collection[str] = ()) -> Held:
        minors = container_isolation.mig_minors(self._host(engine))
        return holders.held(container, engine, self._inventory, minors, nodes=self.nodes, besides=besides)

    def holder(self, container: Mapping[str, Any], engine: EngineState) -> Holder | None:
        minors = container_isolation.mig_minors(self._host(engine))
        return holders.holder(container, engine, self._inventory, minors, nodes=self.nodes)

    def nodes(self, path: str) -> Collection[str]:
        return container_isolation.canonical_nodes(container_isolation.Host(None, self._root), path)

    def serves(self, directory: str) -> bool:
        library = f"lib64/libnvidia-ml.so.{self._driver.get('version')}"
        return os.path.exists(os.path.join(self._root, directory.lstrip("/"), library))

    def risks(
        self, isolation: str, engine: EngineState, units: Sequence[Unit], options: Mapping[str, Any]
    ) -> list[str]:
        host = self._host(engine)
        risks = [
            container_isolation.daemon_reload_risk(isolation, engine, host, units),
            container_isolation.selinux_risk(isolation, engine, host, options.get("security_opts") or ()),
            container_isolation.restart_risk(isolation, engine, host, options.get("restart_policy")),
        ]
        prohibited = [
            f"{unit.gpu} is in compute mode prohibited: no CUDA program can use it."
            for unit in units
            if unit.gpu.compute_mode == "prohibited"
        ]
        sick = [
            f"{unit.gpu} is {unit.gpu.health_state}: {reason}"
            for unit in units
            if unit.gpu.health_state != "ok"
            for reason in unit.gpu.health_reasons or ("no reason given",)
        ]
        return [*(risk for risk in risks if risk), *dict.fromkeys(prohibited), *dict.fromkeys(sick)]

    def _host(self, engine: EngineState) -> container_isolation.Host:
        if engine.cdi_dirs not in self._hosts:
            specs = reader.read(engine.cdi_dirs, self._root)
            self._hosts[engine.cdi_dirs] = container_isolation.Host(self._driver.get("version"), self._root, specs)
        host = self._hosts[engine.cdi_dirs]
        return container_isolation.Host(self._driver.get("version"), host.root, host.specs)


ACCELERATORS: dict[str, Callable[..., Accelerator]] = {"nvidia": Nvidia}
