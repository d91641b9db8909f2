# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs of the drift test: no case is lost or broken twice, and the shards are the whole list."""

from __future__ import annotations

import collections
import re
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.tests.drift import batches, ways
from ansible_collections.gpufleet.hosts.tests.drift import items as drift_items
from ansible_collections.gpufleet.hosts.tests.drift.items import Item
from ansible_collections.gpufleet.hosts.tests.drift.run import platforms
from ansible_collections.gpufleet.hosts.tests.drift.ways import Case
from ansible_collections.gpufleet.hosts.tests.unit.drift import converged_host as sample

ROOT = Path(__file__).resolve().parents[3]
HOST = sample.converged_host()
CASES = ways.cases(drift_items.items(HOST, sample.values(), platforms(sample.KEY)), HOST)


def case(name: str, way: str = "removed", *, kind: str = "package", part: str = "container_engine") -> Case:
    return Case(Item(part, kind, name), way, "true")


def names(found: list[list[Case]]) -> list[list[str]]:
    return [[case.item.name for case in batch] for batch in found]


def test_every_case_is_in_exactly_one_batch() -> None:
    found = [case for batch in batches.batches(CASES, {}) for case in batch]
    assert sorted(map(str, found)) == sorted(map(str, CASES))


def test_the_items_of_a_batch_are_of_one_part_kind_and_way() -> None:
    found = batches.batches(CASES, {})
    assert [{(case.item.part, case.item.kind, case.way) for case in batch} for batch in found if len(batch) > 1] != []
    for batch in found:
        assert len({(case.item.part, case.item.kind, case.way) for case in batch}) == 1
        assert len({case.item for case in batch}) == len(batch)


@pytest.mark.parametrize(
    ("cases", "removals", "expected"),
    [
        ([case("a"), case("b"), case("c")], {}, [["a", "b", "c"]]),
        # b needs a, so the removal of a would remove it, too.
        ([case("a"), case("b"), case("c")], {"a": ["a", "b"]}, [["a", "c"], ["b"]]),
        ([case("a"), case("b"), case("c")], {"b": ["b", "a"]}, [["a", "c"], ["b"]]),
        ([case("a"), case("b", part="nvidia_driver")], {}, [["a"], ["b"]]),
        ([case("a", "edited", kind="file"), case("a", "deleted", kind="file")], {}, [["a"], ["a"]]),
        ([case("a", kind="option"), case("b", kind="option")], {}, [["a"], ["b"]]),
        ([case("a", "off", kind="persistence_mode"), case("b", "off", kind="persistence_mode")], {}, [["a", "b"]]),
    ],
)
def test_only_cases_that_do_not_disturb_each_other_share_a_run(
    cases: list[Case], removals: dict[str, list[str]], expected: list[list[str]]
) -> None:
    assert names(batches.batches(cases, removals)) == expected


def test_the_shards_together_are_all_cases() -> None:
    found = [str(case) for name in batches.SHARDS for case in batches.shard(CASES, name)]
    assert collections.Counter(found) == collections.Counter(map(str, CASES))
    assert all(batches.shard(CASES, name) for name in batches.SHARDS)
    assert batches.shard(CASES, "") == CASES


def test_a_scenario_runs_each_shard() -> None:
    found = [re.findall(r"--shard=(\w+)", path.read_text()) for path in sorted(ROOT.glob("molecule/drift*/verify.yml"))]
    assert sorted(name for names in found for name in names) == sorted(batches.SHARDS)
