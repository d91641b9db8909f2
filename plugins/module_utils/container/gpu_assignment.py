# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs and driver capabilities that a container is assigned, and their description for the diff."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory, Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import container_labels
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import NONE


@dataclass
class Assignment:
    """The GPUs of a container and the access to them."""

    units: list[Unit] = field(default_factory=list)
    isolation: str = NONE
    reason: str = ""
    access: Access = field(default_factory=Access)
    capabilities: list[str] | None = None
    exclusive: bool = False
    # The optional features and IMEX channels, as in the label.
    features: str = ""
    warnings: list[str] = field(default_factory=list)

    def labels(self, name: str) -> dict[str, str]:
        """Return the labels of the container `name`. All are set, so that none of its image counts."""
        return {
            container_labels.LABEL_GPUS: ",".join(sorted(self.uuids)),
            container_labels.LABEL_ISOLATION: self.isolation if self.units else NONE,
            container_labels.LABEL_CAPABILITIES: ",".join(sorted(self.capabilities or ())) if self.units else "",
            container_labels.LABEL_EXCLUSIVE: str(self.exclusive).lower(),
            container_labels.LABEL_FEATURES: self.features,
            container_labels.LABEL_CONTAINER: name,
        }

    @property
    def uuids(self) -> list[str]:
        return [unit.uuid for unit in self.units]

    @property
    def indexes(self) -> list[int | str]:
        return unit_indexes(self.units)


def unit_indexes(units: Sequence[Unit]) -> list[int | str]:
    """Return the index of each unit: a number for a GPU, "gpu:partition" for a partition."""
    return [unit.index if unit.is_partition else unit.gpu.index for unit in units]


def describe_unit(uuid: str, inventory: Inventory) -> str:
    """Describe a unit for the diff. The description is the UUID alone if the inventory does not contain the unit."""
    unit = inventory.by_uuid().get(uuid)
    if unit is None:
        return uuid
    word = unit.gpu.words.prefix if unit.is_partition else "GPU"
    return f"{uuid} ({word} {unit.index}, {unit.profile or unit.gpu.name})"
