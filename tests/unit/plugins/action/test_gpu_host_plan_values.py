# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The errors for invalid variables and for a host with an old Python, and the types of the values in a plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.gpufleet.hosts.plugins.action import gpu_host_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_result
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.registry import BY_NAME, PARTS, REQUESTS
from ansible_collections.gpufleet.hosts.plugins.modules import gpu_host_plan as documentation
from ansible_collections.gpufleet.hosts.tests.unit.plugins import site_samples

# Ansible's results for hosts with Python 3.6, 3.7, 3.8, a version that Ansible rejects, and without Python.
DESERIALIZATION = "Module result deserialization failed: No start of json char found"
OLD = [
    {"msg": DESERIALIZATION, "module_stderr": "SyntaxError: future feature annotations is not defined\n"},
    {"msg": DESERIALIZATION, "module_stderr": "Traceback (most recent call last):\nSyntaxError: invalid syntax\n"},
    {"msg": "Task failed: Module failed: 'type' object is not subscriptable"},
    {"msg": "ansible-core requires a minimum of Python version 3.8. Current version: 3.7.16"},
    {"msg": "The module interpreter '/usr/bin/python3' was not found.", "module_stderr": "not found\n"},
]
OTHERS = [
    {"msg": "services[0] is not a unit's name"},
    {"msg": DESERIALIZATION, "module_stderr": "sudo: a password is needed"},
]


class Plugin(gpu_host_plan.ActionModule):
    """The plugin. `modules` has the result of each module, an error, or a function of the module's options."""

    def __init__(self, *parts: str, **modules: Any) -> None:
        """Set the plugin up for a task with these parts."""
        super().__init__(
            task=SimpleNamespace(
                args={"parts": list(parts)}, async_val=0, delegate_to=None, check_mode=False, diff=False, action="x"
            ),
            connection=SimpleNamespace(transport="ssh", _shell=SimpleNamespace(tmpdir="/nowhere")),
            play_context=None,
            loader=None,
            templar=Templar(loader=DataLoader()),
            shared_loader_obj=None,
        )
        self.modules = modules
        self.calls: list[str] = []

    def _execute_module(self, module_name="", module_args=None, **_options):
        name = module_name.rpartition(".")[2]
        self.calls.append(name)
        result = self.modules[name]
        if isinstance(result, Exception):
            raise result
        return result(module_args) if callable(result) else result


def test_documented_parts_are_those_that_the_task_accepts():
    documented = yaml.safe_load(documentation.DOCUMENTATION)["options"]["parts"]["choices"]
    assert sorted(documented) == sorted(BY_NAME)
    refused = Plugin("gpu_kubernetes_node").run(task_vars={})
    assert "gpu_kubernetes_node" in refused["msg"]
    assert all(part in refused["msg"] for part in documented)


def test_results_that_a_short_plan_leaves_out_are_documented():
    returned = {name: one["returned"] for name, one in yaml.safe_load(documentation.RETURN).items()}
    every = dict.fromkeys(returned, "x")
    missing = every.keys() - plan_result.shortened(every).keys()
    assert missing == {name for name, text in returned.items() if "unless O(short=true)" in text}


def message(failure: Any) -> str:
    plugin = Plugin(gpu_host_info=failure)
    result = plugin.run(task_vars={})
    assert (result["failed"], plugin.calls) == (True, ["gpu_host_info"])
    return result["msg"]


@pytest.mark.parametrize("failed", OLD)
def test_an_old_python_is_reported_with_the_remedy(failed):
    for text in (message({"failed": True, **failed}), message(AnsibleError(" ".join(failed.values())))):
        for word in ("Python 3.9 or newer", "dnf install python3.12", "ansible_python_interpreter", failed["msg"]):
            assert word in text
        assert text.startswith("This host needs")


@pytest.mark.parametrize("failed", OTHERS)
def test_any_other_failure_is_quoted(failed):
    assert message({"failed": True, **failed}) == " ".join(failed.values())


@pytest.mark.parametrize(
    "variable",
    [
        (role, name, rule)
        for role, request in REQUESTS.items()
        if role in ("observe", *PARTS)
        for name, (rule, _default) in variable_fields.table(request).items()
    ],
    ids=lambda variable: "_".join(variable[:2]),
)
def test_every_variable_is_checked_before_the_host_is_contacted(variable):
    role, name, rule = variable
    plugin = Plugin(*PARTS)
    result = plugin.run(task_vars={f"{role}_{name}": [1] if rule.kind == "dict" else {"a": 1}})
    assert (result["failed"], plugin.calls) == (True, [])
    (error,) = result["errors"]
    assert error.startswith(f"{role}_{name} is ")
    assert error in result["msg"]


@pytest.mark.parametrize(
    "given",
    [
        {"site_drain_adapter": "pbs"},
        {"site_drain_adapter": "systemd"},
        {"site_drain_adapter": "slurm", "site_drain_timeout": "soon"},
    ],
)
def test_a_drain_is_checked_before_the_host_is_contacted(given):
    plugin = Plugin(*PARTS)
    result = plugin.run(task_vars=given)
    assert (result["failed"], plugin.calls) == (True, [])
    assert result["msg"].startswith("site_drain_")


def types(value: Any) -> set[type]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return {type(value)}.union(*map(types, inner))


def test_a_plan_needs_two_calls_and_consists_of_plain_data():
    """Ansible's templates and facts accept only these types."""
    plugin = Plugin(
        *PARTS,
        gpu_host_info={"host": site_samples.bare()},
        package_transaction=lambda options: {"versions": site_samples.offered(options), "streams": {}},
    )
    result = plugin.run(task_vars={"nvidia_driver_imex": False})
    assert plugin.calls == ["gpu_host_info", "package_transaction"], result
    assert result["changed"] is False
    assert result["plan"]["nvidia_driver"]["todo"]["transaction"]["install"]
    assert result["plan"]["container_engine"]["packages"]
    assert types(result["plan"]) <= {dict, list, str, bool, int, type(None)}
