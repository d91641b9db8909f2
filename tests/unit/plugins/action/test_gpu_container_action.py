# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module calls of one task, their order and arguments, and the result of the task."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.hosts.plugins.action import gpu_container
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import engine_module_options
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import module_options, nvml_binding

PLANNER = "gpufleet.hosts.gpu_container"
DOCKER = "community.docker.docker_container"
PULL = "community.docker.docker_image_pull"
PODMAN = "containers.podman.podman_container"
VOLUME = "gpufleet.hosts.nvidia_driver_volume"
PULLING = {"engine": "docker", "pull": {"module": PULL, "args": {"name": "i"}}, "image_id": None}
ASSIGNMENT = {"uuids": ["GPU-1"], "engine": "docker", "warnings": ["mind the gap"]}


def plan(**changes):
    """The result of the phase "plan"."""
    return {
        "engine": "docker",
        "module": DOCKER,
        "module_args": {"name": "c", "state": "started"},
        "nothing_to_do": False,
        "predicted": False,
        "gpu_changed": False,
        "image_id": "sha256:1",
        "container_id": None,
        "driver_volume": None,
        "token": None,
        "gpu_diff": {"before": {"gpus": []}, "after": {"gpus": ["GPU-1"]}},
        "gpu_assignment": ASSIGNMENT,
        **changes,
    }


def cleared(**changes):
    """The result of the phase "clear" if there is no container before and after."""
    return {"before": None, "after": None, "status": "", "removed": False, "error": None, **changes}


class Host:
    """A host that returns prepared results and records the module calls."""

    def __init__(self, monkeypatch):
        self.answers = {}
        self.calls = []
        self.is_logged = {}
        monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def answer(self, module, *results):
        self.answers.setdefault(module, []).extend(results)
        return self

    def execute(self, module_name, module_args, task_vars, **_options):
        # The tests see the private arguments beside those of the task.
        module_args = {**module_args, **module_args.get("x_private", {})}
        module_args.pop("x_private", None)
        phase = module_args.get("_phase")
        key = f"{module_name}:{phase}" if phase else module_name
        self.calls.append((key, module_args))
        self.is_logged[key] = not (task_vars or {}).get("ansible_no_target_syslog")
        if phase == "release" and key not in self.answers:
            return {"changed": False}
        if phase == "clear" and key not in self.answers:
            return {"cleared": cleared()}
        return self.answers[key].pop(0)

    def run(self, check_mode=False, **arguments):
        given = {"name": "c", "image": "i", **arguments}
        task = MagicMock(args=given, async_val=0, action=PLANNER, check_mode=check_mode)
        action = gpu_container.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
        action._execute_module = self.execute
        action._send = lambda binding: f"/tmp/sent{binding}"
        return action.run(task_vars={})

    @property
    def modules(self):
        return [key for key, _arguments in self.calls]


OPTIONS = {
    DOCKER: ("log_driver", "log_options", "restart_retries"),
    PODMAN: ("executable", "log_driver", "log_opt"),
    PLANNER: ("conditions", "engine_options", "gpus", "image", "name"),
}


@pytest.fixture
def host(monkeypatch):
    # The documentation of other collections is only available in a running Ansible. test_module_options.py reads it.
    monkeypatch.setattr(module_options, "options", OPTIONS.__getitem__)
    monkeypatch.setattr(module_options, "_written", lambda module: "")
    return Host(monkeypatch)


def test_converged_container_requires_two_module_calls(host):
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


@pytest.mark.parametrize(
    ("differs", "check_mode", "given"),
    [
        (False, False, ["kept"]),
        # Only a recreation for another reason gives the container the labels of this version.
        (True, False, ["kept", "complete"]),
        (True, True, ["kept"]),
    ],
)
def test_container_of_an_earlier_version_gets_all_labels_with_its_next_recreation(host, differs, check_mode, given):
    arguments = {"kept": {"labels": {}}, "complete": {"labels": {"gpufleet.exclusive": "false"}}}
    host.answer(f"{PLANNER}:plan", {"plan": plan(module_args=arguments["kept"], complete_args=arguments["complete"])})
    host.answer(DOCKER, {"changed": differs, "container": {}}, {"changed": True, "container": {}})
    assert host.run(check_mode=check_mode)["changed"] is differs
    assert [sent for key, sent in host.calls if key == DOCKER] == [arguments[name] for name in given]


def test_reservation_is_released_at_the_end(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(token="t")}).answer(DOCKER, {"changed": True, "container": {}})
    assert host.run()["changed"]
    assert host.modules == [f"{PLANNER}:plan", DOCKER, f"{PLANNER}:release"]
    assert host.calls[2][1] == {"name": "c", "_phase": "release", "_token": "t"}


def test_reservation_is_released_after_a_failure(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(token="t")})
    host.answer(DOCKER, {"failed": True, "msg": "no space left", "changed": False})
    result = host.run()
    assert host.modules == [f"{PLANNER}:plan", DOCKER, f"{PLANNER}:clear", f"{PLANNER}:release"]
    assert (result["failed"], result["gpu_assignment"]) == (True, ASSIGNMENT)
    assert result["msg"] == "docker container c: no space left."


PORT = "cannot listen on the TCP port: listen tcp4 :8080: bind: address already in use"


def test_message_contains_podmans_reason(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(engine="podman", module=PODMAN)})
    host.answer(
        PODMAN,
        {
            "failed": True,
            "msg": "Container c exited with code 126 when runed",
            "stderr": f'time="2026-11-21T20:00:00Z" level=warning msg="no systemd"\nError: {PORT}\n',
        },
    )
    host.answer(f"{PLANNER}:clear", {"cleared": cleared(removed=True, status="created")})
    result = host.run(engine_options={"executable": "/opt/podman"})
    assert result["msg"] == (
        f"podman container c: podman run exited with status 126: {PORT}. The new container was removed."
    )
    assert result["changed"] is False
    assert f"Error: {PORT}" in result["stderr"]
    _key, asked = host.calls[2]
    assert asked == {
        "name": "c",
        "image": "i",
        "engine": "podman",
        "engine_options": {"executable": "/opt/podman"},
        "_phase": "clear",
        "_before": None,
        "_keep": False,
    }


@pytest.mark.parametrize(
    ("before", "outcome", "changed", "words"),
    [
        (None, cleared(), False, "refused."),
        ("1", cleared(before="1", removed=True), True, "The former container had already been removed."),
        ("1", cleared(before="1"), True, "The former container had already been removed."),
        (
            "1",
            cleared(before="1", after="1", status="exited"),
            False,
            "The container was not changed. Its state is exited.",
        ),
        (None, cleared(after="2", status="running"), True, "A container with this name exists. Its state is running."),
        (
            None,
            cleared(after="2", status="created", error="it is being removed"),
            True,
            "The new container could not be removed: it is being removed. Its state is created.",
        ),
    ],
)
def test_message_describes_the_state_of_the_container(host, before, outcome, changed, words):
    host.answer(f"{PLANNER}:plan", {"plan": plan(container_id=before)})
    host.answer(DOCKER, {"failed": True, "msg": "refused"}).answer(f"{PLANNER}:clear", {"cleared": outcome})
    result = host.run()
    assert host.calls[2][1]["_before"] == before
    assert (result["failed"], result["changed"]) == (True, changed)
    assert result["msg"].endswith(words)


def test_message_for_an_unknown_state_of_the_container(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(token="t")}).answer(DOCKER, {"failed": True, "msg": "refused"})
    host.answer(f"{PLANNER}:clear", {"failed": True, "msg": "Docker does not answer"})
    result = host.run()
    assert result["msg"] == (
        "docker container c: refused. The state of the container could not be determined: Docker does not answer."
    )
    assert host.modules[-1] == f"{PLANNER}:release"


@pytest.mark.parametrize(
    "failure",
    [
        {"msg": 'Error creating container: 409 (Conflict. The container name "/c" is already in use by container "1")'},
        {
            "msg": "Container c exited with code 125 when runed",
            "stderr": 'Error: creating container storage: the container name "c" is already in use by 1. You have to',
        },
    ],
)
def test_container_of_the_same_name_that_another_run_created_is_kept(host, failure):
    host.answer(f"{PLANNER}:plan", {"plan": plan()}).answer(DOCKER, {"failed": True, **failure})
    host.run()
    assert host.calls[2][1]["_keep"] is True


def test_failure_in_check_mode_removes_nothing(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan()}).answer(DOCKER, {"failed": True, "msg": "refused"})
    assert host.run(check_mode=True)["msg"] == "docker container c: refused."
    assert host.modules == [f"{PLANNER}:plan", DOCKER]


def test_message_contains_podmans_reason_for_a_failed_pull(host):
    host.answer(f"{PLANNER}:plan", {"plan": {**PULLING, "engine": "podman"}})
    host.answer(PULL, {"failed": True, "msg": "Failed to pull image i", "stderr": "Trying\nError: manifest unknown\n"})
    assert host.run()["msg"] == "Failed to pull image i: manifest unknown"


@pytest.mark.parametrize(
    ("engine", "given", "says"),
    [
        ("docker", "log_drivr", "is not an option of community.docker.docker_container. Did you mean log_driver?"),
        ("podman", "log_options", "It is an option of community.docker.docker_container. Did you mean log_opt"),
        ("docker", "zzzz", "is not an option of community.docker.docker_container. All of its options: ansible-doc"),
    ],
)
def test_unknown_engine_option_is_refused_before_the_pull(host, engine, given, says):
    host.answer(f"{PLANNER}:plan", {"plan": plan(token="t", **{**PULLING, "engine": engine})})
    result = host.run(engine_options={given: "x", "restart_retries" if engine == "docker" else "log_driver": "y"})
    assert result["failed"]
    assert result["msg"].startswith(f"engine_options.{given} is not an option of ")
    assert says in result["msg"]
    assert f"ansible-doc {engine_module_options.MODULES[engine]}" in result["msg"]
    assert len(result["msg"]) < 250
    assert host.modules == [f"{PLANNER}:plan", f"{PLANNER}:release"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("gpu", "gpu_container has no option gpu. Did you mean gpus? All of its options: ansible-doc gpufleet.hosts."),
        (
            "log_driver",
            "gpu_container has no option log_driver. It is an option of community.docker.docker_container and "
            "containers.podman.podman_container. Set it in engine_options.",
        ),
    ],
)
def test_unknown_option_is_refused_with_a_suggestion(host, given, says):
    unsupported = (
        "Unsupported parameters for (gpufleet.hosts.gpu_container) module: x. Supported parameters include: _a"
    )
    host.answer(f"{PLANNER}:plan", {"failed": True, "msg": unsupported})
    result = host.run(**{given: 1})
    assert result["failed"]
    assert result["msg"].startswith(says)
    assert " _" not in result["msg"]


def test_message_for_an_unknown_condition_comes_from_the_module(host):
    said = "Unsupported parameters for (x) module: conditions.memory. Supported parameters include: memory_min_mib"
    host.answer(f"{PLANNER}:plan", {"failed": True, "msg": said})
    assert host.run(conditions={"memory": 1})["msg"] == said


def test_failed_release_is_a_warning(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(token="t")}).answer(DOCKER, {"changed": True})
    host.answer(f"{PLANNER}:release", {"failed": True, "msg": "disk full"})
    result = host.run()
    assert not result.get("failed")
    assert "The reservation of the GPUs could not be released: disk full" in result["warnings"]


def test_plan_is_repeated_after_the_pull(host):
    host.answer(f"{PLANNER}:plan", {"plan": PULLING}, {"plan": plan()})
    host.answer(PULL, {"changed": True}).answer(DOCKER, {"changed": False})
    result = host.run()
    assert host.modules == [f"{PLANNER}:plan", PULL, f"{PLANNER}:plan", DOCKER]
    assert (host.calls[0][1].get("_pulled"), host.calls[2][1]["_pulled"]) == (None, True)
    assert result["changed"]


@pytest.mark.parametrize(("had", "changed"), [("sha256:1", False), ("sha256:0", True), (None, True)])
def test_pull_is_a_change_if_the_image_changes(host, had, changed):
    """Podman's module reports a change for every pull."""
    host.answer(f"{PLANNER}:plan", {"plan": {**PULLING, "image_id": had}}, {"plan": plan()})
    host.answer(PULL, {"changed": True}).answer(DOCKER, {"changed": False})
    assert host.run()["changed"] is changed


def test_failed_pull_fails_the_task(host):
    host.answer(f"{PLANNER}:plan", {"plan": PULLING})
    host.answer(PULL, {"failed": True, "msg": "manifest unknown"})
    result = host.run()
    assert (result["failed"], result["msg"], result["changed"]) == (True, "manifest unknown", False)


def test_failed_plan_after_the_pull_reports_a_change(host):
    host.answer(f"{PLANNER}:plan", {"plan": PULLING}, {"failed": True, "msg": "too new"})
    host.answer(PULL, {"changed": True})
    result = host.run()
    assert (result["failed"], result["msg"], result["changed"]) == (True, "too new", True)


def test_missing_driver_volume_is_created_first_and_returned(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(driver_volume={"engine": ["docker"]}, token="t")})
    host.answer(VOLUME, {"changed": True, "volume": {"name": "nvidia_driver_1"}}).answer(DOCKER, {"changed": False})
    result = host.run()
    assert host.modules == [f"{PLANNER}:plan", VOLUME, DOCKER, f"{PLANNER}:release"]
    assert (result["changed"], result["driver_volume"]) == (True, {"name": "nvidia_driver_1"})
    assert (result["diff"]["before"]["driver_volume"], result["diff"]["after"]["driver_volume"]) == (
        None,
        "nvidia_driver_1",
    )


def test_reservation_is_released_if_the_driver_volume_fails(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(driver_volume={"engine": ["docker"]}, token="t")})
    host.answer(VOLUME, {"failed": True, "msg": "no space"})
    result = host.run()
    assert host.modules == [f"{PLANNER}:plan", VOLUME, f"{PLANNER}:release"]
    assert result["msg"] == "no space"


def test_failed_plan_fails_the_task(host):
    host.answer(f"{PLANNER}:plan", {"failed": True, "msg": "There is no GPU 9."})
    result = host.run()
    assert (result["failed"], result["changed"], result["msg"]) == (True, False, "There is no GPU 9.")
    assert host.modules == [f"{PLANNER}:plan"]


def test_engine_is_not_called_without_a_container_to_remove(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan(nothing_to_do=True)})
    result = host.run()
    assert (host.modules, result["changed"], result["container"]) == ([f"{PLANNER}:plan"], False, {})


def test_engine_is_not_called_to_predict_without_the_image(host):
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
def test_diff_combines_gpus_and_options(host, details, before):
    host.answer(f"{PLANNER}:plan", {"plan": plan()}).answer(DOCKER, {"changed": True, "diff": details})
    assert host.run()["diff"]["before"] == before


def test_result_contains_the_engine_result_without_its_invocation(host):
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


def test_pynvml_of_the_controller_is_sent_once_if_the_host_has_none(host, monkeypatch):
    monkeypatch.setattr(gpu_container, "controller_binding", lambda: "/site/pynvml.py")
    missing = {"failed": True, "msg": "no pynvml", "nvml_binding_missing": True}
    host.answer(f"{PLANNER}:plan", missing, {"plan": PULLING}, {"plan": plan()})
    host.answer(PULL, {"changed": False}).answer(DOCKER, {"changed": False})
    assert not host.run().get("failed")
    sent = [arguments.get("_nvml_binding_path") for key, arguments in host.calls if key == f"{PLANNER}:plan"]
    assert sent == [None, "/tmp/sent/site/pynvml.py", "/tmp/sent/site/pynvml.py"]


def test_missing_pynvml_on_host_and_controller_fails_with_instructions(host, monkeypatch):
    monkeypatch.setattr(gpu_container, "controller_binding", lambda: None)
    host.answer(f"{PLANNER}:plan", {"failed": True, "msg": "no pynvml", "nvml_binding_missing": True})
    result = host.run()
    assert result["failed"]
    assert "neither the host nor the controller has" in result["msg"]
    assert "-m pip install nvidia-ml-py" in result["msg"]


def test_task_cannot_set_private_options(host):
    host.answer(f"{PLANNER}:plan", {"plan": plan()}).answer(DOCKER, {"changed": False})
    host.run(_phase="release", _token="x", _pulled=True, x_private={"_phase": "release", "_token": "x"})
    assert host.calls[0][1] == {"name": "c", "image": "i", "_phase": "plan"}


def test_plugin_extends_the_action_that_sends_the_binding():
    assert issubclass(gpu_container.ActionModule, nvml_binding.NvmlAction)


def test_rendered_arguments_are_returned_without_a_call_of_the_engines_module(host):
    rendered = {"docker_args": ["--device=/dev/nvidia0"], "podman_args": None, "compose": {"services": {}}}
    volume = {"engine": ["docker"], "path": "/v"}
    host.answer(
        f"{PLANNER}:plan", {"plan": plan(nothing_to_do=True, module_args={}, rendered=rendered, driver_volume=volume)}
    )
    host.answer(VOLUME, {"changed": True, "volume": {"name": "nvidia_driver_1"}})
    result = host.run(state="rendered")
    assert host.modules == [f"{PLANNER}:plan", VOLUME]
    assert {key: result[key] for key in rendered} == rendered
    assert (result["changed"], result["container"]) == (True, {})


def test_the_secrets_of_a_container_are_neither_logged_nor_shown(monkeypatch):
    # Modules of other collections log their arguments, and compare them in the diff.
    env = {"env": ["HF_TOKEN=s3cret", "LEVEL=debug"]}
    text = "env - {'HF_TOKEN': 's3cret', 'LEVEL': 'debug'}\n"
    for engine, module, after in (("docker", DOCKER, env), ("podman", PODMAN, text)):
        host = Host(monkeypatch).answer(f"{PLANNER}:plan", {"plan": plan(engine=engine, module=module)})
        host.answer(module, {"changed": True, "container": {}, "diff": {"before": type(after)(), "after": after}})
        result = host.run(env={"HF_TOKEN": "s3cret"})
        assert host.is_logged[module] is False
        assert "s3cret" not in str(result)
        assert "debug" in str(result["diff"])


def test_a_failure_has_no_arguments_of_another_module(monkeypatch):
    host = Host(monkeypatch).answer(f"{PLANNER}:plan", {"plan": plan()})
    host.answer(DOCKER, {"failed": True, "msg": "no", "invocation": {"module_args": {"env": {"HF_TOKEN": "s3cret"}}}})
    result = host.run(env={"HF_TOKEN": "s3cret"})
    assert result["failed"]
    assert "s3cret" not in str(result)
