# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Intel Gaudi's accelerators, as the planner uses them: see vendor_protocol.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import gaudi_module_sets, gaudi_sysfs_values
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import engine_module_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Gpu,
    GpuWords,
    Inventory,
    Unit,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_nodes_only import NodeVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import inspected_container
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import DEVICES, RUNTIME
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import sets_that_work_together
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpu_distance import Topology
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    Request,
    list_request,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import ContainerTask
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    Docker,
    EngineState,
    Image,
    Podman,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_access import ACCESS
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import GAUDI

# The vendor's runtime, and the variables that it reads (HabanaAI/gaudi-container-runtime, 408d1e7). It compares only
# the last digit of a node's number.
RUNTIME_NAME = "habana"
MOST_WITH_RUNTIME = 9
VISIBLE_DEVICES, VISIBLE_MODULES = ACCESS[GAUDI].variables
_RESTARTS = ("always", "unless-stopped", "on-failure")


@dataclass(frozen=True)
class GaudiAccelerator(Gpu):
    """An accelerator. Only one process at a time can use it."""

    words: ClassVar[GpuWords] = GpuWords()

    def __str__(self) -> str:
        return f"Gaudi accelerator {self.index} ({self.uuid})"


class GaudiVendor(NodeVendor):
    """The accelerators of this host. The index of one can change with each boot, its module ID does not."""

    name = GAUDI
    title = "Gaudi accelerator"
    resources = ("habana.ai/",)
    gpu_class = GaudiAccelerator
    runtime_name = RUNTIME_NAME
    runtime_program = "habana-container-runtime"
    runtime_advice = f"{RUNTIME_NAME}: set gaudi_driver_container_runtime"
    runtime_variables = (VISIBLE_DEVICES, VISIBLE_MODULES)

    def build_inventory(self, devices: Sequence[Mapping[str, Any]]) -> Inventory:
        """Return the accelerators, and which of them can work together."""
        found = super().build_inventory(devices)
        self._own_nodes = {}
        for one in devices:
            others = [node["path"] for node in one["nodes"] or () if node["role"] != "device"]
            # An accelerator is used through its device node. Monitoring and the network alone do not use it.
            self._roles.update(dict.fromkeys(others, inspected_container.CONTROL))
            self._own_nodes[one["stable_id"]] = tuple(others)
        gpus = {
            gpu.uuid: replace(gpu, nodes=frozenset(node for node in gpu.nodes if node not in self._own_nodes[gpu.uuid]))
            for gpu in found.gpus
        }
        units = tuple(replace(unit, gpu=gpus[unit.uuid], nodes=gpus[unit.uuid].nodes) for unit in found.units)
        groups = gaudi_module_sets.groups([one["stable_id"] for one in devices])
        return replace(found, gpus=tuple(gpus.values()), units=units, groups=groups)

    def build_topology(self, devices: Sequence[Mapping[str, Any]]) -> Topology:
        """Return a topology in which accelerators that can work together are close."""
        return sets_that_work_together.topology(gaudi_module_sets.groups([one["stable_id"] for one in devices]))

    def observe(self, needs: Collection[str] = ()) -> None:
        """Read the accelerators. Each one has its own control node."""
        super().observe(needs)
        self._control = dict(self._own_nodes)

    def image_request(self, image: Image, env: Mapping[str, str]) -> tuple[Request, str] | None:
        """Return the accelerators in the variables of the vendor's runtime."""
        for name, prefix in ((VISIBLE_MODULES, gaudi_sysfs_values.MODULE), (VISIBLE_DEVICES, "")):
            values = [part.strip() for part in (env.get(name) or "").split(",") if part.strip()]
            if values:
                named = [value if value.lower() == "all" else f"{prefix}{value}" for value in values]
                return list_request(named), f"GPUs are requested by {name} ({','.join(values)})"
        return None

    def obstacle(self, isolation: str, engine: EngineState, units: Sequence[Unit]) -> str | None:
        """Return why an isolation is not available. The vendor's runtime does not work on all hosts."""
        found = super().obstacle(isolation, engine, units)
        if found or isolation != RUNTIME:
            return found
        if len(self.inventory.gpus) > MOST_WITH_RUNTIME:
            return (
                f"this host has {len(self.inventory.gpus)} accelerators, and the vendor's runtime confuses them from "
                f"{MOST_WITH_RUNTIME + 1} on"
            )
        if any(gaudi_module_sets.module_of(unit.uuid) is None for unit in units):
            return "the accelerators have no module IDs, and their indexes can change with each boot"
        return None

    def access(self, isolation: str, engine: Docker | Podman, units: Sequence[Unit], task: ContainerTask) -> Access:
        """Return what the container is given, with the module IDs for the libraries in the image."""
        env = gaudi_module_sets.visible_modules([unit.uuid for unit in units])
        if isolation == RUNTIME and units:
            # A list of indexes in the image would count more than the module IDs, `all` does not.
            override = {VISIBLE_DEVICES: "all"} if (task.env or {}).get(VISIBLE_DEVICES) else {}
            return Access(RUNTIME, runtime=RUNTIME_NAME, env={**env, **override})
        given = super().access(isolation, engine, units, task)
        warnings = (*given.warnings, *self._risks(isolation, engine, task)) if units else given.warnings
        return replace(given, env=env, warnings=warnings)

    def units_in_variables(self, variables: Mapping[str, str]) -> frozenset[str]:
        """Return the accelerators that the variables name. A list of indexes counts only without module IDs."""
        modules = [f"{gaudi_sysfs_values.MODULE}{name}" for name in _names(variables, VISIBLE_MODULES)]
        indexes = _names(variables, VISIBLE_DEVICES)
        takes_all = "all" in (name.lower() for name in indexes) or f"{gaudi_sysfs_values.MODULE}all" in modules
        if modules and not takes_all:
            indexes = []
        return frozenset(
            unit.uuid for unit in self.inventory.units if takes_all or unit.uuid in modules or unit.index in indexes
        )

    def _risks(self, isolation: str, engine: Docker | Podman, task: ContainerTask) -> list[str]:
        policy = engine_module_options.risk_options(engine.name, task.options).get("restart_policy")
        if isolation != DEVICES or policy not in _RESTARTS:
            return []
        return [
            f"restart_policy={policy}: the numbers of Gaudi's device nodes can change with each boot, and then the "
            "container starts with other accelerators. Use isolation=cdi, whose devices have the module IDs."
        ]


def _names(variables: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in variables.get(name, "").split(",") if part.strip()]
