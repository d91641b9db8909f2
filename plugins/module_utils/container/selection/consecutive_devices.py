# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of devices with consecutive indexes, for vendors whose containers can only use such runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory, RunRule, Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError


def indexes_of_runs(indexes: Collection[int]) -> list[list[int]]:
    """Split indexes into their longest runs: 0, 1, 4 → [0, 1], [4]."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and runs[-1][-1] + 1 == index:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs


def describe(units: Collection[Unit]) -> str:
    """Describe the runs of units: 0-3, 6."""
    runs = indexes_of_runs([unit.gpu.index for unit in units])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "none"


def refuse_gaps(units: Sequence[Unit], inventory: Inventory, free: Collection[Unit]) -> None:
    """Raise SelectionError if the vendor requires a run and the units are none."""
    if inventory.runs is None or len(indexes_of_runs([unit.gpu.index for unit in units])) <= 1:
        return
    raise SelectionError(
        f"{', '.join(map(str, units))} are requested, but {inventory.runs.why}. Request devices with consecutive "
        f"indexes. Free: {describe(free)}."
    )


def choose(
    count: int, free: Sequence[Unit], rule: RunRule, *, current: frozenset[str], load: Mapping[str, int]
) -> list[Unit]:
    """Choose a run of `count` units. Raise SelectionError if the free units have none.

    The order is: the container's own units, healthy units, unused units, an aligned run, the shortest run of free
    units, so that longer runs stay whole, and low indexes.
    """
    by_index = {unit.gpu.index: unit for unit in free}
    unused = [index for index, unit in by_index.items() if not load.get(unit.uuid)]
    around = {index: len(run) for run in indexes_of_runs(unused) for index in run}
    prefers_aligned = count in rule.aligned

    def rank(run: Sequence[int]) -> tuple:
        added = [by_index[index] for index in run if by_index[index].uuid not in current]
        return (
            len(added),
            sum(unit.gpu.health_state != "ok" for unit in added),
            sum(load.get(unit.uuid, 0) for unit in added),
            prefers_aligned and run[0] % count != 0,
            max(around.get(index, 0) for index in run),
            run[0],
        )

    candidates = [
        run[start : start + count] for run in indexes_of_runs(by_index) for start in range(len(run) - count + 1)
    ]
    if not candidates:
        raise SelectionError(
            f"{count} devices are requested, but no {count} free devices have consecutive indexes, and {rule.why}. "
            f"Free: {describe(free)}. Request fewer, or stop containers or processes."
        )
    return [by_index[index] for index in min(candidates, key=rank)]
