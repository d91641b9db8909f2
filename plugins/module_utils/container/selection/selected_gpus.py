# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Select the GPUs that satisfy a request: named ones, all, or a count of the free ones (free_gpus.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory, Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import Holder, holders_of
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import (
    best_set_of_gpus,
    consecutive_devices,
    free_gpus,
    sets_that_work_together,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.conditions_option import (
    Conditions,
    ConditionsNow,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpu_distance import Topology
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    Request,
    SelectionError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.named_gpu import find_unit, refuse_lost

_NO_CONDITIONS = Conditions()
_NO_TOPOLOGY = Topology()


def select_units(
    request: Request,
    inventory: Inventory,
    conditions: Conditions = _NO_CONDITIONS,
    *,
    exclusive: bool = False,
    holders: Collection[Holder] = (),
    current: Collection[str] = (),
    running: bool = False,
    busy: Mapping[str, Sequence[str]] | None = None,
    topology: Topology = _NO_TOPOLOGY,
) -> list[Unit]:
    """Return the units that satisfy a request. Raise SelectionError if the host cannot satisfy it.

    `holders` are the others that hold GPUs, `busy` the processes of others by UUID. `current` are the container's own
    GPUs, which a count selects first. If it is `running`, it keeps them in spite of their present state.
    """
    if request.kind == "none":
        return []
    if not inventory.gpus:
        raise SelectionError("GPUs are requested, but the driver reports no GPU on this host.")
    accepted = ConditionsNow(conditions, busy or {}, frozenset(current) if running else frozenset())
    if request.kind == "count":
        sets_that_work_together.refuse_count(request.count, inventory)
        free, load = free_gpus.free_units(request.count, inventory, accepted, holders, exclusive)
        if inventory.runs is not None:
            return consecutive_devices.choose(
                request.count, free, inventory.runs, current=frozenset(current), load=load
            )
        candidates = sets_that_work_together.candidates(free, request.count, inventory)
        return best_set_of_gpus.choose(free, request.count, frozenset(current), load, topology, allowed=candidates)
    units = _named_units(request, inventory, accepted) if request.selectors else _all_units(inventory, accepted)
    sets_that_work_together.refuse_set(units, inventory)
    if exclusive:
        _refuse_held(units, holders)
    consecutive_devices.refuse_gaps(units, inventory, free_gpus.not_blocked(inventory, holders, exclusive))
    return units


def _all_units(inventory: Inventory, accepted: ConditionsNow) -> list[Unit]:
    units = [unit for unit in inventory.units if accepted.mismatch(unit) is None]
    if not units:
        conditions = accepted.conditions
        host = accepted.describe_host(inventory)
        rejected = accepted.describe_rejected(inventory.units)
        described = conditions.described(inventory.words)
        raise SelectionError(
            f"No GPU on this host meets the conditions ({described}). {rejected}{host} Change conditions."
            if described
            else f"This host has no GPU or {inventory.words.partition} that can be assigned to a container. {host}"
        )
    for unit in units:
        refuse_lost(unit.gpu)
    return units


def _named_units(request: Request, inventory: Inventory, accepted: ConditionsNow) -> list[Unit]:
    units: dict[str, Unit] = {}
    for selector in request.selectors:
        unit = find_unit(selector, inventory)
        refuse_lost(unit.gpu)
        if unit.gpu.unusable_reason:
            raise SelectionError(
                f"{unit} is requested but cannot be used: {unit.gpu.unusable_reason}. Repair the GPU, or request "
                "another GPU."
            )
        reason = accepted.mismatch(unit)
        if reason:
            raise SelectionError(f"{unit} is requested but {reason}. Request another GPU, or change conditions.")
        units[unit.uuid] = unit
    return sorted(units.values(), key=lambda unit: unit.order)


def _refuse_held(units: Sequence[Unit], holders: Collection[Holder]) -> None:
    held = [f"{unit} is held by {holder}" for unit in units for holder in holders_of(unit, holders)]
    if held:
        raise SelectionError(
            f"exclusive: {'; '.join(held)}. Stop the container or process, request other GPUs, or remove exclusive."
        )
