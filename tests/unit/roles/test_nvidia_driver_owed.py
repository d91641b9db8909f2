# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What role nvidia_driver remembers while it acts, so that a run that failed or was cut off is made up for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import config_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import removal as driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import observation
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform

ROLE = Path(__file__).resolve().parents[3] / "roles" / "nvidia_driver"
MEMORY = "/var/lib/gpufleet"
RECORD, UNVERIFIED = f"{MEMORY}/nvidia_driver.json", config_files.UNVERIFIED_FILE
INITRAMFS = config_files.INITRAMFS_FILE


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(name: str) -> list[dict[str, Any]]:
    return load(ROLE / "tasks" / name)


class Role:
    """The role's own tasks on this machine, with what it remembers in a directory of the test's, and nobody root."""

    def __init__(self, folder: Path) -> None:
        """Put the role's tasks and variables there."""
        self.folder, self.memory = folder, folder / "memory"
        for part in ("tasks", "vars"):
            (folder / "role" / part).mkdir(parents=True)
        for name in ("files.yml", "forget.yml", "mark.yml"):
            self.write(f"tasks/{name}", steps(name))
        self.write("vars/main.yml", load(ROLE / "vars/main.yml"))

    def write(self, name: str, content: Any) -> None:
        """Write a file of the role."""
        for step in content if isinstance(content, list) else []:
            for module in ("ansible.builtin.copy", "ansible.builtin.file"):
                for owner in ("owner", "group"):
                    step.get(module, {}).pop(owner, None)
        text = yaml.safe_dump(content).replace(MEMORY, str(self.memory))
        (self.folder / "role" / name).write_text(text.replace("/var/cache/gpufleet", str(self.folder / "cache")))

    def run(self, tasks: list[dict], *, dry: bool = False, **values: Any) -> subprocess.CompletedProcess:
        """Run tasks as the role's, or in check mode."""
        self.write("tasks/main.yml", tasks)
        book = {"hosts": "localhost", "gather_facts": False, "roles": [str(self.folder / "role")]}
        (self.folder / "play.yml").write_text(yaml.safe_dump([book]))
        values = {**values, "ansible_python_interpreter": sys.executable,
                  "ansible_remote_tmp": str(self.folder / "remote")}  # fmt: skip
        argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e",
                json.dumps(values).replace(MEMORY, str(self.memory)), str(self.folder / "play.yml"),
                *(["--check"] if dry else [])]  # fmt: skip
        environment = {**os.environ, "ANSIBLE_LOCAL_TEMP": str(self.folder / "local")}
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)

    def remembered(self) -> list[str] | None:
        """Name what is remembered; None where not even the directory is there."""
        return sorted(path.name for path in self.memory.iterdir()) if self.memory.exists() else None


@pytest.fixture
def role(tmp_path: Path) -> Role:
    return Role(tmp_path)


def look(*there: str, reasons: tuple[bool, ...] = (), uid: int = 0) -> dict[str, Any]:
    """Describe a host by what it remembers and whether the driver is owed a reboot."""
    files = {path: {"exists": path in there} for path in (RECORD, UNVERIFIED)}
    return {"files": files, "reboot_reasons": [{"driver": driver} for driver in reasons], "uid": uid}


# --- what has to be verified --------------------------------------------------------------------------------------

VERIFIED = [
    # check mode, acts, what is remembered, activate, reboots that are owed, the plan's action
    (False, True, (), True, (), "install", True),
    (False, False, (), True, (), "install", False),
    (False, False, (UNVERIFIED,), True, (), "install", True),
    (False, False, (UNVERIFIED,), "true", (), "adopt", True),
    (False, False, (UNVERIFIED,), True, (False,), "install", True),
    # The driver would not answer before the reboot, and the run after that asks.
    (False, False, (UNVERIFIED,), True, (True,), "install", False),
    (False, False, (UNVERIFIED,), "false", (), "install", False),
    (False, False, (UNVERIFIED,), True, (), "none", False),
    # A dry run foretells what the run would forget. What it would install, it cannot ask.
    (True, False, (UNVERIFIED,), True, (), "install", True),
    (True, False, (), True, (), "install", False),
    (True, True, (UNVERIFIED,), True, (), "install", False),
]


@pytest.mark.parametrize("dry", [False, True])
def test_what_has_not_passed_is_verified_again_though_nothing_is_to_be_done(role: Role, dry: bool) -> None:
    (verify,) = [task for task in steps("present.yml") if task.get("ansible.builtin.include_tasks") == "verify.yml"]
    del verify["ansible.builtin.include_tasks"]
    tasks = []
    cases = [case[1:] for case in VERIFIED if case[0] is dry]
    for number, (acts, there, activate, reasons, action, _due) in enumerate(cases):
        seen = {"gpufleet_host": look(*there, reasons=reasons), "__nvidia_driver_acts": acts,
                "nvidia_driver_activate": activate, "__nvidia_driver_plan": {"action": action}}  # fmt: skip
        task = {**verify, "ansible.builtin.debug": {"msg": f"<case {number}>"}}
        tasks += [{"ansible.builtin.set_fact": seen}, task]
    done = role.run(tasks, dry=dry)
    assert done.returncode == 0, done.stdout
    due = [f"<case {number}>" in done.stdout for number in range(len(cases))]
    assert due == [case[-1] for case in cases]


def verification(*failing: str) -> list[dict[str, Any]]:
    """Return the role's verification, with nothing asked that would need a host, and one answer that fails."""
    (verify,) = steps("verify.yml")
    answer: dict[str, Any] = {"name": "Ask", "ansible.builtin.debug": {"msg": "asked"}}
    if failing:
        answer = {"name": "Ask", "ansible.builtin.fail": {"msg": failing[0]}}
    forget = verify["block"][-1]
    assert forget["ansible.builtin.include_tasks"] == "forget.yml"
    return [{**verify, "block": [answer, forget]}]


@pytest.mark.parametrize(("uid", "left"), [(0, ["nvidia_driver_unverified"]), (1000, None)])
def test_what_failed_is_remembered_and_said(role: Role, uid: int, left: list[str] | None) -> None:
    done = role.run(verification("GPU 3 stays outside"), gpufleet_host=look(uid=uid), nvidia_driver_activate=True)
    assert "failed=1" in done.stdout
    last = done.stdout.partition("Say what has not passed")[2]
    assert "GPU 3 stays outside" in last, done.stdout
    assert role.remembered() == left


def test_what_failed_again_changes_nothing(role: Role) -> None:
    role.memory.mkdir()
    (role.memory / "nvidia_driver_unverified").touch()
    done = role.run(verification("still"), gpufleet_host=look(UNVERIFIED), nvidia_driver_activate=True)
    assert "changed=0" in done.stdout
    assert "failed=1" in done.stdout
    assert role.remembered() == ["nvidia_driver_unverified"]


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
def test_it_is_forgotten_when_all_has_been_asked(
    role: Role, activate: bool, reasons: tuple[bool, ...], uid: int, left: list[str]
) -> None:
    role.memory.mkdir()
    for name in ("nvidia_driver.json", "nvidia_driver_unverified"):
        (role.memory / name).touch()
    seen = look(RECORD, UNVERIFIED, reasons=reasons, uid=uid)
    done = role.run(verification(), gpufleet_host=seen, nvidia_driver_activate=activate)
    assert role.remembered() == ["nvidia_driver.json", *left], done.stdout
    assert ("changed=0" in done.stdout) is bool(left)


def test_a_run_that_passes_at_once_remembers_nothing(role: Role) -> None:
    done = role.run(verification(), gpufleet_host=look(), nvidia_driver_activate=True)
    assert "changed=0" in done.stdout
    assert role.remembered() is None


def test_where_nothing_else_is_remembered_no_directory_is_left(role: Role) -> None:
    role.run(verification("GPU 3 stays outside"), gpufleet_host=look(), nvidia_driver_activate=True)
    done = role.run(verification(), gpufleet_host=look(UNVERIFIED), nvidia_driver_activate=True)
    assert (done.returncode, role.remembered()) == (0, None), done.stdout


@pytest.mark.parametrize("path", [UNVERIFIED, INITRAMFS])
def test_nothing_of_it_stays_where_the_driver_is_taken_back(path: str) -> None:
    assert path in observation.FILES
    there = host("debian-12", files={path: {"exists": True, "content": ""}})
    removal = driver_removal.plan(there, platform("debian-12"))
    assert (removal["acts"], removal["files"]) == (True, [path])
    # It is no record, from which it would follow that locks are the role's.
    assert removal["unhold"] == []


# --- what the kernels start from ----------------------------------------------------------------------------------


def todo(files: dict[Path, str], *initramfs: list[str]) -> dict[str, Any]:
    """Plan files to write, and commands that rebuild."""
    items = [{"path": str(path), "content": content, "state": "present"} for path, content in files.items()]
    return {"todo": {"files": items, "reload_udev": False, "initramfs": list(initramfs)}}


def test_a_rebuild_that_failed_is_made_up_for(role: Role) -> None:
    written, rebuilt = role.folder / "modprobe.conf", role.folder / "rebuilt"
    plan = todo({written: "blacklist nouveau\n"}, ["false"])
    done = role.run(steps("files.yml"), gpufleet_host=look(), __nvidia_driver_plan=plan)
    assert (written.exists(), role.remembered()) == (True, ["nvidia_driver_initramfs"]), done.stdout
    plan = todo({}, ["touch", str(rebuilt)])
    done = role.run(steps("files.yml"), gpufleet_host=look(), __nvidia_driver_plan=plan)
    assert (rebuilt.exists(), role.remembered()) == (True, None), done.stdout


def test_it_is_remembered_before_the_file_is_touched(role: Role) -> None:
    plan = todo({role.folder / "no such directory" / "modprobe.conf": "x"}, ["true"])
    done = role.run(steps("files.yml"), gpufleet_host=look(), __nvidia_driver_plan=plan)
    assert "failed=1" in done.stdout
    assert role.remembered() == ["nvidia_driver_initramfs"]


@pytest.mark.parametrize("options", [{"dry": True}, {"__nvidia_driver_files": []}, {}])
def test_nothing_is_remembered_where_nothing_is_rebuilt(role: Role, options: dict) -> None:
    plan = todo({}, *([["true"]] if options else []))
    done = role.run(steps("files.yml"), gpufleet_host=look(), __nvidia_driver_plan=plan, **options)
    assert (done.returncode, role.remembered()) == (0, None), done.stdout


def test_a_rebuild_that_failed_is_made_up_for_where_the_driver_is_taken_back(role: Role) -> None:
    role.memory.mkdir()
    for name in ("nvidia_driver.json", "nvidia_driver_unverified"):
        (role.memory / name).touch()
    tasks = steps("remove.yml")
    names = [task["name"] for task in tasks]
    tasks = tasks[names.index("Remove | Remember that the kernels start with what is about to go") : -1]
    removal = {"files": [RECORD, UNVERIFIED], "reload_udev": False, "initramfs": [["false"]]}
    done = role.run(tasks, gpufleet_host=look(RECORD), __nvidia_driver_removal=removal)
    assert "failed=1" in done.stdout
    assert role.remembered() == ["nvidia_driver_initramfs"], done.stdout
    removal = {"files": [INITRAMFS], "reload_udev": False, "initramfs": [["touch", str(role.folder / "rebuilt")]]}
    done = role.run(tasks, gpufleet_host=look(), __nvidia_driver_removal=removal)
    assert ((role.folder / "rebuilt").exists(), role.remembered()) == (True, None), done.stdout
