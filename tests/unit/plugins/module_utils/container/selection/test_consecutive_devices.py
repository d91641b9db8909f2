# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The selection for vendors whose containers get only devices with consecutive indexes."""

from __future__ import annotations

import random

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Gpu,
    Inventory,
    RunRule,
    Unit,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import Holder
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.conditions_option import Conditions
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    Request,
    SelectionError,
    parse_request,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.selected_gpus import select_units

RULE = RunRule("containers can only use consecutive chips")
ALIGNED = RULE._replace(aligned=(1, 4, 8, 16))


def host(count, *, rule=RULE, lost=(), degraded=()):
    states = {**dict.fromkeys(lost, "lost"), **dict.fromkeys(degraded, "degraded")}
    chips = tuple(
        Gpu(index, f"id{index}", "chip", memory_total_mib=1000 + index, health_state=states.get(index, "ok"))
        for index in range(count)
    )
    return Inventory(chips, tuple(Unit(chip.uuid, chip) for chip in chips), rule)


def held(*indexes, exclusive=True):
    return [Holder("other", "docker", frozenset(f"id{index}" for index in indexes), exclusive)]


def select(request, inventory, **options):
    request = Request("count", request) if isinstance(request, int) else parse_request(request)
    return [unit.gpu.index for unit in select_units(request, inventory, **options)]


@pytest.mark.parametrize(
    ("count", "inventory", "used", "expected"),
    [
        (1, host(4), [], [0]),
        (2, host(6), [1], [2, 3]),
        # The shortest run that fits.
        (1, host(8), [1, 5], [0]),
        (2, host(12), [4, 7], [5, 6]),
        (3, host(12), [4, 8], [5, 6, 7]),
        (2, host(6, lost=[0, 3]), [], [1, 2]),
        (1, host(3, degraded=[0]), [], [1]),
        # Only runs at a multiple of their length form a topology on hosts with 16 chips.
        (4, host(16, rule=ALIGNED), [0], [4, 5, 6, 7]),
        (8, host(16, rule=ALIGNED), [7], [8, 9, 10, 11, 12, 13, 14, 15]),
        (16, host(16, rule=ALIGNED), [], list(range(16))),
        # The aligned run in the shortest free run: 12-15 is shorter than 4-10.
        (4, host(16, rule=ALIGNED), [3, 11], [12, 13, 14, 15]),
        # Without a free aligned run, any run is better than none.
        (4, host(16, rule=ALIGNED), [0, 4, 9, 13], [5, 6, 7, 8]),
        (3, host(16, rule=ALIGNED), [3, 8], [0, 1, 2]),
    ],
)
def test_a_count_gets_the_best_run(count, inventory, used, expected):
    assert select(count, inventory, holders=held(*used), exclusive=True) == expected


def test_shared_chips_are_used_last():
    assert select(2, host(6), holders=held(0, 1, 2, exclusive=False)) == [3, 4]
    assert select(4, host(6), holders=held(0, 1, 2, exclusive=False)) == [2, 3, 4, 5]


def test_a_container_keeps_its_run():
    own = {"current": ["id3", "id4"], "running": True}
    assert select(2, host(8), holders=held(2), exclusive=True, **own) == [3, 4]
    assert select(3, host(8), exclusive=True, **own) == [2, 3, 4]


@pytest.mark.parametrize("request_", ["0,1,2", "2,0,1", ["id1", "id2"], "1", "all"])
def test_a_consecutive_list_is_accepted(request_):
    assert select(request_, host(3))


@pytest.mark.parametrize(
    ("request_", "used", "message"),
    [
        ("0,2", [], r"GPU 0 \(id0\), GPU 2 \(id2\) are requested, but containers can only use consecutive chips.*0-7"),
        ("0,1,3", [5, 6], "Free: 0-4, 7."),
        (3, [2, 5], "no 3 free devices have consecutive indexes.*Free: 0-1, 3-4, 6-7"),
        (3, [1, 2, 4, 6], "no 3 free devices .*Free: 0, 3, 5, 7"),
    ],
)
def test_an_error_lists_the_free_runs(request_, used, message):
    with pytest.raises(SelectionError, match=message):
        select(request_, host(8), holders=held(*used), exclusive=True)


def test_all_devices_that_meet_conditions_must_be_a_run():
    inventory = host(4)
    assert select("all", inventory, conditions=Conditions(memory_min_mib=1002)) == [2, 3]
    with pytest.raises(SelectionError, match="consecutive"):
        select("all", Inventory(inventory.gpus, (inventory.units[0], *inventory.units[2:]), RULE))


def test_a_thousand_requests_get_runs_and_no_chip_twice():
    chance = random.Random(59)
    granted = refused = 0
    while granted + refused < 1000:
        size = chance.choice((1, 4, 6, 12, 16))
        inventory = host(
            size, rule=ALIGNED if size == 16 else RULE, lost=[one for one in range(size) if chance.random() < 0.05]
        )
        usable = {unit.gpu.index for unit in inventory.units if not unit.gpu.lost}
        running: dict[int, list[int]] = {}
        for number in range(20):
            taken = {index for run in running.values() for index in run}
            holders = [
                Holder(str(name), "docker", frozenset(f"id{index}" for index in run), True)
                for name, run in running.items()
            ]
            count = chance.randint(1, size)
            possible = any(set(range(start, start + count)) <= usable - taken for start in range(size - count + 1))
            try:
                run = select(count, inventory, holders=holders, exclusive=True)
            except SelectionError:
                assert not possible
                refused += 1
            else:
                assert possible
                assert run == list(range(run[0], run[0] + count))
                assert not taken & set(run)
                assert usable >= set(run)
                running[number] = run
                granted += 1
            if running and chance.random() < 0.5:
                running.pop(chance.choice(list(running)))
    assert granted > 300
    assert refused > 100
