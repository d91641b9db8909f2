# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container is assigned, and the plan that the module returns for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import options as container_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.inventory import Inventory, Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import (
    CAPABILITIES,
    DEFAULT_CAPABILITIES,
    NONE,
    Access,
)


@dataclass
class Assignment:
    """The GPUs of a container and the access to them."""

    units: list[Unit] = field(default_factory=list)
    isolation: str = NONE
    reason: str = ""
    access: Access = field(default_factory=Access)
    capabilities: list[str] | None = None
    exclusive: bool = False
    warnings: list[str] = field(default_factory=list)

    @property
    def uuids(self) -> list[str]:
        return [unit.uuid for unit in self.units]

    @property
    def indexes(self) -> list[int | str]:
        return unit_indexes(self.units)


def unit_indexes(units: Sequence[Unit]) -> list[int | str]:
    """Return the index of each unit: a number for a GPU, "gpu:mig" for a MIG device."""
    return [unit.index if unit.is_mig else unit.gpu.index for unit in units]


def describe_unit(uuid: str, inventory: Inventory) -> str:
    """Describe a unit for the diff. The description is the UUID alone if the inventory does not contain the unit."""
    unit = inventory.by_uuid().get(uuid)
    if unit is None:
        return uuid
    return f"{uuid} ({'MIG ' if unit.is_mig else 'GPU '}{unit.index}, {unit.profile or unit.gpu.name})"


def driver_capabilities(env: Mapping[str, str]) -> list[str]:
    """Return the driver capabilities that NVIDIA's runtime takes from a container's environment."""
    names = [part.strip() for part in env.get("NVIDIA_DRIVER_CAPABILITIES", "").split(",") if part.strip()]
    if "all" in names:
        return list(CAPABILITIES)
    return names or list(DEFAULT_CAPABILITIES)


def build_plan(
    *,
    engine: str,
    name: str,
    module_args: dict[str, Any],
    assignment: Assignment,
    before: dict[str, Any],
    after: dict[str, Any],
    container_id: str | None,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Build the plan that the action plugin executes."""
    return {
        "engine": engine,
        "module": container_options.MODULES[engine],
        "module_args": module_args,
        "nothing_to_do": False,
        "predicted": False,
        "gpu_changed": False,
        "image_id": None,
        "container_id": container_id,
        "driver_volume": None,
        "token": None,
        "gpu_diff": {"before": before, "after": after},
        "gpu_assignment": {
            "uuids": assignment.uuids,
            "indexes": assignment.indexes,
            "isolation": assignment.isolation,
            "engine": engine,
            "exclusive": assignment.exclusive,
            "reason": assignment.reason,
            "changes": [],
            # Ansible prints warnings apart from their task, so each warning names its container.
            "warnings": [f"container {name}: {text}" for text in (*warnings, *assignment.warnings)],
        },
    }
