# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sets of devices that can work together in one container, for vendors that do not support every set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory, Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpu_distance import Topology
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError


def refuse_count(count: int, inventory: Inventory) -> None:
    """Raise SelectionError if no set has this number of devices."""
    if count < 2 or inventory.groups is None or any(len(group) == count for group in inventory.groups):
        return
    sizes = sorted({1, *(len(group) for group in inventory.groups)})
    raise SelectionError(
        f"{count} GPUs are requested, but in one container only {_join(map(str, sizes), 'or')} of this host can work "
        "together. Request one of these counts."
    )


def candidates(free: Sequence[Unit], count: int, inventory: Inventory) -> list[list[int]] | None:
    """Return the sets of this size among the free units, as positions in `free`. None if every set is possible."""
    if count < 2 or inventory.groups is None:
        return None
    positions = {unit.uuid: position for position, unit in enumerate(free)}
    fitting = [group for group in inventory.groups if len(group) == count]
    found = [sorted(positions[uuid] for uuid in group) for group in fitting if group <= positions.keys()]
    if found:
        return found
    raise SelectionError(
        f"{count} GPUs are requested, and {len(free)} are free, but no {count} of them can work together. Free: "
        f"{', '.join(map(str, free))}. Sets of {count}: {_describe(fitting)}. Stop a container or process that uses a "
        "GPU of a set, repair an unusable GPU of a set, or request fewer GPUs."
    )


def refuse_set(units: Sequence[Unit], inventory: Inventory) -> None:
    """Raise SelectionError if these units cannot work together in one container."""
    chosen = frozenset(unit.uuid for unit in units)
    if len(chosen) < 2 or inventory.groups is None or chosen in inventory.groups:
        return
    raise SelectionError(
        f"{', '.join(map(str, units))} cannot work together in one container. The sets of this host: "
        f"{_describe(inventory.groups)}. Request one of these sets, or one GPU."
    )


def topology(groups: Iterable[frozenset[str]]) -> Topology:
    """Return a topology in which units are closer the more sets they share.

    A count then breaks up as few sets as possible: the second single GPU is the partner of the first one.
    """
    groups = list(groups)
    uuids = sorted(frozenset().union(*groups))
    links = [[sum({first, second} <= group for group in groups) for second in uuids] for first in uuids]
    return Topology(tuple(uuids), tuple(map(tuple, links)))


def _describe(groups: Iterable[frozenset[str]]) -> str:
    return "; ".join(", ".join(sorted(group)) for group in groups) or "none"


def _join(words: Iterable[str], last: str) -> str:
    *others, end = words
    return f"{', '.join(others)} {last} {end}" if others else end
