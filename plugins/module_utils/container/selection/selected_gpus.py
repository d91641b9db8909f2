# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Select the units that satisfy a request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory, Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import Holder, holders_of
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import (
    best_set_of_gpus,
    consecutive_devices,
    sets_that_work_together,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.conditions_option import Conditions
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
    accepted = _Filter(conditions, busy or {}, frozenset(current) if running else frozenset())
    if request.kind == "count":
        sets_that_work_together.refuse_count(request.count, inventory)
        free, load = _free_units(request.count, inventory, accepted, holders, exclusive)
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
    consecutive_devices.refuse_gaps(units, inventory, _not_blocked(inventory, holders, exclusive))
    return units


def describe_unusable(inventory: Inventory) -> str:
    """List the GPUs that a count never selects, each with its reason."""
    return "; ".join(f"{gpu}: {gpu.unusable_reason}" for gpu in inventory.gpus if gpu.unusable_reason)


def _describe_host(inventory: Inventory, conditions: Conditions = _NO_CONDITIONS) -> str:
    return f"This host has {inventory.describe(with_numa=conditions.numa_node is not None)}."


class _Filter(NamedTuple):
    """The conditions, and what they are compared with. `kept` are the GPUs of the running container."""

    conditions: Conditions
    busy: Mapping[str, Sequence[str]]
    kept: frozenset[str]

    def mismatch(self, unit: Unit) -> str | None:
        """Return why a unit is rejected, or None."""
        return self.conditions.mismatch(unit) or self._present_mismatch(unit)

    def describe_rejected(self, units: Sequence[Unit]) -> str:
        """List the units that are rejected because of their present state, or because a property is unknown."""
        unknown = [(unit, reason) for unit in units if (reason := self.conditions.unknown(unit))]
        fitting = [unit for unit in units if self.conditions.mismatch(unit) is None]
        present = [(unit, reason) for unit in fitting if (reason := self._present_mismatch(unit))]
        rejected = "; ".join(f"{unit} {reason}" for unit, reason in (*unknown, *present))
        return f"Rejected: {rejected}. " if rejected else ""

    def _present_mismatch(self, unit: Unit) -> str | None:
        return None if unit.uuid in self.kept else self.conditions.present_mismatch(unit, self.busy)


def _all_units(inventory: Inventory, accepted: _Filter) -> list[Unit]:
    units = [unit for unit in inventory.units if accepted.mismatch(unit) is None]
    if not units:
        conditions = accepted.conditions
        host = _describe_host(inventory, conditions)
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


def _named_units(request: Request, inventory: Inventory, accepted: _Filter) -> list[Unit]:
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


def _not_blocked(inventory: Inventory, holders: Collection[Holder], exclusive: bool) -> list[Unit]:
    """Return the usable units that a container could get."""
    return [
        unit
        for unit in inventory.units
        if not unit.gpu.unusable_reason
        and not any(exclusive or holder.exclusive for holder in holders_of(unit, holders, inventory))
    ]


def _free_units(
    count: int, inventory: Inventory, accepted: _Filter, holders: Collection[Holder], exclusive: bool
) -> tuple[list[Unit], dict[str, int]]:
    """Return the units that a count can select from, and the number of containers that hold each unit."""
    conditions = accepted.conditions
    whole = conditions.mig_profile is None
    usable = [unit for unit in inventory.units if unit.is_partition is not whole and not unit.gpu.unusable_reason]
    fitting = [unit for unit in usable if accepted.mismatch(unit) is None]
    unusable = describe_unusable(inventory)
    unusable_note = f"Unusable: {unusable}. " if unusable else ""
    requested = f"{count} {'GPU' if whole else inventory.words.partition}{'s' if count != 1 else ''}"
    described = conditions.described(inventory.words)
    requested += f"{' with ' + described if described else ''} {'is' if count == 1 else 'are'} requested"
    fewer = ["request fewer"] if count > 1 else []
    if len(fitting) < count:
        advice = ["repair the unusable GPUs"] if unusable else []
        advice += fewer + (["change conditions"] if described else [])
        # Without unusable GPUs and conditions, only partitions prevent the assignment of a single GPU.
        words = inventory.words
        advice = advice or [f"set conditions.mig_profile to request a {words.partition}", f"disable {words.mode}"]
        raise SelectionError(
            f"{requested}, but {f'only {len(fitting)}' if fitting else 'none'} can be assigned. {unusable_note}"
            f"{accepted.describe_rejected(usable)}{_describe_host(inventory, conditions)} {_join_advice(advice)}."
        )
    holders_by_uuid = {unit.uuid: holders_of(unit, holders, inventory) for unit in fitting}
    # A count never shares a GPU that another container uses exclusively.
    blockers = {
        uuid: [holder for holder in held if exclusive or holder.exclusive] for uuid, held in holders_by_uuid.items()
    }
    free = [unit for unit in fitting if not blockers[unit.uuid]]
    if len(free) < count:
        in_use = "; ".join(
            f"{unit} by {', '.join(map(str, blockers[unit.uuid]))}" for unit in fitting if blockers[unit.uuid]
        )
        raise SelectionError(
            f"{'exclusive: ' if exclusive else ''}{requested}, but only {len(free)} of {len(fitting)} "
            f"{'is' if len(free) == 1 else 'are'} free. In use: {in_use}. "
            f"Free: {', '.join(map(str, free)) or 'none'}. {unusable_note}"
            f"{_join_advice(['stop a container or process', *fewer, *(['remove exclusive'] if exclusive else [])])}."
        )
    return free, {uuid: len(held) for uuid, held in holders_by_uuid.items()}


def _join_advice(advice: Sequence[str]) -> str:
    text = ", or ".join(filter(None, (", ".join(advice[:-1]), advice[-1])))
    return text[0].upper() + text[1:]
