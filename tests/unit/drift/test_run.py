# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drift test as a whole, on a described host: the real planner plans, and a fake playbook repairs what it plans."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry
from ansible_collections.gpufleet.hosts.tests.drift import items as drift_items
from ansible_collections.gpufleet.hosts.tests.drift import run as drift_run
from ansible_collections.gpufleet.hosts.tests.drift import verdict, ways
from ansible_collections.gpufleet.hosts.tests.drift.run import CannotTest, Report
from ansible_collections.gpufleet.hosts.tests.drift.verdict import Run
from ansible_collections.gpufleet.hosts.tests.unit.drift import converged_host as sample
from ansible_collections.gpufleet.hosts.tests.unit.drift import drifting
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run, planned_roles

PLATFORMS = drift_run.platforms(sample.KEY)
ITEMS = drift_items.items(sample.converged_host(), sample.values(), PLATFORMS)
CASES = {case.script: case for case in ways.cases(ITEMS, sample.converged_host())}
# The package that builds the kernel modules needs the others.
REMOVED_WITH = {name: ["nvidia-open-kernel-dkms"] for name in ("dkms", "nvidia-open-kernel-support")}
ALL = argparse.Namespace(only="", list=False, shard="")


class FakeHost(drift_run.Host):
    """A host that is only an observation. `repair` returns the host after a run of playbook site."""

    def __init__(self, repair: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> None:
        super().__init__("fake", Path("none"), Path("none"))
        self.state, self.modes_off = sample.converged_host(), []
        self.repair = repair or (lambda _host: sample.converged_host())
        self.scripts: list[str] = []
        self.is_offline = False
        self.more: list[dict[str, Any]] = []

    def shell(self, script: str) -> str:
        if script == drift_run.RESET_STARTS:
            return ""
        if "--simulate" in script:
            name = script.rpartition(" ")[2]
            return "".join(f"Remv {other} [1]\n" for other in (name, *REMOVED_WITH.get(name, ())))
        self.scripts.append(script)
        item = CASES[script].item if script in CASES else None
        if item is None:
            self.state = only_driver()
        elif item.kind == "persistence_mode":
            self.modes_off = [*self.modes_off, item.name]
        else:
            drifting.BREAK[item.kind](self.state, item.name)
            if CASES[script].way in ("disabled", "masked"):
                self.state["services"][item.name].update(active_state="active", unit_file_state="disabled")
        return ""

    def parts(self) -> dict[str, Part]:
        context = Context(host=self.state, values=sample.values(), platforms=PLATFORMS)
        parts = site_plan.plan(context, registry.PARTS)
        question = site_plan.query(parts)
        if question:
            offered = drift_items.offered(sample.converged_host(), question["query"])
            context = dataclasses.replace(context, versions=offered, streams={})
            parts = site_plan.plan(context, registry.PARTS)
        if site_plan.needs_facts(self.state, sample.values(), parts):
            is_active = self.state["services"]["nvidia-persistenced.service"]["active_state"] == "active"
            off = self.modes_off if is_active else self.state["accelerators"]["nvidia"]["gpus"]
            context = dataclasses.replace(context, facts=drift_items.facts(self.state, off))
            parts = site_plan.plan(context, registry.PARTS)
        return parts

    def play(self, playbook: Path, *arguments: str) -> Run:
        parts = self.parts()
        changes = [{"part": name, "changes": part.changes, "reasons": []} for name, part in parts.items()]
        acting = [name for name, part in parts.items() if part.acts]
        plan = {"host": copy.deepcopy(self.state), "changes": changes, "acting": acting}
        entries: list[dict[str, Any]] = [{"task": "Plan", "action": "plan", "result": "ok", "plan": plan}]
        if playbook == drift_run.SITE and "--check" not in arguments:
            for change in changes:
                if change["changes"]:
                    task = f"gpufleet.hosts.{change['part']} : Change"
                    entries.append({"task": task, "action": "command", "result": "changed"})
            entries += self.more if acting else []
            needs_network = any("install" in text for change in changes for text in change["changes"])
            if self.is_offline and needs_network:
                raise CannotTest("no network")
            self.state, self.modes_off = self.repair(self.state), []
        return Run(entries, 1.0)

    def predict(self) -> dict[str, list[str]]:
        return verdict.predicted(self.play(drift_run.PLAN).plan["changes"])

    @contextmanager
    def offline(self):
        self.is_offline = True
        yield
        self.is_offline = False

    def values(self) -> dict[str, dict[str, Any]]:
        return sample.values()


def only_driver() -> dict[str, Any]:
    host = sample.converged_host()
    for item in ITEMS:
        if item.part != "nvidia_driver" and item.kind in ("package", "service", "file"):
            drifting.BREAK[item.kind](host, item.name)
    for unit in ("docker.service", "nvidia-persistenced.service"):
        host["services"][unit] = dict(drift_items.NO_UNIT)
    host["engines"]["docker"].update(package=None, version=None, info=None)
    drifting.remove_daemon_json(host)
    host["driver_volume"].update(changed=True, actions=[f"build volume {sample.VOLUME} from 3 files"])
    host["driver_volume"]["actions"].append(f"register {sample.VOLUME} with docker")
    return host


def judged(host: FakeHost, path: Path, options: argparse.Namespace = ALL) -> tuple[list[str], str]:
    """Return the failed checks of the items, and the report."""
    report = Report(path / "report.txt")
    drift_run.check_items(host, report, options)
    return report.failed, (path / "report.txt").read_text()


def test_every_case_passes_if_every_item_is_repaired(tmp_path: Path) -> None:
    host = FakeHost()
    failed, text = judged(host, tmp_path)
    assert failed == [], text
    # The packages of the kernel modules are removed only once.
    left_out = {item for item in ITEMS if item.kind == "package" and item.name in ("dkms", "nvidia-open-kernel-dkms")}
    assert {CASES[script].item for script in host.scripts} == set(ITEMS) - left_out


def test_only_some_cases_run_on_request(tmp_path: Path) -> None:
    host = FakeHost()
    judged(host, tmp_path, argparse.Namespace(only="^service docker", list=False, shard=""))
    assert [str(CASES[script]) for script in host.scripts] == [
        f"service docker.service {way}" for way in ("stopped", "disabled", "masked", "masked and stopped")
    ]


def test_a_list_of_the_cases_changes_nothing(tmp_path: Path) -> None:
    host = FakeHost()
    _failed, text = judged(host, tmp_path, argparse.Namespace(only="", list=True, shard=""))
    assert host.scripts == []
    assert "\nhold libcuda1 lifted\n" in text


def without_hold(_host: dict[str, Any]) -> dict[str, Any]:
    host = sample.converged_host()
    if _host["held_packages"] != host["held_packages"]:
        drifting.BREAK["hold"](host, "libcuda1")
    return host


def with_package(_host: dict[str, Any]) -> dict[str, Any]:
    host = sample.converged_host()
    host["installed_packages"]["sl"] = "5.02-1 amd64"
    return host


@pytest.mark.parametrize(
    ("repair", "more", "only", "expected"),
    [
        (without_hold, [], "hold libcuda1 ", "the next run acts on nvidia_driver"),
        (with_package, [], "module nvidia_uvm", 'installed_packages.sl was null and is "5.02-1 amd64"'),
        (
            None,
            [{"task": "gpufleet.hosts.nvidia_driver : Restart", "action": "command", "result": "changed"}],
            "service docker.service stopped",
            "changes nvidia_driver without a prediction, in tasks ['Restart']",
        ),
    ],
)
def test_an_inexact_repair_fails(
    tmp_path: Path, repair: Any, more: list[dict[str, Any]], only: str, expected: str
) -> None:
    host = FakeHost(repair)
    host.more = more
    failed, text = judged(host, tmp_path, argparse.Namespace(only=only, list=False, shard=""))
    assert len(failed) == 1
    assert expected in text


def test_a_run_that_fails_does_not_end_the_test(tmp_path: Path) -> None:
    failures = ["package_transaction: no network"]

    def repair(_host: dict[str, Any]) -> dict[str, Any]:
        # The first run only checks that the host is converged.
        if _host["held_packages"] != sample.converged_host()["held_packages"] and failures:
            raise CannotTest(failures.pop())
        return sample.converged_host()

    host = FakeHost(repair)
    failed, text = judged(
        host, tmp_path, argparse.Namespace(only="^(hold libcuda1|service docker.service stopped)", list=False, shard="")
    )
    assert (failed, len(host.scripts)) == (["hold libcuda1 lifted"], 2)
    assert "package_transaction: no network" in text


def test_a_host_that_is_not_converged_is_refused(tmp_path: Path) -> None:
    host = FakeHost()
    host.state = only_driver()
    with pytest.raises(CannotTest, match="was not converged"):
        judged(host, tmp_path)


# --- states ---


def fresh() -> dict[str, Any]:
    return drift_items.without_packages(sample.converged_host())


def states(host: FakeHost, path: Path) -> tuple[list[str], str]:
    report = Report(path / "report.txt")
    drift_run.check_states(host, report)
    return report.failed, (path / "report.txt").read_text()


# Debian's real unit needs no drop-in. In the sample it does, which shows that a missing prediction is a fault.
DROP_IN = "does not predict the repair of file /etc/systemd/system/nvidia-persistenced.service.d/gpufleet.conf"


def test_a_new_host_and_one_with_only_the_driver_are_predicted(tmp_path: Path) -> None:
    host = FakeHost()
    host.state = fresh()
    failed, text = states(host, tmp_path)
    faults = [line.strip() for line in text.splitlines() if line.startswith(" " * 18)]
    assert (faults, failed) == ([DROP_IN], ["new host"]), text


def test_the_states_need_a_new_host(tmp_path: Path) -> None:
    with pytest.raises(CannotTest, match="fake is not new"):
        states(FakeHost(), tmp_path)


def test_a_new_file_without_an_item_is_a_fault() -> None:
    converged = sample.converged_host()
    path = "/etc/nvidia-container-runtime/config.toml"
    converged["files"][path] = {"exists": True, "content": "", "mode": "0644"}
    found = drift_run.forgotten(fresh(), converged, ITEMS)
    assert found == [f"{path} is new on the host, but no item of the drift test. Add it to tests/drift/items.py"]
    assert drift_run.forgotten(fresh(), sample.converged_host(), ITEMS) == []


# --- programs ---


def test_the_callback_records_plans_and_changed_tasks(tmp_path: Path) -> None:
    """Run ansible-playbook with a module in place of the plan."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library/gpu_host_plan.py").write_text(
        "from ansible.module_utils.basic import AnsibleModule\n"
        "module = AnsibleModule({'short': {'type': 'bool'}})\n"
        "host = {'host_text': '{\"uid\": 1}'} if module.params['short'] else {'host': {'uid': 0}}\n"
        "module.exit_json(**host, changes=[], acting=['verify'], reports={})\n"
    )
    callback = drift_run.HERE / "callback/drift_record.py"
    (tmp_path / "callback_plugins").mkdir()
    (tmp_path / "callback_plugins/drift_record.py").write_text(planned_roles.with_fakes(callback.read_text()))
    tasks = [
        {"name": "Plan", "gpu_host_plan": {}},
        {"name": "Plan of a converged host", "gpu_host_plan": {"short": True}},
        {"name": "Changed", "ansible.builtin.command": "true"},
        {"name": "Unchanged", "ansible.builtin.command": "true", "changed_when": False},
        {"name": "Skipped", "ansible.builtin.command": "true", "when": False},
        {"name": "Failed", "ansible.builtin.command": "false", "ignore_errors": True},
    ]
    play = [{"name": "Play", "hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    record = tmp_path / "record.jsonl"
    done = ansible_run.run(
        ["ansible-playbook", "-i", "localhost,", "-e", f"ansible_python_interpreter={sys.executable}", "play.yml"],
        env={**os.environ, "DRIFT_RECORD": str(record)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    entries = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(entry["task"], entry["result"]) for entry in entries] == [
        ("Plan", "ok"),
        ("Plan of a converged host", "ok"),
        ("Changed", "changed"),
        ("Failed", "failed"),
    ]
    assert entries[0]["plan"] == {"host": {"uid": 0}, "changes": [], "acting": ["verify"]}
    assert entries[1]["plan"] == {"host": {"uid": 1}, "changes": [], "acting": ["verify"]}
    assert entries[0]["host"] == "localhost"


def test_the_program_reports_a_missing_host(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("all: {hosts: {other: {}}}\n")
    options = ["--host", "missing", "--inventory", str(inventory), "--output", str(tmp_path)]
    argv = [sys.executable, str(drift_run.HERE / "run.py"), "items", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "drift: site.yml failed on missing" in done.stderr
