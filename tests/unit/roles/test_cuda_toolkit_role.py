# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When role cuda_toolkit changes, restores and removes files, and its verification program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible.plugins.filter import mathstuff

ROLE = Path(__file__).resolve().parents[3] / "roles/cuda_toolkit"
VARS = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
PRESENT = "present.yml"


def load(name: str) -> list[dict[str, Any]]:
    return yaml.safe_load((ROLE / "tasks" / name).read_text(encoding="utf-8"))


def place(tasks: list[dict[str, Any]], words: str) -> int:
    return next(index for index, task in enumerate(tasks) if words in yaml.safe_dump(task))


@pytest.mark.parametrize("what", ["files", "remove_files", "remove_packages"])
def test_every_repository_change_in_the_plan_is_applied(what: str) -> None:
    (block,) = (task for task in load(PRESENT) if "rescue" in task)
    (step,) = (task for task in block["block"] if task.get("ansible.builtin.include_tasks") == "repository.yml")
    evaluate = jinja2.Environment().compile_expression(step["when"])
    nothing: dict[str, list] = {"files": [], "remove_files": [], "remove_packages": []}
    assert evaluate(__cuda_toolkit_plan=nothing) is False
    assert evaluate(__cuda_toolkit_plan={**nothing, what: ["x"]}) is True


@pytest.mark.parametrize("came", [[], ["gpg-pubkey-1"], ["x"]])
def test_files_are_restored_unless_packages_were_installed(tmp_path: Path, came: list[str]) -> None:
    """Run the block of present.yml with tasks that write a repository and then fail to install packages."""
    (block,) = (task for task in load(PRESENT) if "rescue" in task)
    tasks, files = tmp_path / "role/tasks", tmp_path / "files"
    files.mkdir()
    tasks.mkdir(parents=True)
    copies = tmp_path / "copies"
    copies.mkdir()
    old, new, directory = files / "old.list", files / "new.sources", files / "remembered"
    old.write_bytes(b"deb x\n\x99")
    old.chmod(0o640)
    (tasks.parent / "vars").mkdir()
    (tasks.parent / "vars/main.yml").write_text((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    for name in ("backup.yml", "rollback.yml"):
        text = (ROLE / "tasks" / name).read_text(encoding="utf-8")
        (tasks / name).write_text(text.replace("['rpm', '--erase']", f"['/bin/sh', '-c', 'touch {files}/erased']"))
    written = [f"rm {old}", f"mkdir {directory}", f"touch {directory}/record {new}"]
    shell = {"ansible.builtin.shell": " && ".join(written)}
    (tasks / "repository.yml").write_text(yaml.safe_dump([shell]))
    seen = {"__cuda_toolkit_came": {"host": {"installed_packages": dict.fromkeys(["vim", *came], "1 all")}}}
    refused = {"ansible.builtin.fail": {"msg": "would bring a driver"}}
    (tasks / "packages.yml").write_text(yaml.safe_dump([{"ansible.builtin.set_fact": seen}, refused]))
    (tasks / "main.yml").write_text(yaml.safe_dump([block]))
    play = {"hosts": "localhost", "gather_facts": False, "roles": [str(tasks.parent)]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    values = {
        "__cuda_toolkit_plan": {
            "files": [1],
            "packages": ["cuda-toolkit-12-9"],
            "remove_packages": [],
            "remove_files": [],
        },
        "__cuda_toolkit_before": {"host": {"installed_packages": dict.fromkeys(["vim"], "1 all")}},
        "__cuda_toolkit_changed": [str(path) for path in (old, new, directory / "record", directory)],
        "ansible_remote_tmp": str(tmp_path / "remote"),
        "ansible_python_interpreter": sys.executable,
    }
    argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", json.dumps(values), str(tmp_path / "play.yml")]
    environment = {**os.environ, "TMPDIR": str(copies), "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local")}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "failed=1" in done.stdout, done.stdout
    assert "would bring a driver" in done.stdout.partition("Fail with the original error")[2]
    left = sorted(path.name for path in files.iterdir())
    if came == ["x"]:
        assert left == ["new.sources", "remembered"]
    else:
        assert left == [*(["erased"] if came else []), "old.list"]
        assert (old.read_bytes(), old.stat().st_mode & 0o777) == (b"deb x\n\x99", 0o640)
    assert [path.name for path in copies.iterdir() if path.name.startswith("gpufleet-")] == []


NEEDED = "error: Failed dependencies:\n\tx is needed by (installed) y-1-1.noarch\n"


@pytest.mark.parametrize(
    ("path", "register", "needed"),
    [
        ("cuda_toolkit/tasks/packages-apt.yml", "__cuda_toolkit_simulated", True),
        ("cuda_toolkit/tasks/packages-zypper.yml", "__cuda_toolkit_simulated", True),
        ("nvidia_driver/tasks/packages-dnf.yml", "__nvidia_driver_erase_test", False),
    ],
)
def test_a_failed_simulation_fails_the_role(path: str, register: str, needed: bool) -> None:
    tasks = yaml.safe_load((ROLE.parent / path).read_text(encoding="utf-8"))
    (task,) = (task for task in tasks if task.get("register") == register and "ansible.builtin.command" in task)
    fails = jinja2.Environment().compile_expression(str(task.get("failed_when", f"{register}.rc != 0")))
    answers = [(0, ""), (1, NEEDED), (1, "can't create transaction lock on /var/lib/rpm/.rpm.lock")]
    judged = [fails(**{register: {"rc": rc, "stdout": "", "stderr": text}}) for rc, text in answers]
    assert judged == [False, needed, True]


@pytest.mark.parametrize(
    ("found", "goes"), [([], True), (["cuda_toolkit.json"], True), (["cuda_toolkit.json", "nvidia_driver.json"], False)]
)
def test_check_mode_predicts_the_removal_of_the_directory(found: list[str], goes: bool) -> None:
    tasks = load("remove.yml")
    task = tasks[place(tasks, "Remove the directory of the records")]
    environment = jinja2.Environment()
    environment.filters["difference"] = mathstuff.difference
    values = {
        "__cuda_toolkit_remembered": {"files": [{"path": f"/var/lib/gpufleet/{name}"} for name in found]},
        "__cuda_toolkit_removal": {"files": ["/var/lib/gpufleet/cuda_toolkit.json"]},
    }
    assert environment.compile_expression(task["when"])(**values) is goes


def trial(home: Path, nvcc: str, run: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the verification with a fake compiler, which writes its options and input to the file `seen`."""
    home.mkdir()
    compiler = home.parent / "nvcc"
    compiler.write_text(f'#!/bin/sh\necho "$*" >{home.parent}/seen\ncat add.cu >>{home.parent}/seen\n{nvcc}\n')
    compiler.chmod(0o755)
    argv = ["/bin/sh", "-euc", VARS["__cuda_toolkit_trial"], "trial", str(compiler), run, *options]
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    program = VARS["__cuda_toolkit_program"]
    return subprocess.run(argv, input=program, capture_output=True, text=True, check=False, env=environment)


WORKS = "printf '#!/bin/sh\\necho 1 + 41 = 42\\n' >add; chmod +x add"
FAILS = "printf '#!/bin/sh\\necho no device; exit 1\\n' >add; chmod +x add"


@pytest.mark.parametrize(
    ("nvcc", "run", "rc", "out"),
    [
        (WORKS, "yes", 0, "1 + 41 = 42\n"),
        (WORKS, "no", 0, ""),
        (FAILS, "yes", 1, "no device\n"),
        (FAILS, "no", 0, ""),
        ("exit 2", "yes", 2, ""),
        ("exit 2", "no", 2, ""),
    ],
)
def test_the_verification_compiles_runs_and_leaves_no_files(
    tmp_path: Path, nvcc: str, run: str, rc: int, out: str
) -> None:
    done = trial(tmp_path / "home", nvcc, run, "-arch=native")
    assert (done.returncode, done.stdout) == (rc, out)
    assert (tmp_path / "seen").read_text() == f"-arch=native -o add add.cu\n{VARS['__cuda_toolkit_program']}"
    assert list((tmp_path / "home").iterdir()) == []
