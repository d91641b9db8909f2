# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Markers of role nvidia_driver: files that make the next run repeat a step that failed or was interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import part as site_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run, declared
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform

ROLE = Path(__file__).resolve().parents[3] / "roles" / "nvidia_driver"
STATE_DIRECTORY = "/var/lib/gpufleet"
RECORD, UNVERIFIED = f"{STATE_DIRECTORY}/nvidia_driver.json", owned.DRIVER_UNVERIFIED_MARKER
INITRAMFS = owned.DRIVER_INITRAMFS_MARKER


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(name: str) -> list[dict[str, Any]]:
    return load(ROLE / "tasks" / name)


class Role:
    """The role's own tasks, run locally without root, with the state directory inside a test directory."""

    def __init__(self, folder: Path) -> None:
        """Copy the role's tasks and variables into the directory."""
        self.folder, self.state = folder, folder / "state"
        for part in ("tasks", "vars"):
            (folder / "role" / part).mkdir(parents=True)
        for name in (
            "files.yml",
            "initramfs.yml",
            "pending_step_marker.yml",
            "pending_step_marker_set.yml",
            "pending_step_marker_clear.yml",
        ):
            self.write(f"tasks/{name}", steps(name))
        (folder / "observe/tasks").mkdir(parents=True)
        for name in ("files.yml", "empty_directory.yml"):
            self.write(f"../observe/tasks/{name}", steps(f"../../observe/tasks/{name}"))
        self.write("vars/main.yml", load(ROLE / "vars/main.yml"))

    def write(self, name: str, content: Any) -> None:
        """Write a file of the role."""
        for step in content if isinstance(content, list) else []:
            for module in ("ansible.builtin.copy", "ansible.builtin.file"):
                for owner in ("owner", "group"):
                    step.get(module, {}).pop(owner, None)
        text = yaml.safe_dump(content).replace(STATE_DIRECTORY, str(self.state))
        (self.folder / "role" / name).write_text(text.replace("/var/cache/gpufleet", str(self.folder / "cache")))

    def run(self, tasks: list[dict], *, dry: bool = False, **values: Any) -> subprocess.CompletedProcess:
        """Run tasks as tasks of the role; `dry` enables check mode."""
        self.write("tasks/main.yml", tasks)
        book = {"hosts": "localhost", "gather_facts": False, "roles": [str(self.folder / "role")]}
        (self.folder / "play.yml").write_text(yaml.safe_dump([book]))
        values = {**values, "ansible_python_interpreter": sys.executable,
                  "ansible_remote_tmp": str(self.folder / "remote")}  # fmt: skip
        argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e",
                json.dumps(values).replace(STATE_DIRECTORY, str(self.state)), str(self.folder / "play.yml"),
                *(["--check"] if dry else [])]  # fmt: skip
        return ansible_run.run(argv)

    def state_files(self) -> list[str] | None:
        """Return the names of the state files; None if the state directory does not exist."""
        return sorted(path.name for path in self.state.iterdir()) if self.state.exists() else None


@pytest.fixture
def role(tmp_path: Path) -> Role:
    return Role(tmp_path)


def observed(*existing: str, reasons: tuple[bool, ...] = (), uid: int = 0) -> dict[str, Any]:
    """Return an observation with existing state files and with reboot reasons, each caused by the driver or not."""
    files = {path: {"exists": path in existing} for path in (RECORD, UNVERIFIED)}
    return {"files": files, "reboot_reasons": [{"driver": driver} for driver in reasons], "uid": uid}


# --- verification -------------------------------------------------------------------------------------------------

VERIFIED = [
    # check mode, plan has changes, existing markers, activate, reboot reasons, action of the plan, expected
    (False, True, (), True, (), "install", True),
    (False, False, (), True, (), "install", False),
    (False, False, (UNVERIFIED,), True, (), "install", True),
    (False, False, (UNVERIFIED,), "true", (), "adopt", True),
    (False, False, (UNVERIFIED,), True, (False,), "install", True),
    # The driver cannot be verified before the reboot. The next run verifies it.
    (False, False, (UNVERIFIED,), True, (True,), "install", False),
    (False, False, (UNVERIFIED,), "false", (), "install", False),
    (False, False, (UNVERIFIED,), True, (), "none", False),
    # Check mode predicts that the marker is cleared. It cannot verify a driver that it does not install.
    (True, False, (UNVERIFIED,), True, (), "install", True),
    (True, False, (), True, (), "install", False),
    (True, True, (UNVERIFIED,), True, (), "install", False),
]


def planned(monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], activate: Any, action: str) -> dict[str, Any]:
    """Return the plan of a host whose driver is as it should be."""
    monkeypatch.setattr(site_driver.driver_plan, "plan", lambda *_arguments, **_options: DriverPlan(action=action))
    reasons = [{**reason, "id": "driver", "text": "the driver was upgraded"} for reason in facts["reboot_reasons"]]
    there = host("debian-12", files=facts["files"], reboot_reasons=reasons)
    request = driver_request.read({"activate": activate})
    part = site_driver.present(there, request, {}, None, versions=None, streams=None, is_controller=False)
    # A verification is a reason to act, and the plan names it.
    assert part["plan"]["verifies"] is any("driver verification" in change for change in part["changes"])
    assert part["acts"] is bool(part["changes"])
    return part["plan"]


@pytest.mark.parametrize("dry", [False, True])
def test_a_failed_verification_is_repeated_even_without_other_changes(
    role: Role, monkeypatch: pytest.MonkeyPatch, dry: bool
) -> None:
    (verify,) = [task for task in steps("present.yml") if task.get("ansible.builtin.include_tasks") == "verify.yml"]
    del verify["ansible.builtin.include_tasks"]
    tasks = []
    cases = [case[1:] for case in VERIFIED if case[0] is dry]
    for number, (changes, existing, activate, reasons, action, _expected) in enumerate(cases):
        plan = planned(monkeypatch, observed(*existing, reasons=reasons), activate, action)
        facts = {"__nvidia_driver_has_changes": changes, "__nvidia_driver_plan": plan}
        task = {**verify, "ansible.builtin.debug": {"msg": f"<case {number}>"}}
        tasks += [{"ansible.builtin.set_fact": facts}, task]
    done = role.run(tasks, dry=dry)
    assert done.returncode == 0, done.stdout
    verified = [f"<case {number}>" in done.stdout for number in range(len(cases))]
    assert verified == [case[-1] for case in cases]


def verification(*failing: str) -> list[dict[str, Any]]:
    """Return the role's verification with one fake check, which fails with the given message."""
    (verify,) = steps("verify.yml")
    check: dict[str, Any] = {"name": "Check", "ansible.builtin.debug": {"msg": "checked"}}
    if failing:
        check = {"name": "Check", "ansible.builtin.fail": {"msg": failing[0]}}
    clear = verify["block"][-1]
    assert clear["vars"]["__nvidia_driver_marker_is_set"] is False
    return [{**verify, "block": [check, clear]}]


@pytest.mark.parametrize(("uid", "left"), [(0, ["nvidia_driver_unverified"]), (1000, None)])
def test_a_failed_verification_sets_the_marker_and_fails_the_run(role: Role, uid: int, left: list[str] | None) -> None:
    done = role.run(verification("GPU 3 failed"), gpufleet_host=observed(uid=uid), nvidia_driver_activate=True)
    assert "failed=1" in done.stdout
    last = done.stdout.partition("Fail with the error of the failed check")[2]
    assert "GPU 3 failed" in last, done.stdout
    assert role.state_files() == left


def test_a_verification_that_fails_again_changes_nothing(role: Role) -> None:
    role.state.mkdir()
    (role.state / "nvidia_driver_unverified").touch()
    done = role.run(verification("still"), gpufleet_host=observed(UNVERIFIED), nvidia_driver_activate=True)
    assert "changed=0" in done.stdout
    assert "failed=1" in done.stdout
    assert role.state_files() == ["nvidia_driver_unverified"]


@pytest.mark.parametrize(
    ("activate", "reasons", "uid", "left"),
    [
        (True, (), 0, []),
        (True, (False,), 0, []),
        (True, (True,), 0, ["nvidia_driver_unverified"]),
        (False, (), 0, ["nvidia_driver_unverified"]),
        (True, (), 1000, ["nvidia_driver_unverified"]),
    ],
)
def test_a_complete_verification_clears_the_marker(
    role: Role, activate: bool, reasons: tuple[bool, ...], uid: int, left: list[str]
) -> None:
    role.state.mkdir()
    for name in ("nvidia_driver.json", "nvidia_driver_unverified"):
        (role.state / name).touch()
    host_facts = observed(RECORD, UNVERIFIED, reasons=reasons, uid=uid)
    done = role.run(verification(), gpufleet_host=host_facts, nvidia_driver_activate=activate)
    assert role.state_files() == ["nvidia_driver.json", *left], done.stdout
    assert ("changed=0" in done.stdout) is bool(left)


def test_a_successful_first_verification_sets_no_marker(role: Role) -> None:
    done = role.run(verification(), gpufleet_host=observed(), nvidia_driver_activate=True)
    assert "changed=0" in done.stdout
    assert role.state_files() is None


def test_the_empty_state_directory_is_removed_with_the_last_marker(role: Role) -> None:
    role.run(verification("GPU 3 failed"), gpufleet_host=observed(), nvidia_driver_activate=True)
    done = role.run(verification(), gpufleet_host=observed(UNVERIFIED), nvidia_driver_activate=True)
    assert (done.returncode, role.state_files()) == (0, None), done.stdout


@pytest.mark.parametrize("path", [UNVERIFIED, INITRAMFS])
def test_removing_the_driver_removes_the_markers(path: str) -> None:
    assert path in declared.FILES
    host_facts = host("debian-12", files={path: {"exists": True, "content": ""}})
    removal = driver_removal.plan(host_facts, platform("debian-12"))
    assert (removal["acts"], removal["files"]) == (True, [path])
    # A marker is not a record, so the role does not claim existing packages as its own.
    assert removal["record"] is False


# --- initramfs ----------------------------------------------------------------------------------------------------


def todo(files: dict[Path, str], *initramfs: list[str]) -> dict[str, Any]:
    """Return a plan with files to write and commands that rebuild the initramfs."""
    items = [
        {"path": str(path), "content": content, "state": "present", "mode": "0644"} for path, content in files.items()
    ]
    return {"todo": {"files": items, "reload_udev": False, "initramfs": list(initramfs)}}


def test_a_failed_rebuild_is_repeated(role: Role) -> None:
    written, rebuilt = role.folder / "modprobe.conf", role.folder / "rebuilt"
    plan = todo({written: "blacklist nouveau\n"}, ["false"])
    done = role.run(steps("files.yml"), gpufleet_host=observed(), __nvidia_driver_plan=plan)
    assert (written.exists(), role.state_files()) == (True, ["nvidia_driver_initramfs"]), done.stdout
    plan = todo({}, ["touch", str(rebuilt)])
    done = role.run(steps("files.yml"), gpufleet_host=observed(), __nvidia_driver_plan=plan)
    assert (rebuilt.exists(), role.state_files()) == (True, None), done.stdout


def test_the_marker_is_set_before_the_file_is_written(role: Role) -> None:
    plan = todo({role.folder / "no such directory" / "modprobe.conf": "x"}, ["true"])
    done = role.run(steps("files.yml"), gpufleet_host=observed(), __nvidia_driver_plan=plan)
    assert "failed=1" in done.stdout
    assert role.state_files() == ["nvidia_driver_initramfs"]


@pytest.mark.parametrize("options", [{"dry": True}, {}])
def test_no_marker_is_set_without_a_rebuild(role: Role, options: dict) -> None:
    plan = todo({}, *([["true"]] if options else []))
    done = role.run(steps("files.yml"), gpufleet_host=observed(), __nvidia_driver_plan=plan, **options)
    assert (done.returncode, role.state_files()) == (0, None), done.stdout


def test_a_failed_rebuild_is_repeated_when_the_driver_is_removed(role: Role) -> None:
    role.state.mkdir()
    for name in ("nvidia_driver.json", "nvidia_driver_unverified"):
        (role.state / name).touch()
    tasks = steps("remove.yml")
    names = [task["name"] for task in tasks]
    tasks = tasks[names.index("Remove | Mark the initramfs as outdated") : -1]
    removal = {"files": [RECORD, UNVERIFIED], "reload_udev": False, "initramfs": [["false"]]}
    done = role.run(tasks, gpufleet_host=observed(RECORD), __nvidia_driver_removal=removal)
    assert "failed=1" in done.stdout
    assert role.state_files() == ["nvidia_driver_initramfs"], done.stdout
    removal = {"files": [INITRAMFS], "reload_udev": False, "initramfs": [["touch", str(role.folder / "rebuilt")]]}
    done = role.run(tasks, gpufleet_host=observed(), __nvidia_driver_removal=removal)
    assert ((role.folder / "rebuilt").exists(), role.state_files()) == (True, None), done.stdout
