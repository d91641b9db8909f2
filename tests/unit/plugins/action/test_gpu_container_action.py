# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of one task: which modules run on the host, in which order, with what, and what comes of it."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.hosts.plugins.action import gpu_container
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import nvml_binding

PLANNER = "gpufleet.hosts.gpu_container"
DOCKER = "community.docker.docker_container"
PULL = "community.docker.docker_image_pull"
VOLUME = "gpufleet.hosts.nvidia_driver_volume"
PULLING = {"pull": {"module": PULL, "args": {"name": "i"}}, "image_id": None}
ASSIGNMENT = {"uuids": ["GPU-1"], "engine": "docker", "warnings": ["mind the gap"]}


def plan(**changes):
    """What the module's plan returns."""
    return {
        "engine": "docker",
        "module": DOCKER,
        "module_args": {"name": "c", "state": "started"},
        "needless": False,
        "predicted": False,
        "gpu_changed": False,
        "image_id": "sha256:1",
        "driver_volume": None,
        "token": None,
        "gpu_diff": {"before": {"gpus": []}, "after": {"gpus": ["GPU-1"]}},
        "gpu_assignment": ASSIGNMENT,
        **changes,
    }


class Host:
    """A host that answers modules from lists, and remembers what was asked."""

    def __init__(self, monkeypatch):
        self.answers = {}
        self.calls = []
        monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def answer(self, module, *results):
        self.answers.setdefault(module, []).extend(results)
        return self

    def execute(self, module_name, module_args, task_vars, **_options):
        phase = module_args.get("_phase")
        key = f"{module_name}:{phase}" if phase else module_name
        self.calls.append((key, module_args))
        if phase == "release" and key not in self.answers:
            return {"changed": False}
        return self.answers[key].pop(0)

    def run(self, **arguments):
        task = MagicMock(args={"name": "c", "image": "i", **arguments}, async_val=0, action=PLANNER)
        action = gpu_container.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
        action._execute_module = self.execute
        action._send = lambda binding: f"/tmp/sent{binding}"
        return action.run(task_vars={})

    @property
    def modules(self):
        return [key for key, _arguments in self.calls]


@pytest.fixture
def host(monkeypatch):
    return Host(monkeypatch)


def test_a_converged_container_costs_two_calls(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan()}).answer(DOCKER, {"changed": False, "container": {"Id": "1"}})
    result = host.run()
    assert host.modules == [f"{PLANNER}:plan", DOCKER]
    assert host.calls[1][1] == {"name": "c", "state": "started"}
    assert result == {
        "changed": False,
        "container": {"Id": "1"},
        "gpu_assignment": ASSIGNMENT,
        "diff": {"before": {"gpus": []}, "after": {"gpus": ["GPU-1"]}},
        "warnings": ["mind the gap"],
    }


def test_the_reservation_is_given_up_at_the_end(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(token="t")}).answer(DOCKER, {"changed": True, "container": {}})
    assert host.run()["changed"]
    assert host.modules == [f"{PLANNER}:plan", DOCKER, f"{PLANNER}:release"]
    assert host.calls[2][1] == {"name": "c", "_phase": "release", "_token": "t"}


def test_it_is_given_up_also_when_the_engine_fails(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(token="t")})
    host.answer(DOCKER, {"failed": True, "msg": "no space left", "changed": False})
    result = host.run()
    assert host.modules[-1] == f"{PLANNER}:release"
    assert (result["failed"], result["msg"], result["gpu_assignment"]) == (True, "no space left", ASSIGNMENT)


def test_a_reservation_that_cannot_be_given_up_is_a_warning(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(token="t")}).answer(DOCKER, {"changed": True})
    host.answer(f"{PLANNER}:release", {"failed": True, "msg": "disk full"})
    result = host.run()
    assert not result.get("failed")
    assert "The reservation of the GPUs could not be given up: disk full" in result["warnings"]


def test_an_image_is_pulled_and_then_looked_into(host):
    host.answer(f"{PLANNER}:plan", {"plan": PULLING}, {"plan": plan()})
    host.answer(PULL, {"changed": True}).answer(DOCKER, {"changed": False})
    result = host.run()
    assert host.modules == [f"{PLANNER}:plan", PULL, f"{PLANNER}:plan", DOCKER]
    assert (host.calls[0][1].get("_pulled"), host.calls[2][1]["_pulled"]) == (None, True)
    assert result["changed"]


@pytest.mark.parametrize(("had", "changed"), [("sha256:1", False), ("sha256:0", True), (None, True)])
def test_a_pull_is_a_change_where_it_brought_another_image(host, had, changed):
    """Podman's module says of every pull that it changed something."""
    host.answer(f"{PLANNER}:plan", {"plan": {**PULLING, "image_id": had}}, {"plan": plan()})
    host.answer(PULL, {"changed": True}).answer(DOCKER, {"changed": False})
    assert host.run()["changed"] is changed


def test_a_failed_pull_ends_it(host):
    host.answer(f"{PLANNER}:plan", {"plan": PULLING})
    host.answer(PULL, {"failed": True, "msg": "manifest unknown"})
    result = host.run()
    assert (result["failed"], result["msg"], result["changed"]) == (True, "manifest unknown", False)


def test_a_failed_check_after_the_pull_says_that_something_changed(host):
    host.answer(f"{PLANNER}:plan", {"plan": PULLING}, {"failed": True, "msg": "too new"})
    host.answer(PULL, {"changed": True})
    result = host.run()
    assert (result["failed"], result["msg"], result["changed"]) == (True, "too new", True)


def test_a_missing_driver_volume_is_made_first_and_said(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(driver_volume={"engine": ["docker"]}, token="t")})
    host.answer(VOLUME, {"changed": True, "volume": {"name": "nvidia_driver_1"}}).answer(DOCKER, {"changed": False})
    result = host.run()
    assert host.modules == [f"{PLANNER}:plan", VOLUME, DOCKER, f"{PLANNER}:release"]
    assert (result["changed"], result["driver_volume"]) == (True, {"name": "nvidia_driver_1"})
    assert (result["diff"]["before"]["driver_volume"], result["diff"]["after"]["driver_volume"]) == (
        None,
        "nvidia_driver_1",
    )


def test_a_driver_volume_that_fails_gives_the_reservation_up(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(driver_volume={"engine": ["docker"]}, token="t")})
    host.answer(VOLUME, {"failed": True, "msg": "no space"})
    result = host.run()
    assert host.modules == [f"{PLANNER}:plan", VOLUME, f"{PLANNER}:release"]
    assert result["msg"] == "no space"


def test_a_failed_plan_is_the_tasks_failure(host):
    host.answer(f"{PLANNER}:plan", {"failed": True, "msg": "There is no GPU 9."})
    result = host.run()
    assert (result["failed"], result["changed"], result["msg"]) == (True, False, "There is no GPU 9.")
    assert host.modules == [f"{PLANNER}:plan"]


def test_nothing_to_remove_is_no_call_of_the_engine(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(needless=True)})
    result = host.run()
    assert (host.modules, result["changed"], result["container"]) == ([f"{PLANNER}:plan"], False, {})


def test_a_prediction_without_the_image_is_made_without_the_engine(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(predicted=True)})
    result = host.run()
    assert (host.modules, result["changed"]) == ([f"{PLANNER}:plan"], True)


@pytest.mark.parametrize(
    ("details", "before"),
    [
        ({"before": {"env": ["A=1"]}, "after": {"env": ["A=2"]}}, {"env": ["A=1"], "gpus": []}),
        ({"before": "user - a\n", "after": "user - b\n"}, {"options": "user - a\n", "gpus": []}),
        ({"before": {}, "after": {}, "differences": []}, {"gpus": []}),
    ],
)
def test_the_diff_joins_gpus_and_all_else(host, details, before):
    host.answer(f"{PLANNER}:plan", {"plan": plan()}).answer(DOCKER, {"changed": True, "diff": details})
    assert host.run()["diff"]["before"] == before


def test_the_engines_words_come_along_but_not_its_call(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan()})
    host.answer(
        DOCKER,
        {
            "changed": True,
            "container": {"Id": "1"},
            "status": 0,
            "podman_actions": ["podman run"],
            "warnings": ["old", "mind the gap"],
            "invocation": {"module_args": {}},
        },
    )
    result = host.run()
    assert (result["status"], result["podman_actions"]) == (0, ["podman run"])
    assert "invocation" not in result
    assert result["warnings"] == ["mind the gap", "old"]


def test_where_the_host_has_no_pynvml_the_controllers_goes_along_once(host, monkeypatch):
    monkeypatch.setattr(gpu_container, "controller_binding", lambda: "/site/pynvml.py")
    missing = {"failed": True, "msg": "no pynvml", "nvml_binding_missing": True}
    host.answer(f"{PLANNER}:plan", missing, {"plan": PULLING}, {"plan": plan()})
    host.answer(PULL, {"changed": False}).answer(DOCKER, {"changed": False})
    assert not host.run().get("failed")
    sent = [arguments.get("_nvml_binding_path") for key, arguments in host.calls if key == f"{PLANNER}:plan"]
    assert sent == [None, "/tmp/sent/site/pynvml.py", "/tmp/sent/site/pynvml.py"]


def test_where_nobody_has_one_it_says_how_to_get_it(host, monkeypatch):
    monkeypatch.setattr(gpu_container, "controller_binding", lambda: None)
    host.answer(f"{PLANNER}:plan", {"failed": True, "msg": "no pynvml", "nvml_binding_missing": True})
    result = host.run()
    assert result["failed"]
    assert "neither there nor on the controller" in result["msg"]
    assert "-m pip install nvidia-ml-py" in result["msg"]


def test_what_is_between_plugin_and_module_cannot_be_set_by_a_task(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan()}).answer(DOCKER, {"changed": False})
    host.run(_phase="release", _token="x", _pulled=True)
    assert host.calls[0][1] == {"name": "c", "image": "i", "_phase": "plan"}


def test_it_is_built_on_what_sends_the_binding():
    assert issubclass(gpu_container.ActionModule, nvml_binding.NvmlAction)
