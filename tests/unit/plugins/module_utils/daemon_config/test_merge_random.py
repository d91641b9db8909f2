# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random options of several owners are merged into random files and removed again."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import json_text, managed_keys, record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.docker_options import merge_policy
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import EMPTY_RECORD
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.record import State
from ansible_collections.gpufleet.hosts.tests.unit.plugins.daemon_json_changes import FILE, plan

# Other programs may keep the machine busy.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
OWNERS = ("user", "container_engine", "my_playbook")
NAMES = st.sampled_from(["a", "b", "ü.x"])
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text('aä😀"\\/\n\u2028', max_size=3),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=2)),
    max_leaves=4,
)


def some(values: dict[str, st.SearchStrategy[t.Any]]) -> st.SearchStrategy[dict[str, t.Any]]:
    return st.fixed_dictionaries({}, optional=values)


def options(null: st.SearchStrategy[t.Any]) -> st.SearchStrategy[dict[str, t.Any]]:
    """Return options that dockerd accepts. `null` replaces some of them."""
    flags = st.booleans()
    label = st.sampled_from(["1", "2"])
    return some(
        {
            "debug": flags | null,
            "mtu": st.integers(1000, 1002) | null,
            "features": st.dictionaries(st.sampled_from(["cdi", "x"]), flags | null, max_size=2) | null,
            "log-opts": some({"max-size": st.sampled_from(["1m", "2m"]) | null, "a": label | null}) | null,
            "runtimes": st.dictionaries(
                st.sampled_from(["nvidia", "kata"]),
                st.sampled_from([{"path": "n"}, {"path": "n", "runtimeArgs": []}, {"runtimeType": "k"}]) | null,
                max_size=2,
            )
            | null,
            "dns": st.lists(st.sampled_from(["1.1.1.1", "9.9.9.9", "8.8.8.8"]), unique=True, max_size=2) | null,
            "labels": some({"gpu": label, "rack": label}).map(lambda found: [f"{k}={v}" for k, v in found.items()])
            | null,
            "x-site": JSON | null,
        }
    )


@st.composite
def formatted(draw: st.DrawFn, trees: st.SearchStrategy[dict[str, t.Any]]) -> str:
    """Return the text of a file as people and programs write it."""
    tree = draw(trees)
    indent = draw(st.sampled_from([None, 1, 4, "\t"]))
    separators = draw(st.sampled_from([None, (",", ":"), (" , ", " : ")]))
    text = json.dumps(tree, indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    text = draw(st.sampled_from(["", "\ufeff", "\n"])) + text + draw(st.sampled_from(["", "\n", "\n\n", "  "]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


NOTHING: st.SearchStrategy[t.Any] = st.nothing()
FILES = st.one_of(st.none(), st.sampled_from(["", "null", "\ufeff", "{ }"]), formatted(options(NOTHING)))


class Step(t.NamedTuple):
    """A task: an owner requests options, or removes them (`options` is None)."""

    owner: str
    options: dict[str, t.Any] | None
    purge: bool
    lists: str


def steps(requests: st.SearchStrategy[dict[str, t.Any]], lists: tuple[str, ...]) -> st.SearchStrategy[list[Step]]:
    step = st.builds(
        Step, st.sampled_from(OWNERS), st.none() | requests, purge=st.booleans(), lists=st.sampled_from(lists)
    )
    return st.lists(step, min_size=1, max_size=6)


def run(text: str | None, state: State, step: Step) -> daemon_plan.DaemonPlan:
    done = plan(
        text,
        step.options,
        state,
        manager=step.owner,
        present=step.options is not None,
        purge=step.purge,
        lists=step.lists,
    )
    stored = record.load_state(record.dump_state(done.state), "record")
    assert stored == done.state
    return done


def others_values(tree: dict[str, t.Any], state: State, owner: str) -> dict[t.Any, str | None]:
    return {
        leaf: managed_keys.canonical_or_absent(managed_keys.get(tree, leaf, merge_policy()))
        for leaf, entry in state.record.entries.items()
        if set(entry.managers) - {owner}
    }


def tree_of(text: str | None) -> dict[str, t.Any]:
    return {} if text is None else json_text.parse(text, FILE)


@PATIENT
@given(original=FILES, tasks=steps(options(st.none()), ("union", "replace")), last=st.permutations(OWNERS))
def test_absent_restores_the_file_to_the_byte(original: str | None, tasks: list[Step], last: list[str]) -> None:
    text, state = original, State(EMPTY_RECORD)
    for task in tasks:
        others = others_values(tree_of(text), state, task.owner)
        owned = {leaf for leaf, entry in state.record.entries.items() if task.owner in entry.managers}
        try:
            done = run(text, state, task)
        except DaemonConfigError:  # two owners want different values
            continue
        assert others_values(tree_of(done.text), state, task.owner) == others
        lost = owned - {leaf for leaf, entry in done.state.record.entries.items() if task.owner in entry.managers}
        requested = managed_keys.leaves(task.options or {}, merge_policy(task.lists))
        assert {leaf.name for leaf in lost if leaf not in requested} == set(done.revoked)
        again = run(done.text, done.state, task)
        assert (again.text, again.state, again.changed_keys) == (done.text, done.state, ())
        text, state = done.text, done.state
    for owner in last:
        done = run(text, state, Step(owner, None, purge=False, lists="union"))
        text, state = done.text, done.state
    assert text == original
    assert state == State(EMPTY_RECORD, made_directory=state.made_directory)


@pytest.mark.parametrize("original", [None, "{}", '{ "debug":true }'])
def test_option_that_gets_its_original_value_again_is_removed(original: str | None) -> None:
    """A task sets an option, and a later task of the same owner requests the value from before."""
    text, state = original, State(EMPTY_RECORD)
    for value in (False, tree_of(original).get("debug")):
        done = run(text, state, Step("user", {"debug": value}, purge=False, lists="union"))
        text, state = done.text, done.state
    assert (text, state) == (original, State(EMPTY_RECORD))


@st.composite
def edits(draw: st.DrawFn) -> t.Callable[[dict[str, t.Any]], dict[str, t.Any]]:
    """Return what somebody else does to the file meanwhile, with keys and items that no task requests."""
    key, value = draw(st.sampled_from(["data-root", "x-other"])), draw(JSON)
    is_removed, nested, item = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())

    def edit(tree: dict[str, t.Any]) -> dict[str, t.Any]:
        tree = copy.deepcopy(tree)
        if is_removed:
            tree.pop(key, None)
        else:
            tree[key] = str(value) if key == "data-root" else value
        if nested:
            tree.setdefault("features", {})["theirs"] = True
            tree.setdefault("runtimes", {})["theirs"] = {"path": "/t"}
        if item:
            tree["dns"] = ["10.0.0.1", *(one for one in tree.get("dns", []) if one != "10.0.0.1")]
        return tree

    return edit


PARTS = options(NOTHING)


@PATIENT
@given(
    original=formatted(PARTS),
    tasks=steps(PARTS, ("union",)),
    changed=st.lists(edits(), min_size=6, max_size=6),
    reformatted=st.booleans(),
)
def test_edits_of_others_stay(
    original: str,
    tasks: list[Step],
    changed: list[t.Callable[[dict[str, t.Any]], dict[str, t.Any]]],
    reformatted: bool,
) -> None:
    text, state, expected = original, State(EMPTY_RECORD), tree_of(original)
    for task, edit in zip(tasks, changed):
        try:
            done = run(text, state, task)
        except DaemonConfigError:
            continue
        assume(done.text is not None)
        expected = edit(expected)
        text, state = json.dumps(edit(tree_of(done.text)), indent=None if reformatted else 3), done.state
    for owner in OWNERS:
        done = run(text, state, Step(owner, None, purge=False, lists="union"))
        assert done.edited == ()
        text, state = t.cast("str", done.text), done.state
    assert managed_keys.canonical(tree_of(text)) == managed_keys.canonical(expected)
    assert state == State(EMPTY_RECORD)


@PATIENT
@given(original=formatted(PARTS), values=st.lists(st.integers(1000, 1009), min_size=2, max_size=2, unique=True))
def test_value_that_somebody_has_edited_stays(original: str, values: list[int]) -> None:
    theirs = {key: value for key, value in tree_of(original).items() if key != "mtu"}
    done = run(original, State(EMPTY_RECORD), Step("user", {"mtu": values[0]}, purge=False, lists="union"))
    assume(done.state.record.entries)
    edited = json.dumps({**theirs, "mtu": values[1]})
    after = run(edited, done.state, Step("user", None, purge=False, lists="union"))
    assert (after.text, after.edited) == (edited, ("mtu",))
