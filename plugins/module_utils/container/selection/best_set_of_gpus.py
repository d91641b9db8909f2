# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the free GPUs a count gets: the order of preference among the sets. Pure functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpu_distance import Topology

# Above this number of possible sets, the search grows one set from each GPU instead of comparing all sets.
_EXHAUSTIVE_LIMIT = 20000


def choose(
    free: Sequence[Unit],
    count: int,
    current: frozenset[str],
    load: Mapping[str, int],
    topology: Topology,
    *,
    allowed: Sequence[Sequence[int]] | None,
) -> list[Unit]:
    """Choose the set of units with the best rank. `allowed`: the only sets, as positions in `free`.

    The order is: the container's own units, healthy units, unused units, units close to each other, low indexes. A
    container keeps its degraded GPU, because symptoms such as heat are temporary and a change recreates the container.
    """
    positions = range(len(free))
    closeness = [
        [topology.closeness(first.gpu, second.gpu) if first is not second else 0 for second in free] for first in free
    ]
    total = [sum(row) for row in closeness]

    def rank(chosen: Sequence[int]) -> tuple:
        inside = sum(closeness[first][second] for first, second in itertools.combinations(chosen, 2))
        # A set that cuts few links to the remaining GPUs leaves better sets for the next container.
        cut = sum(total[position] for position in chosen) - 2 * inside
        kept = sum(free[position].uuid in current for position in chosen)
        added = [free[position] for position in chosen if free[position].uuid not in current]
        degraded = sum(unit.gpu.health_state != "ok" for unit in added)
        used = sum(load.get(unit.uuid, 0) for unit in added)
        return (-kept, degraded, used, -inside, cut, [free[position].order for position in chosen])

    if allowed is not None or math.comb(len(free), count) <= _EXHAUSTIVE_LIMIT:
        best = min(itertools.combinations(positions, count) if allowed is None else allowed, key=rank)
        return [free[position] for position in best]
    candidates = []
    for seed in positions:
        chosen = [seed]
        while len(chosen) < count:
            chosen = min((sorted([*chosen, extra]) for extra in positions if extra not in chosen), key=rank)
        candidates.append(chosen)
    return [free[position] for position in min(candidates, key=rank)]
