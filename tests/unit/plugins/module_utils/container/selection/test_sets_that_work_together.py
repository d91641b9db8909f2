# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selection on hosts whose accelerators work together only in some sets, such as the modules of a Gaudi board."""

from __future__ import annotations

import random

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import gaudi_module_sets
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Gpu, Inventory, Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import Holder
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import sets_that_work_together
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    SelectionError,
    parse_request,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.selected_gpus import select_units


def board(modules=range(8), lost=()) -> Inventory:
    """Return a board. The indexes are in another order than the module IDs."""
    gpus = tuple(
        Gpu(index=(module + 3) % 8, uuid=f"module-{module}", health_state="lost" if module in lost else "ok")
        for module in modules
    )
    units = tuple(Unit(one.uuid, one) for one in gpus)
    return Inventory(gpus, units, groups=gaudi_module_sets.groups([one.uuid for one in gpus]))


def holder(name: str, *modules: int, exclusive: bool = True) -> Holder:
    uuids = frozenset(f"module-{module}" for module in modules)
    return Holder(name=name, engine="docker", uuids=uuids, exclusive=exclusive)


def select(gpus, inventory=None, **options) -> list[int]:
    inventory = inventory or board()
    topology = sets_that_work_together.topology(inventory.groups)
    units = select_units(parse_request(gpus), inventory, topology=topology, **options)
    return sorted(gaudi_module_sets.module_of(unit.uuid) for unit in units)


@pytest.mark.parametrize(
    ("gpus", "holders", "expected"),
    [
        # Of equal sets, the one with the lowest indexes.
        ("2", [], {6, 7}),
        ("4", [], {0, 1, 2, 3}),
        ("8", [], set(range(8))),
        ("all", [], set(range(8))),
        (["module-6", "module-7"], [], {6, 7}),
        (["module-5"], [], {5}),
        # The partner of a used module comes first, so that the other pairs and the other quad stay whole.
        ("1", [holder("a", 5)], {4}),
        ("2", [holder("a", 4)], {6, 7}),
        ("2", [holder("a", 0, 1)], {2, 3}),
        ("4", [holder("a", 2)], {4, 5, 6, 7}),
    ],
)
def test_a_request_gets_an_allowed_set(gpus, holders, expected):
    assert set(select(gpus, holders=holders, exclusive=True)) == expected


@pytest.mark.parametrize(
    ("gpus", "holders", "words"),
    [
        ("3", [], "only 1, 2, 4 or 8 of this host can work together"),
        ("6", [], "only 1, 2, 4 or 8 of this host can work together"),
        (["module-1", "module-2"], [], "cannot work together in one container. The sets of this host: module-0, "),
        (["module-0", "module-1", "module-2"], [], "cannot work together"),
        (["module-2", "module-3", "module-4", "module-5"], [], "cannot work together"),
        ("4", [holder("a", 0), holder("b", 7)], "6 are free, but no 4 of them can work together"),
        ("2", [holder("a", 0), holder("b", 3), holder("c", 4), holder("d", 6)], "no 2 of them can work together"),
    ],
)
def test_other_sets_are_refused_with_the_alternatives(gpus, holders, words):
    with pytest.raises(SelectionError) as error:
        select(gpus, holders=holders, exclusive=True)
    assert words in str(error.value)


def test_a_container_keeps_its_pair():
    assert select("2", current=["module-4", "module-5"]) == [4, 5]


def test_lost_modules_break_their_sets():
    inventory = board(lost=(1,))
    assert select("2", inventory) == [2, 3]
    assert select("4", inventory) == [4, 5, 6, 7]
    with pytest.raises(SelectionError, match="lost"):
        select("8", inventory)


def test_any_set_is_possible_without_groups():
    gpus = tuple(Gpu(index=index, uuid=f"GPU-{index}") for index in range(3))
    inventory = Inventory(gpus, tuple(Unit(one.uuid, one) for one in gpus))
    assert len(select_units(parse_request([0, 2]), inventory)) == 2


def test_a_thousand_requests_get_only_allowed_sets_and_no_module_twice():
    """Containers come and go on boards with missing and lost modules. Each request succeeds if a set is free."""
    chance = random.Random(60)
    for _host in range(50):
        modules = sorted(chance.sample(range(8), chance.choice((8, 8, 8, 4, 6))))
        inventory = board(modules, lost=chance.sample(modules, chance.choice((0, 0, 1))))
        usable = {unit.uuid for unit in inventory.units if not unit.gpu.lost}
        held: list[Holder] = []
        for number in range(20):
            if held and chance.random() < 0.4:
                held.remove(chance.choice(held))
            count = chance.choice((1, 1, 2, 2, 3, 4, 8))
            free = usable - {uuid for one in held for uuid in one.uuids}
            fits = bool(free) if count == 1 else any(len(one) == count and one <= free for one in inventory.groups)
            try:
                chosen = frozenset(f"module-{one}" for one in select(count, inventory, holders=held, exclusive=True))
            except SelectionError:
                assert not fits
                continue
            assert fits and len(chosen) == count and chosen <= free
            assert count == 1 or chosen in inventory.groups
            held.append(Holder(name=f"c{number}", engine="docker", uuids=chosen, exclusive=True))
