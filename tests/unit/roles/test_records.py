# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the roles record installed packages, also when a run fails or is interrupted."""

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
OBSERVE = "gpufleet.hosts.gpu_host_info"
RECORD_OUTCOME = {"nvidia_driver": "record_outcome.yml", "cuda_toolkit": "finish.yml"}


def load(role: str, name: str) -> list[dict[str, Any]]:
    return yaml.safe_load((ROLES / role / "tasks" / name).read_text(encoding="utf-8"))


def play(tmp_path: Path, role: str, tasks: list[dict], observed: dict, values: dict) -> Any:
    """Run tasks with the role's own recording tasks on an `observed` host; return the output and the record."""
    folder, record = tmp_path / "role/tasks", tmp_path / "remembered/record.json"
    folder.mkdir(parents=True)
    for name in (RECORD_OUTCOME[role], "record.yml"):
        text = (ROLES / role / "tasks" / name).read_text(encoding="utf-8").replace(RECORDS[role], str(record))
        steps = yaml.safe_load(text.replace("/var/lib/gpufleet", str(record.parent)))
        # The test does not run as root and uses a given observation.
        for step in steps:
            for module in ("ansible.builtin.copy", "ansible.builtin.file"):
                for owner in ("owner", "group"):
                    step.get(module, {}).pop(owner, None)
            if OBSERVE in step:
                step["ansible.builtin.set_fact"] = {step.pop("register"): {"host": "{{ host_now }}"}}
                del step[OBSERVE]
            if "ansible.builtin.include_role" in step:
                step["ansible.builtin.debug"] = {"msg": step.pop("ansible.builtin.include_role")["name"]}
        (folder / name).write_text(yaml.safe_dump(steps))
    (folder / "main.yml").write_text(yaml.safe_dump(tasks))
    book = {"hosts": "localhost", "gather_facts": False, "roles": [str(folder.parent)]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([book]))
    values = {**values, "host_now": observed, "ansible_python_interpreter": sys.executable,
              "ansible_remote_tmp": str(tmp_path / "remote")}  # fmt: skip
    argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", json.dumps(values), str(tmp_path / "play.yml")]
    environment = {**os.environ, "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local")}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    return done.stdout + done.stderr, json.loads(record.read_text()) if record.exists() else None


def interrupted(path: str) -> dict:
    observed = host("debian-12")
    begun = packages_record.begin(observed, path, ["vim"], asked=["asked=1.0"], key="EB")
    observed["files"][path] = {"exists": True, "content": begun}
    return {**observed, "installed_packages": dict.fromkeys(["vim", "asked", "dependency"], "1 all")}


@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
def test_packages_of_an_interrupted_run_are_recorded(tmp_path: Path, role: str) -> None:
    tasks = load(role, {"nvidia_driver": "apply.yml", "cuda_toolkit": "present.yml"}[role])
    (task,) = [task for task in tasks if task.get("ansible.builtin.include_tasks") == RECORD_OUTCOME[role]]
    plan = {"repository": None, "todo": {}, "steps": {"finish": True}, "finish": True, "packages": [], "key": None}
    output, record = play(tmp_path, role, [task], interrupted(RECORDS[role]), {f"__{role}_plan": plan})
    assert record == {"files": {}, "key": "EB", "packages": ["asked"], "uncertain": ["dependency"]}, output
    assert "changed=2" in output


def test_packages_of_the_first_step_are_recorded_when_the_second_step_fails(tmp_path: Path) -> None:
    before = host("debian-12")
    plan = {
        "repository": {"fingerprint": "EB"},
        "todo": {"prerequisites": ["epel-release"], "install": ["libcuda1"], "stream": None},
    }
    entry = {"after_header": "/etc/apt/sources.list", "before": "main", "after": "main contrib"}
    values = {
        "gpufleet_host": before,
        "__nvidia_driver_plan": plan,
        "__nvidia_driver_before": {"host": {**before, "installed_packages": dict.fromkeys(["vim"], "1 all")}},
        "__nvidia_driver_components": {"diff": [entry]},
    }
    steps = load("nvidia_driver", "repositories.yml")
    steps[0]["block"] = [{"ansible.builtin.fail": {"msg": "no repository"}}]
    after = {**before, "installed_packages": dict.fromkeys(["vim", "epel-release"], "1 all")}
    output, record = play(tmp_path, "nvidia_driver", steps, after, values)
    assert "no repository" in output
    files = {"/etc/apt/sources.list": {"before": "main", "after": "main contrib"}}
    assert record == {"files": files, "key": "EB", "packages": ["epel-release"]}, output


@pytest.mark.parametrize("rc", [0, 1])
def test_the_version_of_the_installer_is_recorded_before_and_after_its_run(tmp_path: Path, rc: int) -> None:
    tasks = [task for task in load("nvidia_driver", "run_installer.yml") if "Runfile | Record" in task["name"]]
    before, after = tasks
    before["block"][0] = {"ansible.builtin.set_fact": {"__nvidia_driver_after": {"host": "{{ host_now }}"}}}
    begun = host("debian-12", driver={"library": "580.95.05", "runfile": True})
    begun["files"][packages_record.DRIVER] = {
        "exists": True,
        "content": packages_record.begin_runfile(host(), packages_record.DRIVER, "580.95.05"),
    }
    plan = {"version": "580.95.05", "repository": None, "todo": {}}
    values = {"__nvidia_driver_plan": plan, "__nvidia_driver_installer": {"rc": rc}}
    output, record = play(tmp_path / "1", "nvidia_driver", [before], host("debian-12"), values)
    assert record == {"packages": [], "files": {}, "pending_runfile": "580.95.05"}, output
    observed = {**begun, "installed_packages": dict.fromkeys(["vim"], "1 all")}
    output, record = play(tmp_path / "2", "nvidia_driver", [after], observed, values)
    state = "pending_runfile" if rc else "runfile"
    assert record == {"packages": [], "files": {}, state: "580.95.05"}, output


@pytest.mark.parametrize("hold", [True, False])
def test_holds_on_an_adopted_driver_are_recorded_before_they_are_set(tmp_path: Path, hold: bool) -> None:
    observed = host("debian-12")
    begun = packages_record.begin(observed, packages_record.DRIVER, ["vim"], asked=["dkms"])
    observed["files"][packages_record.DRIVER] = {"exists": True, "content": begun}
    added, released = (["libcuda1"], []) if hold else ([], ["libcuda1"])
    holds = {"before": ["libcuda1"], "after": ["nvidia-smi"] if hold else []}
    plan = {"repository": None, "todo": {"hold": added, "unhold": released, "holds": holds}}
    tasks = load("nvidia_driver", "hold.yml")
    states = []
    for task in tasks:
        if OBSERVE in task:
            task["ansible.builtin.set_fact"] = {task.pop("register"): {"host": "{{ host_now }}"}}
            del task[OBSERVE]
        if "gpufleet.hosts.package_hold" in task:
            states.append(task.pop("gpufleet.hosts.package_hold").get("state", "held"))
            path = tmp_path / "remembered/record.json"
            task["ansible.builtin.assert"] = {"that": f"(lookup('file', '{path}') | from_json).holds == ['libcuda1']"}
    # Otherwise, a package would have locks on two versions.
    assert states == ["released", "held"]
    output, record = play(tmp_path, "nvidia_driver", tasks, observed, {"__nvidia_driver_plan": plan})
    assert "failed=0" in output, output
    kept = {"asked": ["dkms"], "files": {}, "packages": [], "pending": ["vim"]}
    assert record == {**kept, **({"holds": ["nvidia-smi"]} if hold else {})}, output


@pytest.mark.parametrize(
    ("before", "expected"), [("nvidia-driver:570", ["reset", "enable"]), (None, ["reset", "file"])]
)
def test_the_module_stream_is_reset_even_if_no_package_was_installed(before: str | None, expected: list[str]) -> None:
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
def test_a_failed_simulation_stops_the_removal(role: str, rc: int, stderr: str, fails: bool) -> None:
    first, *_others = load(role, "remove.yml")
    result = {f"__{role}_simulated": {"rc": rc, "stderr": stderr}}
    assert NativeEnvironment().from_string(f"{{{{ {first['failed_when']} }}}}").render(result) is fails
