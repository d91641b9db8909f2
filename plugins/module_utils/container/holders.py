# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The containers that hold GPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpus import Inventory, Unit


@dataclass(frozen=True)
class Holder:
    """A container that holds GPUs, or a run in progress that has reserved GPUs for a container."""

    name: str
    engine: str
    uuids: frozenset[str]
    exclusive: bool = False
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.engine} container {self.name}" + (f" ({self.detail})" if self.detail else "")


def holders_of(unit: Unit, holders: Collection[Holder], inventory: Inventory | None = None) -> list[Holder]:
    """List the holders of a unit. The holder of a MIG device also holds its GPU, and vice versa."""
    related = {unit.uuid, unit.gpu.uuid}
    if inventory is not None and not unit.is_mig:
        related.update(device.uuid for device in inventory.mig_devices(unit.gpu))
    return [holder for holder in holders if holder.uuids & related]


def merge_holders(holders: Iterable[Holder]) -> list[Holder]:
    """Combine several entries for one container. The result holds the GPUs of all of them."""
    found: dict[tuple[str, str], Holder] = {}
    for holder in holders:
        key = (holder.engine, holder.name)
        known = found.get(key, holder)
        found[key] = replace(
            known,
            uuids=known.uuids | holder.uuids,
            exclusive=known.exclusive or holder.exclusive,
            detail="; ".join(dict.fromkeys(detail for detail in (known.detail, holder.detail) if detail)),
        )
    return list(found.values())
