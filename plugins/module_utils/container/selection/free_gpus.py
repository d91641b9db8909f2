# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs are free for a request of a number of GPUs, and the error if too few are. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory, Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import Holder, holders_of
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.conditions_option import ConditionsNow
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError


def describe_unusable(inventory: Inventory) -> str:
    """List the GPUs that a count never selects, each with its reason."""
    return "; ".join(f"{gpu}: {gpu.unusable_reason}" for gpu in inventory.gpus if gpu.unusable_reason)


def not_blocked(inventory: Inventory, holders: Collection[Holder], exclusive: bool) -> list[Unit]:
    """Return the usable units that a container could get."""
    return [
        unit
        for unit in inventory.units
        if not unit.gpu.unusable_reason
        and not any(exclusive or holder.exclusive for holder in holders_of(unit, holders, inventory))
    ]


def free_units(
    count: int, inventory: Inventory, accepted: ConditionsNow, holders: Collection[Holder], exclusive: bool
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
            f"{accepted.describe_rejected(usable)}{accepted.describe_host(inventory)} {_join_advice(advice)}."
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
