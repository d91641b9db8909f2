# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollback of role container_engine if Docker's daemon does not apply its options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

TASKS = Path(__file__).resolve().parents[3] / "roles/container_engine/tasks"
JINJA = NativeEnvironment()
JINJA.tests["changed"] = lambda result: result.get("changed", False)

JINJA.filters["regex_search"] = lambda text, pattern: (re.search(pattern, text) or [None])[0]


def load(name: str) -> list[dict[str, Any]]:
    return yaml.safe_load((TASKS / name).read_text(encoding="utf-8"))


def short(task: dict[str, Any]) -> str:
    return task["name"].partition(" | ")[2]


def is_run(task: dict[str, Any], situation: dict[str, Any]) -> bool:
    conditions = task.get("when", [])
    conditions = conditions if isinstance(conditions, list) else [conditions]
    return all(JINJA.from_string(f"{{{{ {condition} }}}}").render(situation) for condition in conditions)


@pytest.mark.parametrize("is_undone", [True, False])
@pytest.mark.parametrize("was_restarted", [True, False])
def test_only_a_restarted_daemon_is_restarted_again(was_restarted: bool, is_undone: bool) -> None:
    tasks = load("docker_rollback.yml")
    known = {"__container_engine_was_restarted": was_restarted, "__container_engine_undone": {"changed": is_undone}}
    run = {short(task) for task in tasks if is_run(task, known)}
    assert ("Reload the daemon" in run) is (is_undone and not was_restarted)
    assert ("Reset the failed state of the unit" in run) is (is_undone and was_restarted)
    assert ("Restart the daemon" in run) is (is_undone and was_restarted)


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        (
            {"stdout": "Nov 21 a message\n-- cursor: s=44;i=144;b=01;m=5d;t=66;x=aa"},
            "--after-cursor=s=44;i=144;b=01;m=5d;t=66;x=aa",
        ),
        ({"stdout": ""}, "--lines=100"),
        ({"msg": "no such program"}, "--lines=100"),
    ],
)
def test_journal_is_read_from_the_change(noted: dict[str, Any], expected: str) -> None:
    task = next(task for task in load("docker_rollback.yml") if short(task).startswith("Read the journal"))
    known: dict[str, Any] = {"__container_engine_journal_end": noted}
    for name, text in task["vars"].items():
        known[name] = JINJA.from_string(text.strip()).render(known)
    assert JINJA.from_string(task["ansible.builtin.command"]["argv"]).render(known)[-1] == expected


@pytest.mark.parametrize(
    ("was_restarted", "action", "kept"),
    [
        (True, "reload_then_restart", {"live-restore": None}),
        (True, "restart", {}),
        (False, "reload_then_restart", {}),
        (False, "reload", {}),
    ],
)
def test_live_restore_is_kept_for_running_containers(was_restarted: bool, action: str, kept: dict[str, Any]) -> None:
    task = next(task for task in load("docker_rollback.yml") if short(task).startswith("Restore the former"))
    options = task["gpufleet.hosts.docker_daemon_config"]["options"]
    known = {"__container_engine_was_restarted": was_restarted, "__container_engine_apply": {"action": action}}
    assert JINJA.from_string(options).render(known) == kept
