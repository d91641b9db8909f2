# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of playbook verify and its file, for a fleet of every state and of several vendors, in one run.

The task that checks a host is replaced by one that returns a result.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.site import end_of_run_verdicts
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run
from ansible_collections.gpufleet.hosts.tests.unit.plugins import fleet_samples as samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT

TWO_VENDORS = samples.observed(("neuron", "Trainium2"), ("gaudi", "Gaudi3"))
RESULTS = {
    "gpu01": {"host": samples.H100, "health": samples.HEALTHY, "ansible_facts": samples.H100_FACTS},
    "gpu02": {"host": samples.A100, "health": {"problems": [samples.NO_PERSISTENCE], "notes": [samples.KERNEL_NOTE]}},
    "amd01": {"host": samples.MI300, "health": samples.HEALTHY},
    "aws01": {"host": TWO_VENDORS, "health": {"problems": [], "notes": ["A note."]}},
    "cpu01": {"host": samples.observed(), "health": samples.HEALTHY},
}
# A stand-in for the module on the host, which returns what the inventory says.
MODULE = """\
#!/usr/bin/python
# WANT_JSON
import json, sys
print(json.dumps(json.load(open(sys.argv[1]))["result"]))
"""
NOTHING = {"failed_task": None, "rebooted": None, "problems": [], "notes": []}
NO_OBSERVATION = {**NOTHING, "accelerators": None, "drivers": None, "engine": None, "toolkit": None}
EXPECTED = [
    {
        **NOTHING,
        "host": "gpu01",
        "state": "ok",
        "verdict": "pass",
        "accelerators": [{"vendor": "NVIDIA", "model": "NVIDIA H100 80GB HBM3", "count": 8}],
        "drivers": [{"name": "nvidia", "version": "580.95.05", "loaded": True}],
        "engine": {"name": "docker", "version": "28.5.1"},
        "toolkit": "1.18.0-1",
    },
    {
        **NOTHING,
        "host": "gpu02",
        "state": "ok",
        "verdict": "critical",
        "accelerators": [{"vendor": "NVIDIA", "model": "Ampere", "count": 2}],
        "drivers": [{"name": "nvidia", "version": "580.95.05", "loaded": True}],
        "engine": {"name": "podman", "version": "5.4.2"},
        "toolkit": None,
        "problems": [samples.NO_PERSISTENCE],
        "notes": [samples.KERNEL_NOTE],
    },
    {
        **NOTHING,
        "host": "amd01",
        "state": "ok",
        "verdict": "pass",
        "accelerators": [{"vendor": "AMD", "model": None, "count": 4}],
        "drivers": [{"name": "amdgpu", "version": "6.12.12", "loaded": True}],
        "engine": {"name": "docker", "version": "28.5.1"},
        "toolkit": None,
    },
    {
        **NOTHING,
        "host": "aws01",
        "state": "ok",
        "verdict": "info",
        "accelerators": [
            {"vendor": "AWS", "model": "Trainium2", "count": 1},
            {"vendor": "Intel", "model": "Gaudi3", "count": 1},
        ],
        "drivers": [],
        "engine": None,
        "toolkit": None,
        "notes": ["A note."],
    },
    {
        **NOTHING,
        "host": "cpu01",
        "state": "ok",
        "verdict": "pass",
        "accelerators": [],
        "drivers": [],
        "engine": None,
        "toolkit": None,
    },
    {
        **NO_OBSERVATION,
        "host": "broken",
        "state": "failed",
        "verdict": "unknown",
        "failed_task": "Check the health of the host",
    },
    {**NO_OBSERVATION, "host": "lost", "state": "unreachable", "verdict": "unknown"},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[subprocess.CompletedProcess, list[dict], Path]:
    """Run playbook verify in check mode with a relative path, in a directory that is not that of the playbook."""
    directory = tmp_path_factory.mktemp("run")
    first, last = yaml.safe_load((ROOT / "playbooks/verify.yml").read_text(encoding="utf-8"))
    (check,) = first["tasks"]
    (check["check_the_host"],) = [{"result": "{{ result }}"} for key in list(check) if key.endswith("gpu_host_verify")]
    del check["gpufleet.hosts.gpu_host_verify"]
    first["check_mode"] = False  # the stand-in has no check mode
    (directory / "library").mkdir()
    (directory / "library/check_the_host.py").write_text(MODULE, encoding="utf-8")
    (directory / "play.yml").write_text(yaml.safe_dump([first, last]), encoding="utf-8")
    hosts: dict[str, dict] = {name: {"result": {"changed": False, **result}} for name, result in RESULTS.items()}
    hosts["broken"] = {"result": {"failed": True, "msg": "No Python."}}
    lost = dict(item.split("=", 1) for item in ansible_run.unreachable(directory).split())
    hosts["lost"] = {**lost, "result": {}}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"gpu_hosts": {"hosts": {name: {**local, **own} for name, own in hosts.items()}}}
    (directory / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
    (directory / "cwd").mkdir()
    argv = ["ansible-playbook", "--check", "-i", "../hosts.json", "../play.yml", "-e", "verify_file=fleet.json"]
    environment = {**os.environ, "PWD": str(directory / "cwd"), "COLUMNS": "1000"}
    done = ansible_run.run(argv, cwd=directory / "cwd", env=environment)
    path = directory / "cwd/fleet.json"
    assert path.exists(), done.stdout + done.stderr
    return done, json.loads(path.read_text(encoding="utf-8")), path


def test_the_file_has_an_entry_for_each_host_also_for_failed_and_unreachable_ones(run):
    _done, entries, path = run
    assert entries == EXPECTED
    # The file is for programs of other users, too.
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_file_has_the_hosts_and_verdicts_of_the_table(run):
    done, entries, _path = run
    lines = done.stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("HOST "))
    table = [line.split() for line in lines[start + 1 : start + 1 + len(entries)]]
    assert [(row[0], row[-1]) for row in table] == [(entry["host"], entry["verdict"]) for entry in entries]
    assert lines.count("Unreachable: lost") == 1
    assert "7 hosts: 3 pass, 1 info, 1 critical, 2 unknown; 1 failed, 1 unreachable" in lines


def test_hosts_with_problems_fail_and_no_others(run):
    done, _entries, _path = run
    counts = re.findall(r"^(\w+) +: .*unreachable=(\d) +failed=(\d)", done.stdout, flags=re.MULTILINE)
    assert {host for host, unreachable, failed in counts if (unreachable, failed) != ("0", "0")} == {
        "gpu02",
        "broken",
        "lost",
    }
    assert done.returncode == 4


def test_the_documentation_names_all_keys_of_an_entry(run):
    _done, entries, _path = run
    page = (ROOT / "docs/playbooks.md").read_text(encoding="utf-8")
    table = page[page.index("lets `verify` write") :].split("\n\n")[1]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert {frozenset(entry) for entry in entries} == {frozenset(named)}
    states = re.findall(r"`(\w+)`", next(row for row in table.splitlines() if "| `state` |" in row).split("|")[2])
    assert states == [
        end_of_run_verdicts.OK,
        end_of_run_verdicts.FAILED,
        end_of_run_verdicts.UNREACHABLE,
        end_of_run_verdicts.NOT_STARTED,
    ]
