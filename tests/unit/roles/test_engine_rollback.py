# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What role container_engine does, and says, where Docker's daemon does not take its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

TASKS = Path(__file__).resolve().parents[3] / "roles/container_engine/tasks"
JINJA = NativeEnvironment()
JINJA.tests["changed"] = lambda result: result.get("changed", False)

BACK, AS_IT_IS, EDITED = {"changed": True}, {"changed": False}, {"failed": False, "msg": "somebody has changed it."}
WELL, BADLY = {"changed": True}, {"msg": "Unable to do so."}
UP, DOWN = {"rc": 0}, {"rc": 3}


def load(name: str) -> list[dict[str, Any]]:
    return yaml.safe_load((TASKS / name).read_text(encoding="utf-8"))


def short(task: dict[str, Any]) -> str:
    return task["name"].partition(" | ")[2]


def is_run(task: dict[str, Any], situation: dict[str, Any]) -> bool:
    conditions = task.get("when", [])
    conditions = conditions if isinstance(conditions, list) else [conditions]
    return all(JINJA.from_string(f"{{{{ {condition} }}}}").render(situation) for condition in conditions)


def situation(was_restarted: bool, undone: dict, told: dict, up: dict) -> dict[str, Any]:
    skipped = {"skipped": True}
    return {
        "__container_engine_was_restarted": was_restarted,
        "__container_engine_undone": undone,
        "__container_engine_reloaded": skipped if was_restarted else told,
        "__container_engine_rolled_back": told if was_restarted else skipped,
        "__container_engine_up": up,
        "__container_engine_is_up": up["rc"] == 0,
    }


@pytest.mark.parametrize(
    ("was_restarted", "undone", "told", "up", "words"),
    [
        (True, BACK, WELL, UP, "The former daemon.json is back, and the daemon runs with it."),
        (True, BACK, WELL, DOWN, "The former daemon.json is back, and the daemon does not start with it either."),
        (True, BACK, BADLY, DOWN, "The former daemon.json is back, and the daemon does not start with it either."),
        (True, AS_IT_IS, {}, UP, "The daemon is up, and daemon.json stays as it is."),
        (True, AS_IT_IS, {}, DOWN, "The daemon is down, and there is no former daemon.json to go back to."),
        (True, EDITED, {}, DOWN, "daemon.json stays as it is: somebody has changed it."),
        (False, BACK, WELL, UP, "is back, and the daemon has read it. It was not restarted."),
        (False, BACK, BADLY, UP, "is back. The daemon was not restarted, and did not read it: Unable to do so."),
        (False, AS_IT_IS, {}, UP, "The daemon is up, and daemon.json stays as it is."),
        (False, EDITED, {}, UP, "daemon.json stays as it is: somebody has changed it."),
    ],
)
def test_only_a_daemon_that_was_to_be_restarted_is_restarted(
    was_restarted: bool, undone: dict, told: dict, up: dict, words: str
) -> None:
    tasks = load("docker_rollback.yml")
    seen = situation(was_restarted, undone, told, up)
    run = {short(task) for task in tasks if is_run(task, seen)}
    goes_back = undone is BACK
    assert ("Let the daemon that runs read it" in run) is (goes_back and not was_restarted)
    assert ("Let systemd start it anew" in run) is (goes_back and was_restarted)
    assert ("Start the daemon with it" in run) is (goes_back and was_restarted)
    outcome = tasks[-1]["vars"]["__container_engine_outcome"]
    assert words in JINJA.from_string(outcome).render(seen)


@pytest.mark.parametrize(
    ("was_restarted", "action", "kept"),
    [
        (True, "reload_then_restart", {"live-restore": None}),
        (True, "restart", {}),
        (False, "reload_then_restart", {}),
        (False, "reload", {}),
    ],
)
def test_containers_that_live_restore_has_kept_are_kept_on_the_way_back(
    was_restarted: bool, action: str, kept: dict[str, Any]
) -> None:
    task = next(task for task in load("docker_rollback.yml") if short(task).startswith("Put back"))
    options = task["gpufleet.hosts.docker_daemon_config"]["options"]
    known = {"__container_engine_was_restarted": was_restarted, "__container_engine_apply": {"action": action}}
    assert JINJA.from_string(options).render(known) == kept


def test_nothing_on_the_way_back_stops_it_halfway() -> None:
    *tasks, last = load("docker_rollback.yml")
    for task in tasks:
        assert "ansible.builtin.set_fact" in task or task["failed_when"] is False, task["name"]
    assert "ansible.builtin.fail" in last


def test_a_restart_has_a_rescue_of_its_own() -> None:
    blocks = [task for task in load("docker_config.yml") if "block" in task]
    found = []
    for block in blocks:
        (rescue,) = block["rescue"]
        assert rescue["ansible.builtin.include_tasks"] == "docker_rollback.yml"
        states = {task["ansible.builtin.systemd_service"]["state"] for task in block["block"]
                  if "ansible.builtin.systemd_service" in task}  # fmt: skip
        found.append((states, rescue["vars"]["__container_engine_was_restarted"]))
    assert found == [({"reloaded"}, False), ({"restarted"}, True)]
