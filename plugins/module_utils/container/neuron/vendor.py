# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AWS Neuron's chips, as the planner uses them: see vendor_protocol.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Gpu,
    GpuWords,
    Inventory,
    RunRule,
    Unit,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_nodes_only import NodeVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import RUNTIME
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    Request,
    list_request,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import ContainerTask
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Docker, Image, Podman
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_access import ACCESS
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import NEURON

# The driver numbers the chips of a container from the first chip that the process opens (aws-neuron-driver,
# neuron_cdev.c, 2.24.7.0), and the runtime fails with "Neuron cores are not contiguous".
_WHY = "the runtime in a container can only use AWS Neuron chips with consecutive numbers"
# The groups of chips that have the links of a topology on hosts with 16 chips (aws-neuron-sdk, deploy/eks/dra.rst).
_CHIPS_WITH_TOPOLOGY, _GROUPS = 16, (1, 4, 8, 16)
# The runtime of package aws-neuronx-oci-hook (aws-neuron-sdk, deploy/tutorials/oci-hook.rst), and its variable.
RUNTIME_NAME = "neuron"
(VISIBLE_DEVICES,) = ACCESS[NEURON].variables


@dataclass(frozen=True)
class NeuronChip(Gpu):
    """A chip. Its cores are not assigned separately: that is a setting of the processes in the container."""

    words: ClassVar[GpuWords] = GpuWords(partition="core", prefix="core", mode="partitioning")

    def __str__(self) -> str:
        return f"Neuron chip {self.index} ({self.uuid})"


class NeuronVendor(NodeVendor):
    """The chips of this host. `gpus` counts chips."""

    name = NEURON
    title = "AWS Neuron chip"
    resources = ("aws.amazon.com/neuron",)
    gpu_class = NeuronChip
    runtime_name = RUNTIME_NAME
    runtime_advice = f"{RUNTIME_NAME}: set neuron_driver_oci_hook, or install aws-neuronx-oci-hook"
    runtime_variables = (VISIBLE_DEVICES,)

    def build_inventory(self, devices: Sequence[Mapping[str, Any]]) -> Inventory:
        """Return the chips, with the rule for consecutive numbers."""
        found = super().build_inventory(devices)
        # A chip that the driver has lost counts, because the others keep the links of their groups.
        aligned = _GROUPS if len(devices) == _CHIPS_WITH_TOPOLOGY else ()
        return replace(found, runs=RunRule(_WHY, aligned))

    def image_request(self, image: Image, env: Mapping[str, str]) -> tuple[Request, str] | None:
        """Return the chips in the variable of the vendor's hook: ALL or a list of numbers."""
        value = (env.get(VISIBLE_DEVICES) or "").strip()
        if not value:
            return None
        request = list_request([part for part in value.split(",") if part.strip()])
        return request, f"GPUs are requested by {VISIBLE_DEVICES} ({value})"

    def access(self, isolation: str, engine: Docker | Podman, units: Sequence[Unit], task: ContainerTask) -> Access:
        """Return what the container is given."""
        if isolation != RUNTIME or not units:
            return super().access(isolation, engine, units, task)
        indexes = ",".join(str(unit.gpu.index) for unit in sorted(units, key=lambda unit: unit.order))
        return Access(RUNTIME, runtime=RUNTIME_NAME, env={VISIBLE_DEVICES: indexes})

    def units_in_variables(self, variables: Mapping[str, str]) -> frozenset[str]:
        """Return the chips that the variable of the vendor's hook names."""
        names = [part.strip() for part in variables.get(VISIBLE_DEVICES, "").split(",")]
        takes_all = "all" in (name.lower() for name in names)
        return frozenset(unit.uuid for unit in self.inventory.units if takes_all or unit.index in names)
