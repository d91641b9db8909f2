# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role that runs alone drains the host, applies its plan, and ends the drain, or names the failed task."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

ROLES = Path(__file__).resolve().parents[3] / "roles"
# Whether the plan of a role depends on what uses the devices, so that it is made again after the drain.
DRAINING = {
    "container_engine": False,
    "nvidia_container_toolkit": False,
    "nvidia_driver": False,
    "neuron_driver": True,
    "gaudi_driver": True,
}
OBSERVE = ("role.yml", "drain_of_one_role.yml", "drain.yml", "drain_end.yml")
# Record each call. The owner of the drain is the host.
MODULE = """\
import json, os
from ansible.module_utils.basic import AnsibleModule

names = ("adapter", "owner", "verb", "reason", "timeout", "wait", "failed_step", "slurm")
module = AnsibleModule({name: {"type": "raw"} for name in names})
host, verb = module.params["owner"], module.params["verb"]
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps([host, verb, module.params["failed_step"] or "", module.params["slurm"]]) + "\\n")
if verb == "act" and host.endswith("-fails"):
    module.fail_json(msg="broken")
busy = host.endswith("-busy")
module.exit_json(ready=not busy, expired=busy, foreign=None, owner=None, waiting_for=["job 7"])
"""
PLAN = """\
- name: Plan
  fake_workload: {verb: plan, owner: "{{ inventory_hostname }}"}
- name: Save the drain
  ansible.builtin.set_fact:
    gpufleet_drain:
      adapter: slurm
      owner: "{{ inventory_hostname }}"
      reason: x
      timeout: 60
      begins: "{{ 'ends' not in inventory_hostname }}"
"""
ACT = """\
- name: Install the packages
  fake_workload: {verb: act, owner: "{{ inventory_hostname }}"}
"""


# The user's variables name the node for all roles of Slurm. Options of the drain win, also as text of the command line.
NODE = {"node": "node7", "programs": "/opt/slurm/bin"}
OWN = {
    "neuron_driver-fails": {"node": "node8"},
    "neuron_driver-ends": '{"programs": "/p"}',
    "gaudi_driver-busy": "node=n9",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Run each role on hosts of its own. Its plan and its change only record their calls, which are returned."""
    folder = tmp_path_factory.mktemp("roles")
    for name in (*DRAINING, "observe"):
        tasks = folder / "roles" / name / "tasks"
        tasks.mkdir(parents=True)
        for file in OBSERVE if name == "observe" else ("main.yml",):
            text = (ROLES / name / "tasks" / file).read_text(encoding="utf-8")
            text = text.replace("gpufleet.hosts.gpu_workload", "fake_workload")
            text = text.replace("gpufleet.hosts.{{ __observe_role }}", '"{{ __observe_role }}"')
            text = text.replace("gpufleet.hosts.", "")
            (tasks / file).write_text(text, encoding="utf-8")
        plan_or_act = ("plan.yml", PLAN) if name == "observe" else ("act.yml", ACT)
        (tasks / plan_or_act[0]).write_text(plan_or_act[1], encoding="utf-8")
        if (ROLES / name / "vars").exists():
            shutil.copytree(ROLES / name / "vars", tasks.parent / "vars")
    (folder / "library").mkdir()
    (folder / "library/fake_workload.py").write_text(MODULE, encoding="utf-8")
    hosts = [*DRAINING, "neuron_driver-fails", "gaudi_driver-busy", "neuron_driver-ends"]
    task = {"ansible.builtin.include_role": {"name": "{{ inventory_hostname.split('-')[0] }}"}}
    variables = {f"gpu_slurm_node_{name.replace('node', 'name')}": value for name, value in NODE.items()}
    variables |= {"own": OWN, "site_drain_options": "{{ own[inventory_hostname] | default({}) }}"}
    play = [{"hosts": "all", "gather_facts": False, "vars": variables, "tasks": [task]}]
    (folder / "play.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
    argv = [
        "ansible-playbook",
        "-i",
        ",".join(hosts),
        "-c",
        "local",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
    ]
    ansible_run.run([*argv, str(folder / "play.yml")], env={**os.environ, "CALLS": str(folder / "calls")})
    found = [json.loads(line) for line in (folder / "calls").read_text(encoding="utf-8").splitlines()]
    return {host: [tuple(call[1:]) for call in found if call[0] == host] for host in hosts}


@pytest.fixture
def calls(recorded):
    """Return the verbs that each host recorded, with the failed step."""
    return {host: [call[:2] for call in found] for host, found in recorded.items()}


@pytest.mark.parametrize(("role", "plans_again"), DRAINING.items(), ids=DRAINING)
def test_the_host_is_drained_before_the_change_and_gets_work_after_it(calls, role, plans_again):
    again = ["plan"] if plans_again else []
    assert [verb for verb, _step in calls[role]] == ["plan", "begin", "poll", *again, "act", "end"]
    assert calls[role][-1] == ("end", "")


def test_a_failed_task_keeps_the_host_drained_with_its_name(calls):
    assert calls["neuron_driver-fails"][-2:] == [("act", ""), ("end", "Install the packages")]


def test_nothing_changes_if_the_work_does_not_end(calls):
    assert [verb for verb, _step in calls["gaudi_driver-busy"]] == ["plan", "begin", "poll", "abort"]


def test_a_role_without_an_interruption_ends_the_drain_of_an_earlier_run(calls):
    assert [verb for verb, _step in calls["neuron_driver-ends"]] == ["plan", "act", "end"]


@pytest.mark.parametrize(
    ("host", "options"),
    [
        ("nvidia_driver", NODE),
        ("neuron_driver-fails", {**NODE, "node": "node8"}),
        ("neuron_driver-ends", {**NODE, "programs": "/p"}),
        ("gaudi_driver-busy", {**NODE, "node": "n9"}),
    ],
)
def test_the_node_is_that_of_the_role_for_slurm_unless_the_drain_names_it(recorded, host, options):
    drain = [found for verb, _step, found in recorded[host] if verb not in ("plan", "act")]
    assert drain == [options] * len(drain) != []
