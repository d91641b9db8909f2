# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts that playbooks site and plan select by tags, and what a part does on a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from ansible_collections.gpufleet.hosts.plugins.filter import site_internal
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry, turns_of_parts
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.registry import PARTS
from ansible_collections.gpufleet.hosts.tests.unit.plugins import site_samples

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
ALL = list(PARTS)
NVIDIA_ROLES = ["nvidia_driver", "nvidia_persistenced", "container_engine", "nvidia_container_toolkit"]
DRIVER, DAEMON, ENGINE, TOOLKIT = NVIDIA_ROLES
MODULE = "gpufleet.hosts.gpu_host_plan"


def selected(playbook: str, **variables: Any) -> list[str]:
    play, *_more = yaml.safe_load((PLAYBOOKS / playbook).read_text(encoding="utf-8"))
    tasks = [step for task in play["tasks"] for step in task.get("block", [task])]
    (task,) = [task for task in tasks if MODULE in task]
    known = {"ansible_run_tags": ["all"], "ansible_skip_tags": [], **variables}
    jinja = NativeEnvironment()
    jinja.filters["site_parts"] = site_internal.site_parts
    expression = task[MODULE]["parts"].replace("gpufleet.hosts._site_parts", "site_parts")
    return jinja.from_string(expression).render(known)


@pytest.mark.parametrize("playbook", ["site.yml", "plan.yml"])
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ALL),
        ({"ansible_run_tags": ["tagged"]}, ALL),
        ({"ansible_run_tags": ["container_engine", "nvidia_driver"]}, ["nvidia_driver", "container_engine"]),
        ({"ansible_run_tags": ["verify"]}, ["verify"]),
        ({"ansible_run_tags": ["always"]}, []),
        ({"ansible_run_tags": ["of_another_play"]}, []),
        ({"ansible_run_tags": ["of_another_play", "verify"]}, ["verify"]),
        ({"ansible_skip_tags": ["nvidia_persistenced"]}, [part for part in ALL if part != "nvidia_persistenced"]),
        ({"ansible_run_tags": ["verify", "driver_volume"], "ansible_skip_tags": ["verify"]}, ["driver_volume"]),
    ],
)
def test_tags_select_parts(playbook: str, variables: dict[str, Any], expected: list[str]) -> None:
    assert selected(playbook, **variables) == expected


def test_the_playbooks_know_all_parts_in_the_order_in_which_they_act() -> None:
    assert [selected(playbook) for playbook in ("site.yml", "plan.yml")] == [list(PARTS)] * 2


@pytest.mark.parametrize(
    ("gpus", "state", "expected"),
    [
        (
            (site_samples.A100,),
            "present",
            ["nvidia_driver", "nvidia_persistenced", "container_engine", "driver_volume"],
        ),
        # A host without a GPU gets only the engine.
        ((), "present", ["container_engine"]),
        # While the driver is being removed, nothing that needs the driver is installed.
        ((site_samples.A100,), "absent", ["container_engine"]),
    ],
)
def test_only_hosts_that_need_a_part_get_it(gpus: tuple[str, ...], state: str, expected: list[str]) -> None:
    parts = site_samples.planned(site_samples.bare(gpus), {"nvidia_driver": {"state": state}})
    assert [name for name, part in parts.items() if part.acts] == expected
    assert parts["verify"].plan["applies"] is ("nvidia_driver" in expected)


REPORT, ROLE = "turn_only_reports.yml", "turn_runs_role.yml"
STEP_FILES = {name: f"parts/{name}.yml" for name in ("driver_volume", "container_proof")}


def applied(how: dict[str, str], removed_first: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Return the parts of a host and the files with their tasks, in the order of playbook site."""
    plan = {"apply": how, "removed_first": removed_first, "plan": {name: {"changes": ["x"]} for name in how}}
    turns = turns_of_parts.turns(registry.order(), [plan])
    # A host of its own has no turn in which it does nothing.
    return [(turn["part"], turns_of_parts.task_file(turn, plan)) for turn in turns]


ROLES = [(name, ROLE) for name in NVIDIA_ROLES]


@pytest.mark.parametrize(
    ("how", "removed_first", "expected"),
    [
        (dict.fromkeys([*NVIDIA_ROLES, *STEP_FILES], "planned"), (), [*ROLES, *STEP_FILES.items()]),
        # The engine must still be installed to apply the removal of its runtime.
        (dict.fromkeys(NVIDIA_ROLES, "planned"), (TOOLKIT,), [ROLES[3], *ROLES[:3]]),
        ({DRIVER: "planned", DAEMON: "again"}, (), ROLES[:2]),
        ({DRIVER: "planned", DAEMON: "reported"}, (), [ROLES[0], (DAEMON, REPORT)]),
        ({"container_proof": "reported"}, (), [("container_proof", REPORT)]),
        ({}, (), []),
    ],
)
def test_the_parts_act_in_the_order_of_the_registry(
    how: dict[str, str], removed_first: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    assert applied(how, removed_first) == expected


def test_hosts_that_act_on_different_parts_have_the_same_turns() -> None:
    plans = [{"apply": {name: "planned"}, "removed_first": (), "plan": {name: {}}} for name in (ENGINE, DRIVER)]
    turns = turns_of_parts.turns(registry.order(), plans)
    assert [turn["part"] for turn in turns] == [DRIVER, ENGINE]
    assert [[turns_of_parts.task_file(turn, plan) for turn in turns] for plan in plans] == [["", ROLE], [ROLE, ""]]


def test_a_part_without_changes_is_not_reported() -> None:
    plan = {"apply": {DAEMON: "reported"}, "removed_first": (), "plan": {DAEMON: {"changes": []}}}
    assert turns_of_parts.turns(registry.order(), [plan]) == []


def test_every_file_of_a_part_exists() -> None:
    files = [REPORT, ROLE, *STEP_FILES.values()]
    assert [name for name in files if not (PLAYBOOKS / "tasks" / name).is_file()] == []


def test_every_step_has_its_tasks() -> None:
    steps = {turn["part"] for turn in registry.order() if not turn["role"]}
    assert {path.stem for path in (PLAYBOOKS / "tasks/parts").glob("*.yml")} == steps


@pytest.mark.parametrize(
    ("check_mode", "expected"),
    [
        (
            False,
            {
                "nvidia_driver": "planned",
                "nvidia_persistenced": "again",
                "container_engine": "planned",
                "nvidia_container_toolkit": "planned",
                "driver_volume": "planned",
                "container_proof": "planned",
            },
        ),
        (
            True,
            {
                "nvidia_driver": "planned",
                "nvidia_persistenced": "reported",
                "container_engine": "planned",
                "nvidia_container_toolkit": "planned",
                "driver_volume": "reported",
                "container_proof": "reported",
            },
        ),
    ],
)
def test_parts_plan_again_after_the_driver_and_are_only_reported_in_check_mode(
    check_mode: bool, expected: dict[str, str]
) -> None:
    parts = site_samples.planned(site_samples.bare(), {"nvidia_container_toolkit": {"source": "auto"}})
    assert turns_of_parts.apply(parts, check_mode=check_mode) == expected
