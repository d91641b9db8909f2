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
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.plan import PARTS
from ansible_collections.gpufleet.hosts.tests.unit.plugins import site_samples

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
ALL = [
    *("nvidia_driver", "nvidia_persistenced", "container_engine", "nvidia_container_toolkit"),
    *("driver_volume", "container_proof", "verify"),
]
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


def roles_in_order(**variables: Any) -> list[str]:
    """Return the roles that a host runs on which all parts act."""
    tasks = yaml.safe_load((PLAYBOOKS / "tasks/change.yml").read_text(encoding="utf-8"))
    jinja = NativeEnvironment()
    known = {"site_plan": {"acting": ALL, "plan": {}}, "ansible_check_mode": False, **variables}
    found = []
    for task in tasks:
        conditions = task.get("when", [])
        conditions = conditions if isinstance(conditions, list) else [conditions]
        if "ansible.builtin.include_role" in task and all(jinja.compile_expression(text)(known) for text in conditions):
            found.append(task["ansible.builtin.include_role"]["name"].rpartition(".")[2])
    return found


def test_toolkit_is_installed_after_the_engine_and_removed_before_it() -> None:
    assert roles_in_order() == ALL[:4]
    toolkit = ALL[3]
    assert roles_in_order(nvidia_container_toolkit_state="absent") == [toolkit, *ALL[:3]]
