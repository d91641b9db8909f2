# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module calls of a health check, and its result."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.hosts.plugins.action import gpu_host_verify
from ansible_collections.gpufleet.hosts.plugins.action.gpu_host_verify import FACTS, PLAN, PROOF, VOLUME
from ansible_collections.gpufleet.hosts.tests.unit.plugins import neuron_hosts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.site import test_host_health
from ansible_collections.gpufleet.hosts.tests.unit.plugins.neuron_trees import INF2, NeuronTree

READY = {"nvidia_gpu_state": "ready", "nvidia_gpus": test_host_health.FACTS["nvidia_gpus"]}
WITHOUT_GPU = test_host_health.with_gpus({"gpus": [], "driver": {"loaded": None}})


class Run:
    """A health check with prepared results of the modules, which records the calls."""

    def __init__(self, **results):
        self.calls: list[tuple[str, dict, bool]] = []
        self.results = {
            PLAN: {"host": test_host_health.HOST, "ansible_facts": {}, "warnings": ["careful"]},
            FACTS: {"ansible_facts": READY},
            VOLUME: {"changed": False, "volume": {}},
            PROOF: {"changed": False},
            **results,
        }

    def __call__(self, variables=None, *, check_mode=False, **arguments):
        task = MagicMock(args=arguments, async_val=0, check_mode=check_mode)
        task.copy = lambda: SimpleNamespace(args=None, action=None)
        templar = SimpleNamespace(template=lambda value: value)
        action = gpu_host_verify.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), templar, None)

        def load(name, task, **_objects):
            return SimpleNamespace(run=lambda task_vars: self._result(name, task.args, is_check=check_mode))

        def execute(module_name, module_args, task_vars):
            assert task_vars["gpufleet_host"] == self.results[PLAN]["host"]
            return self._result(module_name, module_args, is_check=action._task.check_mode)

        action._shared_loader_obj = SimpleNamespace(action_loader=SimpleNamespace(get=load))
        action._execute_module = execute
        return action.run(task_vars=variables or {})

    def _result(self, name, arguments, *, is_check):
        self.calls.append((name, arguments, is_check))
        return self.results[name]


@pytest.fixture(autouse=True)
def _base(monkeypatch):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})


def test_a_healthy_host():
    run = Run()
    result = run()
    assert result["health"] == {"problems": [], "notes": []}
    assert (result["changed"], result["ansible_facts"], result["warnings"]) == (False, READY, ["careful"])
    # The volume is only predicted, also outside check mode. No container starts.
    assert run.calls == [
        (PLAN, {"parts": [], "requires_root": True}, False),
        (FACTS, {}, False),
        (VOLUME, {"engine": ["auto"], "expected_engines": ["docker"]}, True),
    ]


@pytest.mark.parametrize(
    ("host", "arguments", "modules"),
    [
        (WITHOUT_GPU, {}, [PLAN]),
        (WITHOUT_GPU, {"container": True}, [PLAN]),
        (test_host_health.HOST, {"container": "yes"}, [PLAN, FACTS, VOLUME, PROOF]),
        (test_host_health.changed(test_host_health.HOST, f"{test_host_health.DRIVER}/loaded", None), {}, [PLAN, FACTS]),
    ],
)
def test_only_what_a_host_needs_runs(host, arguments, modules):
    run = Run(**{PLAN: {"host": host}})
    run(**arguments)
    assert [name for name, _arguments, _is_check in run.calls] == modules


@pytest.mark.parametrize(
    ("results", "variables", "problem"),
    [
        ({VOLUME: {"failed": True, "msg": "no space"}}, {}, "The driver volume could not be checked: no space."),
        ({PROOF: {"failed": True, "msg": "A container sees no GPU."}}, {}, "A container sees no GPU."),
        ({FACTS: {"ansible_facts": {"nvidia_gpu_state": "error", "nvidia_gpu_state_reason": "Xid 79"}}}, {}, "Xid 79"),
        ({}, {"verify_expected_gpus": "8"}, "but verify_expected_gpus is 8"),
        ({}, {"container_engine_name": "none"}, None),
    ],
)
def test_problems_do_not_fail_the_task(results, variables, problem):
    result = Run(**results)(variables, container=True)
    assert not result.get("failed")
    assert [text for text in result["health"]["problems"] if problem and problem in text] or problem is None


@pytest.mark.parametrize(
    ("loaded", "arguments", "result", "problems"),
    [
        (True, {"container": True}, {"changed": False}, []),
        (
            True,
            {"container": True},
            {"failed": True, "msg": "A. B.", "problems": ["A container sees 1 of 2 chips.", "B."]},
            ["A container sees 1 of 2 chips.", "B."],
        ),
        (True, {"container": True}, {"failed": True, "msg": "no engine answers"}, ["no engine answers"]),
        # No container starts by default, and none on a host whose chips are not ready.
        (True, {}, None, []),
        (False, {"container": True}, None, ["The AWS Neuron chips cannot be used (state no_driver)"]),
    ],
)
def test_containers_must_see_the_chips_of_a_neuron_host(tmp_path, loaded, arguments, result, problems):
    tree = NeuronTree(tmp_path, loaded=loaded)
    tree.bus(INF2, 2, bound=loaded)
    for _number in range(2 if loaded else 0):
        tree.chip(INF2)
    observed = neuron_hosts.observed(tree)
    groups = {**WITHOUT_GPU["accelerators"], "neuron": observed["accelerators"]["neuron"]}
    files = {**observed["files"], **WITHOUT_GPU["files"]}
    host = {
        **WITHOUT_GPU,
        "accelerators": groups,
        "kernel": {**observed["kernel"], **WITHOUT_GPU["kernel"]},
        "files": files,
    }
    run = Run(**{PLAN: {"host": host}, PROOF: result})
    found = run(**arguments)["health"]["problems"]
    assert len(found) == len(problems)
    assert [text for text in problems if not any(text in one for one in found)] == []
    assert run.calls[1:] == ([(PROOF, {"accelerator": "neuron"}, False)] if result else [])


def test_a_host_without_an_engine_on_purpose_needs_no_engine_for_its_volume():
    run = Run()
    run({"container_engine_name": "containerd"})
    assert run.calls[-1][1] == {"engine": ["none"], "expected_engines": []}


@pytest.mark.parametrize(
    ("results", "variables", "arguments", "message"),
    [
        ({PLAN: {"failed": True, "msg": "This play needs root."}}, {}, {}, "This play needs root."),
        ({FACTS: {"failed": True, "msg": "no Python"}}, {}, {}, "no Python"),
        ({}, {}, {"container": "perhaps"}, "verify_container is perhaps, but must be true or false."),
        ({}, {"verify_expected_gpus": "many"}, {}, "verify_expected_gpus is 'many', which is not a valid number"),
        ({}, {"verify_expected_pcie_width": "3"}, {}, "verify_expected_pcie_width is '3', which is not a valid"),
        ({}, {"nvidia_container_toolkit_source": "x"}, {}, "nvidia_container_toolkit_source is x, but must be one of"),
    ],
)
def test_what_cannot_be_checked_fails_the_task(results, variables, arguments, message):
    run = Run(**results)
    result = run(variables, **arguments)
    assert result["failed"]
    assert message in result["msg"]
    # Invalid variables fail before the host is contacted.
    assert bool(run.calls) is bool(results)


@pytest.mark.parametrize(
    ("answer", "problems", "notes"),
    [
        (
            {"findings": ["Gres=gpu:7."], "notes": ["drained: bad disk."]},
            ["Slurm: Gres=gpu:7."],
            ["drained: bad disk."],
        ),
        (
            {"failed": True, "msg": "Slurm's controller did not answer."},
            ["Slurm: Slurm's controller did not answer."],
            [],
        ),
    ],
)
def test_a_node_of_slurm_is_asked_under_its_name(answer, problems, notes):
    host = test_host_health.changed(test_host_health.HOST, "services/slurmd.service", {"active_state": "active"})
    run = Run(**{PLAN: {"host": host}, gpu_host_verify.SLURM: answer})
    result = run({"gpu_slurm_node_name": "node7"})
    assert result["health"] == {"problems": problems, "notes": notes}
    assert run.calls[-1][:2] == (gpu_host_verify.SLURM, {"gather": True, "node": "node7"})
