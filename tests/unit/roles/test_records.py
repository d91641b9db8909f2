# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the roles write down what came to a host, also where a run is cut off or fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host

ROLES = Path(__file__).resolve().parents[3] / "roles"
RECORDS = {"nvidia_driver": packages_record.DRIVER, "cuda_toolkit": packages_record.TOOLKIT}
LOOK = "gpufleet.hosts.gpu_host_info"


def load(role: str, name: str) -> list[dict[str, Any]]:
    return yaml.safe_load((ROLES / role / "tasks" / name).read_text(encoding="utf-8"))


def play(tmp_path: Path, role: str, tasks: list[dict], seen: dict, values: dict) -> Any:
    """Run tasks beside the role's that write down, on a host as it is `seen`; return what was said and the record."""
    folder, record = tmp_path / "role/tasks", tmp_path / "remembered/record.json"
    folder.mkdir(parents=True)
    for name in ("finish.yml", "record.yml"):
        text = (ROLES / role / "tasks" / name).read_text(encoding="utf-8").replace(RECORDS[role], str(record))
        steps = yaml.safe_load(text.replace("/var/lib/gpufleet", str(record.parent)))
        # Nobody is root, and nothing but the record is looked at.
        for step in steps:
            for module in ("ansible.builtin.copy", "ansible.builtin.file"):
                for owner in ("owner", "group"):
                    step.get(module, {}).pop(owner, None)
            if LOOK in step:
                step["ansible.builtin.set_fact"] = {step.pop("register"): {"host": "{{ host_now }}"}}
                del step[LOOK]
            if "ansible.builtin.include_role" in step:
                step["ansible.builtin.debug"] = {"msg": step.pop("ansible.builtin.include_role")["name"]}
        (folder / name).write_text(yaml.safe_dump(steps))
    (folder / "main.yml").write_text(yaml.safe_dump(tasks))
    book = {"hosts": "localhost", "gather_facts": False, "roles": [str(folder.parent)]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([book]))
    values = {**values, "host_now": seen, "ansible_python_interpreter": sys.executable,
              "ansible_remote_tmp": str(tmp_path / "remote")}  # fmt: skip
    argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", json.dumps(values), str(tmp_path / "play.yml")]
    environment = {**os.environ, "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local")}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    return done.stdout + done.stderr, json.loads(record.read_text()) if record.exists() else None


def cut_off(path: str) -> dict:
    there = host("debian-12")
    begun = packages_record.begin(there, path, ["vim"], asked=["asked=1.0"], key="EB")
    there["files"][path] = {"exists": True, "content": begun}
    return {**there, "package_names": ["vim", "asked", "dependency"]}


@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
def test_what_a_run_that_was_cut_off_brought_is_written_down(tmp_path: Path, role: str) -> None:
    tasks = load(role, {"nvidia_driver": "act.yml", "cuda_toolkit": "present.yml"}[role])
    (finish,) = [task for task in tasks if task.get("ansible.builtin.include_tasks") == "finish.yml"]
    plan = {"repository": None, "todo": {}, "steps": {"finish": True}, "finish": True, "packages": [], "key": None}
    said, record = play(tmp_path, role, [finish], cut_off(RECORDS[role]), {f"__{role}_plan": plan})
    assert record == {"files": {}, "key": "EB", "packages": ["asked"], "uncertain": ["dependency"]}, said
    assert "changed=2" in said


def test_what_the_first_of_two_steps_brought_is_written_down_where_the_next_fails(tmp_path: Path) -> None:
    there = host("debian-12")
    plan = {
        "repository": {"fingerprint": "EB"},
        "todo": {"prerequisites": ["epel-release"], "install": ["libcuda1"], "stream": None},
    }
    entry = {"after_header": "/etc/apt/sources.list", "before": "main", "after": "main contrib"}
    values = {
        "gpufleet_host": there,
        "__nvidia_driver_plan": plan,
        "__nvidia_driver_before": {"host": {**there, "package_names": ["vim"]}},
        "__nvidia_driver_components": {"diff": [entry]},
    }
    steps = load("nvidia_driver", "repositories.yml")
    steps[0]["block"] = [{"ansible.builtin.fail": {"msg": "no repository"}}]
    seen = {**there, "package_names": ["vim", "epel-release"]}
    said, record = play(tmp_path, "nvidia_driver", steps, seen, values)
    assert "no repository" in said
    files = {"/etc/apt/sources.list": {"before": "main", "after": "main contrib"}}
    assert record == {"files": files, "key": "EB", "packages": ["epel-release"]}, said


def test_the_host_is_written_down_before_repositories_change() -> None:
    includes = [str(task.get("ansible.builtin.include_tasks")) for task in load("nvidia_driver", "packages.yml")]
    assert includes.index("record.yml") < includes.index("repositories.yml")
    assert "repository-" in load("nvidia_driver", "repositories.yml")[0]["block"][0]["ansible.builtin.include_tasks"]


@pytest.mark.parametrize("rc", [0, 1])
def test_the_version_of_an_installer_is_written_down_before_and_by_what_came_of_it(tmp_path: Path, rc: int) -> None:
    tasks = [task for task in load("nvidia_driver", "runfile.yml") if "Runfile | Write down" in task["name"]]
    before, after = tasks
    before["block"][0] = {"ansible.builtin.set_fact": {"__nvidia_driver_after": {"host": "{{ host_now }}"}}}
    begun = host("debian-12", driver={"library": "580.95.05", "runfile": True})
    begun["files"][packages_record.DRIVER] = {
        "exists": True,
        "content": packages_record.begin_runfile(host(), packages_record.DRIVER, "580.95.05"),
    }
    plan = {"version": "580.95.05", "repository": None, "todo": {}}
    values = {"__nvidia_driver_plan": plan, "__nvidia_driver_installer": {"rc": rc}}
    said, record = play(tmp_path / "1", "nvidia_driver", [before], host("debian-12"), values)
    assert record == {"packages": [], "files": {}, "pending_runfile": "580.95.05"}, said
    seen = {**begun, "package_names": ["vim"]}
    said, record = play(tmp_path / "2", "nvidia_driver", [after], seen, values)
    state = "pending_runfile" if rc else "runfile"
    assert record == {"packages": [], "files": {}, state: "580.95.05"}, said


@pytest.mark.parametrize("hold", [True, False])
def test_holds_beside_an_adopted_driver_are_written_down_before_they_are_made(tmp_path: Path, hold: bool) -> None:
    there = host("debian-12")
    begun = packages_record.begin(there, packages_record.DRIVER, ["vim"], asked=["dkms"])
    there["files"][packages_record.DRIVER] = {"exists": True, "content": begun}
    made, left = (["libcuda1"], []) if hold else ([], ["libcuda1"])
    holds = {"before": ["libcuda1"], "after": ["nvidia-smi"] if hold else []}
    plan = {"repository": None, "todo": {"hold": made, "unhold": left, "holds": holds}}
    tasks = load("nvidia_driver", "hold.yml")
    seen = []
    for task in tasks:
        if LOOK in task:
            task["ansible.builtin.set_fact"] = {task.pop("register"): {"host": "{{ host_now }}"}}
            del task[LOOK]
        if "gpufleet.hosts.package_hold" in task:
            seen.append(task.pop("gpufleet.hosts.package_hold").get("state", "held"))
            path = tmp_path / "remembered/record.json"
            task["ansible.builtin.assert"] = {"that": f"(lookup('file', '{path}') | from_json).holds == ['libcuda1']"}
    # One that is let go of is another version's, and would pass for the new one.
    assert seen == ["released", "held"]
    said, record = play(tmp_path, "nvidia_driver", tasks, there, {"__nvidia_driver_plan": plan})
    assert "failed=0" in said, said
    kept = {"asked": ["dkms"], "files": {}, "packages": [], "pending": ["vim"]}
    assert record == {**kept, **({"holds": ["nvidia-smi"]} if hold else {})}, said


@pytest.mark.parametrize(
    ("before", "expected"), [("nvidia-driver:570", ["reset", "enable"]), (None, ["reset", "file"])]
)
def test_a_module_stream_is_left_though_no_package_came(before: str | None, expected: list[str]) -> None:
    removal = {"packages": [], "leftovers": [], "stream": {"module": "nvidia-driver", "before": before}}
    jinja = NativeEnvironment()
    jinja.tests.update(truthy=bool, falsy=lambda value: not value)

    def is_due(task: dict[str, Any]) -> bool:
        conditions = task["when"] if isinstance(task["when"], list) else [task["when"]]
        known = {"__nvidia_driver_removal": removal}
        return all(jinja.from_string(f"{{{{ {condition} }}}}").render(known) for condition in conditions)

    (packages,) = [task for task in load("nvidia_driver", "remove.yml") if "remove-" in str(task)]
    assert is_due(packages)
    tasks = [task for task in load("nvidia_driver", "remove-dnf.yml") if "removal.stream." in str(task)]
    done = [
        task.get("ansible.builtin.command", {"argv": ["", "", "", "file"]})["argv"][3] for task in tasks if is_due(task)
    ]
    assert done == expected


@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
@pytest.mark.parametrize(
    ("rc", "stderr", "fails"),
    [
        (0, "", False),
        (1, "error: Failed dependencies:\n\tx is needed by (installed) y-1-1.x86_64", False),
        (100, "E: Unmet dependencies. Try 'apt --fix-broken install'", True),
        (1, "error: can't create transaction lock", True),
    ],
)
def test_a_question_that_got_no_answer_ends_the_removal(role: str, rc: int, stderr: str, fails: bool) -> None:
    first, *_others = load(role, "remove.yml")
    assert "--simulate" in str(first["ansible.builtin.command"])
    result = {f"__{role}_simulated": {"rc": rc, "stderr": stderr}}
    assert NativeEnvironment().from_string(f"{{{{ {first['failed_when']} }}}}").render(result) is fails
