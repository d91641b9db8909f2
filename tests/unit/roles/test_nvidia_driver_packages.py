# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How role nvidia_driver calls module package_transaction, and what it does if the module fails."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import (
    DriverPlan,
    DriverTodo,
    DriverTransaction,
)
from ansible_collections.gpufleet.hosts.plugins.modules import package_transaction
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

ROLE = Path(__file__).resolve().parents[3] / "roles" / "nvidia_driver"
# Stands for package_transaction and systemd_service: records the call, and returns the next result.
FAKE = """\
import json, pathlib
from ansible.plugins.action import ActionBase
class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        folder = pathlib.Path("FOLDER")
        args = {**self._task.args, "check_mode": bool(self._task.check_mode)}
        with (folder / "calls").open("a") as file:
            file.write(json.dumps(args) + "\\n")
        if "record" not in args:
            service = folder / "service"
            return json.loads(service.read_text()) if service.exists() else {"changed": True}
        results = json.loads((folder / "results").read_text())
        (folder / "results").write_text(json.dumps(results[1:]))
        return results[0]
"""
HOST = {
    "uid": 0,
    "accelerators": {"nvidia": {"driver": {"loaded": "580.82.07"}}},
    "dkms": [],
    "services": {"nvidia-fabricmanager.service": {"load_state": "loaded"}},
    "files": {"/var/lib/gpufleet/nvidia_driver.json": {"exists": True}},
}
PLUGIN = "python3-dnf-plugin-versionlock"


class Role:
    """The role's own tasks, run locally with a given plan. Nothing on this machine changes."""

    def __init__(self, folder: Path) -> None:
        """Copy the role."""
        self.folder = folder
        shutil.copytree(ROLE, folder / "roles/role")
        for path in (folder / "roles/role/tasks").iterdir():
            text = path.read_text(encoding="utf-8")
            for module in ("gpufleet.hosts.package_transaction", "ansible.builtin.systemd_service"):
                text = text.replace(module, "fake_module")
            text = text.replace("gpufleet.hosts.observe", "observe").replace("/var/", f"{folder}/var/")
            path.write_text(text, encoding="utf-8")
        (folder / "roles/role/tasks/observe_again.yml").write_text("---\n[]\n")
        (folder / "roles/observe/tasks").mkdir(parents=True)
        (folder / "action_plugins").mkdir()
        (folder / "action_plugins/fake_module.py").write_text(FAKE.replace("FOLDER", str(folder)))

    def run(self, tasks: str, *results: dict, observed: dict | None = None, dry: bool = False, **values: Any) -> str:
        """Run a task file of the role. Return the last message of a failed task, or an empty text."""
        (self.folder / "results").write_text(json.dumps(results))
        seen = [{"ansible.builtin.set_fact": {"gpufleet_host": {**HOST, **(observed or {})}}}]
        (self.folder / "roles/observe/tasks/main.yml").write_text(json.dumps(seen))
        tasks_of_play = [
            # As a fact, role observe can replace it.
            {"ansible.builtin.set_fact": {"gpufleet_host": HOST}},
            {"ansible.builtin.include_role": {"name": "role", "tasks_from": tasks}},
        ]
        book = {"hosts": "localhost", "gather_facts": False, "tasks": tasks_of_play}
        (self.folder / "play.yml").write_text(json.dumps([book]))
        values = {"nvidia_driver_lock_timeout": 77, "nvidia_driver_download_timeout": 99,
                  "ansible_python_interpreter": sys.executable,
                  "ansible_remote_tmp": str(self.folder / "remote"), **values}  # fmt: skip
        argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", json.dumps(values),
                str(self.folder / "play.yml"), *(["--check"] if dry else [])]  # fmt: skip
        environment = {**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
        done = ansible_run.run(argv, env=environment)
        self.output = done.stdout + done.stderr
        return self.output.rpartition('"msg": ')[2] if done.returncode else ""

    def calls(self) -> list[dict[str, Any]]:
        """Return the options of all calls, and whether they ran in check mode."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def role(tmp_path: Path) -> Role:
    return Role(tmp_path)


WORK = DriverTransaction(
    install=["libcuda1=580.82.07-1"],
    hold=["libcuda1"],
    files=[{"path": "/etc/yum.repos.d/cuda.repo", "state": "absent", "content": "", "mode": "0644"}],
)


def planned(*prerequisites: str, services: tuple[str, ...] = (), hint: str | None = None) -> dict[str, Any]:
    todo = DriverTodo(prerequisites=list(prerequisites), transaction=WORK)
    plan = DriverPlan(todo=todo, hold_needs=[PLUGIN], services=list(services), prerequisites_hint=hint)
    return dataclasses.asdict(plan)


DONE = {"changed": True, "kept": []}


def test_prerequisites_come_first_and_all_options_reach_the_module(role: Role) -> None:
    assert role.run("packages.yml", DONE, DONE, __nvidia_driver_plan=planned("epel-release", PLUGIN)) == "", role.output
    first, second = role.calls()
    assert first["install"] == ["epel-release", PLUGIN]
    assert "hold" not in first
    assert {name: second[name] for name in dataclasses.asdict(WORK)} == dataclasses.asdict(WORK)
    assert {one["record"] for one in (first, second)} == {"nvidia_driver"}
    known = {*package_transaction.LISTS, "record", "state", "may_upgrade", "repositories", "files", "lock_timeout"}
    known.add("download_timeout")
    assert {*first, *second} - {"check_mode"} <= known


@pytest.mark.parametrize("again", [True, False])
def test_repository_that_the_prerequisites_add_is_queried_before_the_driver_is_installed(
    role: Role, again: bool
) -> None:
    (role.folder / "roles/observe/tasks/plan.yml").write_text(json.dumps([{"fake_module": {"record": "plan"}}]))
    plan = planned("nvidia-release")
    plan["todo"]["plans_again"] = again
    assert role.run("packages.yml", DONE, DONE, DONE, __nvidia_driver_plan=plan) == "", role.output
    order = [call.get("install", "plan") for call in role.calls()]
    assert order == [["nvidia-release"], *(["plan"] if again else []), WORK.install]


@pytest.mark.parametrize(
    ("prerequisite", "hint", "words"),
    [
        ("epel-release", None, "The driver packages need these packages. Enable the repository that contains them."),
        ("epel-release", "Install it from URL.", "The driver packages need these packages. Install it from URL."),
        (PLUGIN, "Install it from URL.", "set nvidia_driver_hold to false"),
    ],
)
def test_missing_prerequisites_are_explained(role: Role, prerequisite: str, hint: str | None, words: str) -> None:
    message = role.run("packages.yml", {"failed": True, "msg": "No such package."},
                       __nvidia_driver_plan=planned(prerequisite, hint=hint))  # fmt: skip
    assert f"{prerequisite} could not be installed: No such package." in message, role.output
    assert words in message
    assert len(role.calls()) == 1


@pytest.mark.parametrize(
    ("prerequisite", "install"), [("epel-release", ["epel-release"]), (PLUGIN, [*WORK.install, PLUGIN])]
)
def test_check_mode_simulates_all_packages_that_it_can_find_at_once(
    role: Role, prerequisite: str, install: list[str]
) -> None:
    assert role.run("packages.yml", DONE, dry=True, __nvidia_driver_plan=planned(prerequisite)) == ""
    assert [(call["check_mode"], call["install"]) for call in role.calls()] == [(True, install)], role.output


def test_a_failed_transaction_starts_the_services_and_explains_failed_builds(role: Role) -> None:
    failure = {"kernel": "6.1.0-47-amd64", "log": "/var/lib/dkms/make.log", "errors": ["no member named x"]}
    unit = "nvidia-fabricmanager.service"
    observed = {"dkms": [{"failure": failure}]}
    (role.folder / "service").write_text('{"failed": true, "msg": "Unable to start service."}')
    message = role.run("packages.yml", {"failed": True, "msg": "apt failed."}, observed=observed,
                       __nvidia_driver_plan=planned(services=(unit, "nvidia-imex.service")))  # fmt: skip
    # The cause comes first.
    assert message.startswith('"DKMS could not build the kernel modules for kernel 6.1.0-47-amd64: no member named x')
    assert "boot a kernel that the driver supports. apt failed. Unable to start service." in message, role.output
    assert [call["name"] for call in role.calls()[1:]] == [unit], role.output


REMOVAL = {
    "record": True,
    "packages": ["libcuda1"],
    "keep": ["~^linux-image-"],
    "together_with": [],
    "services": ["nvidia-persistenced.service"],
    "disable": [],
    "unload": [],
    "runfile": [],
    "initramfs": [],
    "files": [],
    "reload_udev": False,
}


def test_packages_are_removed_after_the_services_stop(role: Role) -> None:
    assert role.run("remove.yml", DONE, DONE, __nvidia_driver_removal=REMOVAL) == "", role.output
    calls = role.calls()
    assert [call.get("record", call.get("name")) for call in calls] == ["nvidia-persistenced.service", "nvidia_driver"]
    assert (calls[1]["state"], calls[1]["remove"], calls[1]["keep"]) == ("absent", ["libcuda1"], ["~^linux-image-"])
    assert "changed=2 " in role.output


def test_the_uninstaller_runs_while_its_tools_are_installed(role: Role) -> None:
    # It needs dkms, which the transaction removes.
    before = role.folder / "before"
    removal = {**REMOVAL, "runfile": ["cp", str(role.folder / "calls"), str(before)]}
    assert role.run("remove.yml", DONE, DONE, __nvidia_driver_removal=removal) == "", role.output
    assert len(before.read_text().splitlines()) == 1
    assert [call.get("record", call.get("name")) for call in role.calls()][1:] == ["nvidia_driver"]


def test_a_failed_uninstaller_stops_the_removal_of_its_tools(role: Role) -> None:
    removal = {**REMOVAL, "services": [], "runfile": ["false"]}
    message = role.run("remove.yml", DONE, __nvidia_driver_removal=removal)
    assert "'false' failed with code 1" in message, role.output
    assert role.calls() == []


def test_without_a_record_no_packages_are_removed(role: Role) -> None:
    removal = {**REMOVAL, "record": False, "services": []}
    assert role.run("remove.yml", __nvidia_driver_removal=removal) == "", role.output
    assert role.calls() == []
