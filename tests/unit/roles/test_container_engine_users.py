# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks of role container_engine for the users of Docker, with a fake gpasswd and a group file in a directory."""

from __future__ import annotations

import json
import os
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import docker_group, removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import read
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run
from ansible_collections.gpufleet.hosts.tests.unit.plugins.engine_samples import PLATFORMS, host, plan

TASKS = Path(__file__).resolve().parents[3] / "roles/container_engine/tasks"
CE = {"docker-ce": "5:28.5.1-1", "docker-ce-cli": "5:28.5.1-1", "containerd.io": "2.1.5"}
# Like the real program, it fails if the user is no member.
GPASSWD = """\
#!PYTHON
import sys
from pathlib import Path

file = Path("ROOT/etc/group")
verb, user, group = sys.argv[1:]
if user == "interrupted":
    sys.exit("killed")
lines = [line.split(":") for line in file.read_text().splitlines()]
entry = next(line for line in lines if line[0] == group)
members = [name for name in entry[3].split(",") if name]
if verb == "--delete":
    members.remove(user)
else:
    members.append(user)
entry[3] = ",".join(members)
file.write_text("".join(":".join(line) + "\\n" for line in lines))
"""


class Machine:
    """A host in a directory, with the role's own tasks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "etc").mkdir()
        (folder / "bin").mkdir()
        (folder / "etc/group").write_text("docker:x:991:carol\nwheel:x:10:alice\n")
        names = ("alice", "bob", "carol", "interrupted")
        (folder / "etc/passwd").write_text(
            "".join(f"{name}:x:1{place}:1{place}::/:\n" for place, name in enumerate(names))
        )
        program = folder / "bin/gpasswd"
        program.write_text(GPASSWD.replace("PYTHON", sys.executable).replace("ROOT", str(folder)))
        program.chmod(0o755)

    @property
    def record(self) -> Path:
        return self.folder / owned.ENGINE_USERS.lstrip("/")

    def seen(self, *users: str) -> dict[str, t.Any]:
        """Observe the host."""
        content = self.record.read_text() if self.record.exists() else None
        files = {owned.ENGINE_USERS: {"exists": content is not None, "content": content}}
        return host("el-9", CE, files=files, docker_group=docker_group.read(str(self.folder), users))

    def members(self) -> str:
        return (self.folder / "etc/group").read_text().splitlines()[0].rpartition(":")[2]

    def present(self, *users: str, dry: bool = False, fails: bool = False) -> str:
        return self.run("users.yml", plain(plan(self.seen(*users), users=list(users))), dry=dry, fails=fails)

    def absent(self, *, dry: bool = False) -> str:
        gone = removal.plan(t.cast("t.Any", self.seen()), read({"state": "absent"}), PLATFORMS)
        return self.run("users_absent.yml", plain(gone), dry=dry)

    def run(self, file: str, planned: dict[str, t.Any], *, dry: bool, fails: bool = False) -> str:
        """Run the tasks of a file. Return the output."""
        text = (TASKS / file).read_text(encoding="utf-8").replace("/var/lib/gpufleet", str(self.record.parent))
        text = text.replace("../../observe", str(TASKS.parents[1] / "observe"))
        play = {"hosts": "localhost", "gather_facts": False, "tasks": yaml.safe_load(text)}
        self.record.parent.parent.mkdir(parents=True, exist_ok=True)
        (self.folder / "play.yml").write_text(yaml.safe_dump([play]))
        values = {"__container_engine_plan": planned, "ansible_python_interpreter": sys.executable}
        values["__observe_directory"] = str(self.record.parent)
        argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", json.dumps(values)]
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        done = ansible_run.run([*argv, str(self.folder / "play.yml"), *(["--check"] if dry else [])], env=environment)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_users_are_added_once_and_only_these_are_removed(machine: Machine) -> None:
    assert "changed=" in machine.present("alice", "carol")
    assert machine.members() == "carol,alice"
    assert plan(machine.seen("alice", "carol"), users=["alice", "carol"]).users == []
    machine.present("bob")
    assert machine.members() == "carol,alice,bob"
    machine.absent()
    assert machine.members() == "carol"
    assert not machine.record.parent.exists()


def test_other_records_stay(machine: Machine) -> None:
    machine.present("alice")
    other = machine.record.parent / "container_engine.json"
    other.write_text("{}")
    machine.absent()
    assert (machine.record.exists(), other.exists()) == (False, True)


def test_check_mode_reports_a_change_and_makes_none(machine: Machine) -> None:
    assert "changed=1 " in machine.present("alice", dry=True)
    assert (machine.members(), machine.record.exists()) == ("carol", False)
    machine.present("alice")
    assert "changed=1 " in machine.absent(dry=True)
    assert (machine.members(), machine.record.exists()) == ("carol,alice", True)


def test_interrupted_run_leaves_no_user_that_absent_would_keep(machine: Machine) -> None:
    machine.present("alice", "interrupted", "bob", fails=True)
    assert machine.members().startswith("carol,alice")
    machine.absent()
    assert machine.members() == "carol"
