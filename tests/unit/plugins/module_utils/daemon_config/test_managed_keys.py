# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import (
    ABSENT,
    EMPTY_RECORD,
    Leaf,
    MergeError,
    Policy,
    leaves,
    merge,
    release,
)

POLICY = Policy(whole=(("runtimes", "*"),), keyed_lists=(("labels",),))
REPLACE = POLICY._replace(lists="replace")
NVIDIA = {"path": "nvidia-container-runtime"}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, {}),
        ({"a": 1, "b": {"c": True}}, {Leaf(("a",)): 1, Leaf(("b", "c")): True}),
        ({"a": None}, {Leaf(("a",)): ABSENT}),
        ({"features": {}, "dns": []}, {}),
        ({"runtimes": {"nvidia": NVIDIA}}, {Leaf(("runtimes", "nvidia")): NVIDIA}),
        (
            {"dns": ["1.1.1.1", "9.9.9.9"]},
            {Leaf(("dns",), '"1.1.1.1"'): "1.1.1.1", Leaf(("dns",), '"9.9.9.9"'): "9.9.9.9"},
        ),
        ({"labels": ["rack=4"]}, {Leaf(("labels",), "rack"): "rack=4"}),
    ],
)
def test_leaves_of_a_tree_are_listed(wanted: dict[str, t.Any], expected: dict[Leaf, t.Any]) -> None:
    assert leaves(wanted, POLICY) == expected


def test_replaced_list_is_one_leaf() -> None:
    assert leaves({"dns": []}, REPLACE) == {Leaf(("dns",)): []}


@pytest.mark.parametrize(
    ("have", "wanted", "after", "changed"),
    [
        pytest.param({}, {"live-restore": True}, {"live-restore": True}, ("live-restore",), id="empty tree"),
        pytest.param({"a": 1}, {"a": 1}, {"a": 1}, (), id="equal value"),
        pytest.param({"a": 1}, {"a": True}, {"a": True}, ("a",), id="true is not 1"),
        pytest.param({"z": 1, "a": 2}, {"m": 3}, {"z": 1, "a": 2, "m": 3}, ("m",), id="others' keys stay"),
        pytest.param(
            {"features": {"buildkit": False}},
            {"features": {"cdi": True}},
            {"features": {"buildkit": False, "cdi": True}},
            ("features.cdi",),
            id="objects are merged",
        ),
        pytest.param(
            {"runtimes": {"nvidia": {"path": "/old", "runtimeArgs": ["--x"]}, "kata": {"path": "k"}}},
            {"runtimes": {"nvidia": NVIDIA}},
            {"runtimes": {"nvidia": NVIDIA, "kata": {"path": "k"}}},
            ("runtimes.nvidia",),
            id="object that is one value",
        ),
        pytest.param(
            {"dns": ["1.1.1.1"]}, {"dns": ["9.9.9.9", "1.1.1.1"]}, {"dns": ["1.1.1.1", "9.9.9.9"]}, ("dns",), id="union"
        ),
        pytest.param(
            {"labels": ["rack=1", "site=x"]},
            {"labels": ["rack=4"]},
            {"labels": ["rack=4", "site=x"]},
            ("labels",),
            id="keyed",
        ),
        pytest.param(
            {"default-runtime": "nvidia", "a": 1},
            {"default-runtime": None},
            {"a": 1},
            ("default-runtime",),
            id="null removes",
        ),
        pytest.param({"a": 1}, {"b": None}, {"a": 1}, (), id="null of an absent key"),
    ],
)
def test_merged_keys_are_released_without_a_trace(
    have: dict[str, t.Any], wanted: dict[str, t.Any], after: dict[str, t.Any], changed: tuple[str, ...]
) -> None:
    merged = merge(have, EMPTY_RECORD, "us", wanted, POLICY)
    assert merged.tree == after
    assert merged.changed == changed

    again = merge(merged.tree, merged.record, "us", wanted, POLICY)
    assert (again.tree, again.changed, again.record) == (after, (), merged.record)

    back = release(merged.tree, merged.record, "us", None, POLICY)
    assert back.tree == have
    assert back.changed == changed
    assert back.record == EMPTY_RECORD
    assert back.edited == ()


def test_order_of_keys_is_kept() -> None:
    merged = merge({"z": 1, "a": 1.5}, EMPTY_RECORD, "us", {"b": 1}, POLICY)
    assert list(merged.tree) == ["z", "a", "b"]


def test_leaf_that_is_no_longer_requested_is_purged() -> None:
    first = merge({"a": 1}, EMPTY_RECORD, "us", {"runtimes": {"nvidia": NVIDIA}, "a": 2, "dns": ["1.1.1.1"]}, POLICY)
    second = merge(first.tree, first.record, "us", {"dns": ["9.9.9.9"]}, POLICY, purge=True)
    assert second.tree == {"a": 1, "dns": ["9.9.9.9"]}
    assert second.changed == second.revoked == ("a", "dns", "runtimes.nvidia")


FIRST_TASK = {"runtimes": {"nvidia": NVIDIA}, "features": {"cdi": True}, "dns": ["1.1.1.1"], "labels": ["rack=1"]}


@pytest.mark.parametrize(
    ("second_task", "after", "revoked"),
    [
        pytest.param({}, FIRST_TASK, (), id="nothing"),
        pytest.param({"mtu": 9000}, {**FIRST_TASK, "mtu": 9000}, (), id="another key"),
        pytest.param({"dns": ["9.9.9.9"]}, {**FIRST_TASK, "dns": ["1.1.1.1", "9.9.9.9"]}, (), id="another item"),
        pytest.param({"labels": ["rack=2"]}, {**FIRST_TASK, "labels": ["rack=2"]}, (), id="item with the same key"),
        pytest.param(
            {"features": {"x": True}}, {**FIRST_TASK, "features": {"cdi": True, "x": True}}, (), id="another part"
        ),
        pytest.param(
            {"features": None},
            {key: value for key, value in FIRST_TASK.items() if key != "features"},
            ("features.cdi",),
            id="null of the whole",
        ),
    ],
)
def test_second_task_of_an_owner_keeps_the_keys_of_the_first(
    second_task: dict[str, t.Any], after: dict[str, t.Any], revoked: tuple[str, ...]
) -> None:
    first = merge({"a": 1}, EMPTY_RECORD, "us", FIRST_TASK, POLICY)
    second = merge(first.tree, first.record, "us", second_task, POLICY)
    assert second.tree == {"a": 1, **after}
    assert second.revoked == revoked
    again = merge(second.tree, second.record, "us", second_task, POLICY)
    assert (again.changed, again.revoked, again.record) == ((), (), second.record)
    assert release(second.tree, second.record, "us", None, POLICY).tree == {"a": 1}


def test_part_of_a_removed_object_can_be_set_later() -> None:
    have = {"features": {"x": True}}
    first = merge(have, EMPTY_RECORD, "us", {"features": None}, POLICY)
    second = merge(first.tree, first.record, "us", {"features": {"cdi": True}}, POLICY)
    assert second.tree == {"features": {"x": True, "cdi": True}}
    assert second.revoked == ("features",)
    assert release(second.tree, second.record, "us", None, POLICY).tree == have


def test_existing_value_is_not_recorded() -> None:
    first = merge({"live-restore": True}, EMPTY_RECORD, "us", {"live-restore": True}, POLICY)
    assert first.record == EMPTY_RECORD
    second = merge(first.tree, first.record, "us", {}, POLICY, purge=True)
    assert second.tree == {"live-restore": True}


def test_edited_value_is_replaced_and_restored() -> None:
    first = merge({}, EMPTY_RECORD, "us", {"debug": True}, POLICY)
    second = merge({"debug": False}, first.record, "us", {"debug": True}, POLICY)
    assert second.tree == {"debug": True}
    assert release(second.tree, second.record, "us", None, POLICY).tree == {"debug": False}


def test_edited_value_is_not_released() -> None:
    first = merge({}, EMPTY_RECORD, "us", {"debug": True, "mtu": 9000}, POLICY)
    back = release({"debug": False, "mtu": 9000}, first.record, "us", None, POLICY)
    assert back.tree == {"debug": False}
    assert back.edited == ("debug",)
    assert back.record == EMPTY_RECORD


def test_empty_object_of_others_is_kept() -> None:
    first = merge({"features": {}}, EMPTY_RECORD, "us", {"features": {"cdi": True}}, POLICY)
    assert release(first.tree, first.record, "us", None, POLICY).tree == {"features": {}}


def test_object_created_for_two_managers_is_kept_until_both_release_it() -> None:
    one = merge({}, EMPTY_RECORD, "one", {"features": {"cdi": True}}, POLICY)
    two = merge(one.tree, one.record, "two", {"features": {"x": True}}, POLICY)
    back = release(two.tree, two.record, "one", None, POLICY)
    assert back.tree == {"features": {"x": True}}
    assert release(back.tree, back.record, "two", None, POLICY).tree == {}


def test_key_of_two_managers_is_kept_until_both_release_it() -> None:
    one = merge({}, EMPTY_RECORD, "one", {"features": {"cdi": True}}, POLICY)
    two = merge(one.tree, one.record, "two", {"features": {"cdi": True}}, POLICY)
    assert two.changed == ()
    back = release(two.tree, two.record, "one", None, POLICY)
    assert back.tree == {"features": {"cdi": True}}
    assert release(back.tree, back.record, "two", None, POLICY).tree == {}


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [
        ({"mtu": 1}, {"mtu": 2}, '"mtu" is set to 1 by one, but two requests 2'),
        ({"features": {"cdi": True}}, {"features": None}, 'two requests "features" set to absent'),
        ({"dns": None}, {"dns": ["1.1.1.1"]}, 'two requests "dns" set to "1.1.1.1"'),
    ],
)
def test_conflict_between_managers_is_reported(one: dict[str, t.Any], two: dict[str, t.Any], words: str) -> None:
    first = merge({"features": {"x": 1}, "dns": ["9.9.9.9"]}, EMPTY_RECORD, "one", one, POLICY)
    with pytest.raises(MergeError, match=words):
        merge(first.tree, first.record, "two", two, POLICY)


@pytest.mark.parametrize(
    ("have", "wanted", "words"),
    [
        (
            {"features": 3},
            {"features": {"cdi": True}},
            '"features" is 3, but options can be merged only into an',
        ),
        ({"dns": "1.1.1.1"}, {"dns": ["9.9.9.9"]}, '"dns" is "1.1.1.1", but options can be merged only into a list'),
    ],
)
def test_value_of_the_wrong_type_is_not_replaced(have: dict[str, t.Any], wanted: dict[str, t.Any], words: str) -> None:
    with pytest.raises(MergeError, match=words):
        merge(have, EMPTY_RECORD, "us", wanted, POLICY)


def test_union_can_change_to_replace() -> None:
    first = merge({"dns": ["1.1.1.1"]}, EMPTY_RECORD, "us", {"dns": ["9.9.9.9"]}, POLICY)
    second = merge(first.tree, first.record, "us", {"dns": ["9.9.9.9"]}, REPLACE)
    assert second.tree == {"dns": ["9.9.9.9"]}
    assert release(second.tree, second.record, "us", None, REPLACE).tree == {"dns": ["1.1.1.1"]}


def test_named_keys_are_released() -> None:
    wanted = {"runtimes": {"nvidia": NVIDIA, "x": {"path": "x"}}, "dns": ["1.1.1.1"], "debug": True}
    first = merge({}, EMPTY_RECORD, "us", wanted, POLICY)
    one = release(first.tree, first.record, "us", {"runtimes": {"nvidia": None}}, POLICY)
    assert one.tree == {"runtimes": {"x": {"path": "x"}}, "dns": ["1.1.1.1"], "debug": True}
    many = release(first.tree, first.record, "us", {"runtimes": None, "dns": ["1.1.1.1"]}, POLICY)
    assert many.tree == {"debug": True}


KEYS = st.sampled_from(["features", "runtimes", "dns", "labels", "debug"])
SCALARS = st.one_of(st.booleans(), st.integers(0, 2), st.sampled_from(["a=1", "a=2", "b"]))
TREES = st.fixed_dictionaries(
    {},
    optional={
        "features": st.dictionaries(st.sampled_from("xyz"), SCALARS, max_size=3),
        "runtimes": st.dictionaries(
            st.sampled_from(["nvidia", "kata"]), st.fixed_dictionaries({"path": SCALARS}), max_size=2
        ),
        "dns": st.lists(st.sampled_from(["1", "2", "3"]), unique=True),
        "labels": st.lists(st.sampled_from(["a=1", "b=1", "c=1"]), unique=True),
        "debug": SCALARS,
    },
)


@given(have=TREES, steps=st.lists(TREES, max_size=4), purge=st.booleans())
def test_release_restores_the_original_tree(have: dict[str, t.Any], steps: list[dict[str, t.Any]], purge: bool) -> None:
    tree, record = copy.deepcopy(have), EMPTY_RECORD
    for wanted in steps:
        merged = merge(tree, record, "us", wanted, POLICY, purge=purge)
        tree, record = merged.tree, merged.record
        assert merge(tree, record, "us", wanted, POLICY, purge=purge).changed == ()
    back = release(tree, record, "us", None, POLICY)
    assert back.tree == have
    assert back.record == EMPTY_RECORD
