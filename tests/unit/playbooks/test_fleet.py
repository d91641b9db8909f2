# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table at the end of playbook site, after all batches. The tasks that observe and change hosts are replaced."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import yaml

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT
from ansible_collections.gpufleet.hosts.tests.unit.plugins.fleet_samples import H100, H100_FACTS
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.site.test_host_health import FACTS, GPU, HOST

# Each batch has three hosts. A host's name says what happens to it.
INVENTORY = """\
[gpu_hosts]
good1
changing
good2
good3
unplanned
lost
never1
never2
[gpu_hosts:vars]
ansible_connection=local
"""
SEEN = H100["accelerators"]["nvidia"]
DRIVER = {**HOST["accelerators"]["nvidia"]["driver"], **SEEN["driver"], "on_disk_next": SEEN["driver"]["on_disk"]}
OBSERVED = {
    **HOST,
    "identity": H100["identity"],
    "accelerators": {**H100["accelerators"], "nvidia": {**SEEN, "driver": DRIVER}},
    "engines": {**HOST["engines"], "container_toolkit": {"package": None, "version": None}},
}
GPUS = [{**GPU, **gpu} for gpu in H100_FACTS["nvidia_gpus"]]
PLAN: dict[str, t.Any] = {
    "ansible.builtin.set_fact": {"site_plan": {"host": OBSERVED}, "cacheable": False},
    "when": "inventory_hostname != 'unplanned'",
}
FAILED_PLAN = {
    "name": "Plan all changes, and stop on conflicts before any change",
    "ansible.builtin.fail": {"msg": "conflict"},
    "register": "site_plan",
    "when": "inventory_hostname == 'unplanned'",
}
READ_FACTS = {"ansible.builtin.set_fact": {**FACTS, "nvidia_gpus": GPUS, "cacheable": True}}
FAIL = {
    "name": "Install the packages",
    "ansible.builtin.fail": {"msg": "no space"},
    "when": "inventory_hostname == 'changing'",
}
LOSE = {"ansible.builtin.ping": {}, "when": "inventory_hostname == 'lost'"}


def output(tmp_path: Path) -> tuple[int, list[str]]:
    """Return the exit status and the lines of a run that stops before its last batch."""
    first, last = yaml.safe_load((ROOT / "playbooks/site.yml").read_text(encoding="utf-8"))
    apply = {**first["tasks"][-1], "block": [{**task, "tags": ["always"]} for task in (READ_FACTS, FAIL, LOSE)]}
    planning = [{**FAILED_PLAN, "tags": ["always"]}, {**PLAN, "tags": ["always"]}]
    first["tasks"] = [first["tasks"][0], *planning, apply]
    options = {"site_serial": 3, "site_max_fail_percentage": 49, "ansible_ssh_retries": 0}
    inventory = INVENTORY.replace("lost\n", f"lost {ansible_run.unreachable(tmp_path)}\n")
    return run_plays(tmp_path, [first, last], inventory, options)


def run_plays(tmp_path: Path, plays: list[dict], inventory: str, options: dict) -> tuple[int, list[str]]:
    (tmp_path / "play.yml").write_text(yaml.safe_dump(plays), encoding="utf-8")
    (tmp_path / "hosts").write_text(inventory, encoding="utf-8")
    argv = ["ansible-playbook", "-i", "hosts", "play.yml", "-e", json.dumps(options)]
    run = ansible_run.run(argv, cwd=tmp_path, env={**os.environ, "COLUMNS": "1000"})
    return run.returncode, run.stdout.splitlines()


def test_the_table_has_the_hosts_of_all_batches_and_the_failed_tasks(tmp_path: Path) -> None:
    status, lines = output(tmp_path)
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("HOST ")) :]
    assert {line.split()[0]: line.split()[-1] for line in table[1:9]} == {
        "good1": "pass",
        "changing": "critical",
        "good2": "pass",
        "good3": "pass",
        "unplanned": "unknown",
        "lost": "unknown",
        "never1": "unknown",
        "never2": "unknown",
    }
    assert "  changing: Install the packages" in table
    assert "  unplanned: Plan all changes, and stop on conflicts before any change" in table
    assert {"Unreachable: lost", "Not started: never1, never2"} <= {*table}
    assert "8 hosts: 3 pass, 1 critical, 4 unknown; 2 failed, 1 unreachable, 2 not started" in table
    # The table changes neither the exit status nor the recap: 2 failed hosts, and 1 unreachable.
    assert status == 4
    assert [line for line in lines if line.startswith(("changing ", "unplanned ")) and "failed=1" in line]


def test_a_converged_host_has_four_task_results_with_the_table(tmp_path: Path) -> None:
    first, last = yaml.safe_load((ROOT / "playbooks/site.yml").read_text(encoding="utf-8"))
    result = {
        "host_text": json.dumps(OBSERVED),
        "converged": True,
        "acting": [],
        "drain": None,
        "has_secrets": False,
        "reports": {"nvidia_driver_report": {"version": "580.1"}},
    }
    # The plan is registered by one task. Here, two set it and the facts of the GPUs.
    planning = [
        {"ansible.builtin.set_fact": {"site_plan": result}, "tags": ["always"]},
        {**READ_FACTS, "tags": ["always"]},
    ]
    act = {"ansible.builtin.import_tasks": str(ROOT / "playbooks/tasks/save_reports_and_skip_converged.yml")}
    # The tasks before the plan are no results of a host: Ansible does not count a skipped `meta`.
    first["tasks"] = [*planning, {**first["tasks"][-1], "block": [act]}]
    report = {"ansible.builtin.debug": {"msg": "nvidia_driver_report: {{ nvidia_driver_report.version }}"}}
    show = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"nvidia_driver_report": "{{ hostvars.good.nvidia_driver_report }}"},
    }
    plays = [first, last, {**show, "tasks": [report]}]
    status, lines = run_plays(tmp_path, plays, "[gpu_hosts]\ngood ansible_connection=local\n", {})
    results = [line for line in lines if line.startswith(("ok: [good]", "skipping: [good]", "changed: [good]"))]
    assert status == 0, lines
    assert 1 + len(results) - len(planning) == 4, results
    assert "1 host: 1 pass" in lines
    assert "nvidia_driver_report: 580.1" in "".join(lines)
