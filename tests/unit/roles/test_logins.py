# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a run with -v and --diff contains no logins of mirrors and proxies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository, repository_access
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import bare

ROLES = Path(__file__).resolve().parents[3] / "roles"
MIRROR, PROXY = "http://mirror.example/cuda", "http://proxy.example:3128"


def play(root: Path, task: dict[str, Any], **values: Any) -> str:
    """Run a task with -v and --diff, and return the output."""
    (root / "values.json").write_text(json.dumps({"ansible_python_interpreter": sys.executable, **values}))
    (root / "play.yml").write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    argv = ["ansible-playbook", "-v", "--diff", "-i", "localhost,", "-c", "local", "-e", f"@{root}/values.json"]
    environment = {**os.environ, "ANSIBLE_LOCAL_TEMP": str(root / "local"), "ANSIBLE_REMOTE_TEMP": str(root / "remote")}
    argv.append(str(root / "play.yml"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    return done.stdout + done.stderr


def planned(root: Path, role: str, **values: Any) -> str:
    task = {"ansible.builtin.include_role": {"name": f"gpufleet.hosts.{role}", "tasks_from": "plan.yml"}}
    return play(root, task, gpufleet_host=bare(), **values)


REQUESTS = [
    (
        "nvidia_driver",
        {
            "nvidia_driver_source": "nvidia",
            "nvidia_driver_mirror": MIRROR,
            "nvidia_driver_repository_username": "robot",
            "nvidia_driver_repository_password": "s3cret",
        },
    ),
    (
        "cuda_toolkit",
        {
            "cuda_toolkit_source": "nvidia",
            "cuda_toolkit_versions": ["12.6"],
            "cuda_toolkit_proxy": PROXY,
            "cuda_toolkit_proxy_username": "robot",
            "cuda_toolkit_proxy_password": "s3cret",
        },
    ),
]


@pytest.mark.parametrize(("role", "request_"), REQUESTS)
def test_a_plan_with_a_login_is_not_shown(tmp_path: Path, role: str, request_: dict[str, Any]) -> None:
    output = planned(tmp_path, role, **request_)
    assert "failed=0" in output, output
    assert "s3cret" not in output


@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
@pytest.mark.parametrize("url", ["robot:s3cret@proxy", "http://robot:s3cret@proxy"])
@pytest.mark.parametrize("password", ["", "s3cret"])
def test_a_login_in_a_url_is_refused_and_not_shown(tmp_path: Path, role: str, url: str, password: str) -> None:
    wish = {f"{role}_source": "nvidia", f"{role}_proxy": url, f"{role}_proxy_username": password and "robot"}
    if role == "cuda_toolkit":
        wish["cuda_toolkit_versions"] = ["12.6"]
    output = planned(tmp_path, role, **wish, **{f"{role}_proxy_password": password})
    assert "failed=1" in output, output
    assert f"{role}_proxy is " in output
    assert "...@proxy" in output
    assert "s3cret" not in output


ACCESS = {
    "proxy": PROXY,
    "username": "robot",
    "password": "s3cret",
    "proxy_username": "robot",
    "proxy_password": "s3cret",
}


def as_user(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tasks for a user who cannot change the owner of a file."""
    for task in tasks:
        for arguments in task.values():
            if isinstance(arguments, dict):
                arguments.pop("owner", None)
                arguments.pop("group", None)
    return tasks


def test_a_file_with_a_login_is_written_and_not_shown(tmp_path: Path) -> None:
    tasks = as_user(yaml.safe_load((ROLES / "nvidia_driver/tasks/files.yml").read_text(encoding="utf-8")))
    text = repository_access.apt_logins(repository_access.access({"url": "https://m.example/x", **ACCESS}))
    files = [{"path": f"{tmp_path}/out", "state": "present", "content": text, "mode": "0600"}]
    output = play(tmp_path, {"block": tasks}, __nvidia_driver_files=files)
    assert "failed=0" in output, output
    assert "s3cret" not in output
    assert ((tmp_path / "out").read_text(), (tmp_path / "out").stat().st_mode & 0o777) == (text, 0o600)


@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
@pytest.mark.parametrize("manager", ["dnf", "zypper"])
def test_an_entry_with_a_login_is_written_removed_and_not_shown(tmp_path: Path, role: str, manager: str) -> None:
    path, modes = tmp_path / "out.repo", []
    for access in (ACCESS, {"proxy": PROXY}):
        repository = {"type": manager, "url": "https://m.example/x", **access}
        entry = {**nvidia_repository.entry(repository), "path": str(path)}
        former = f"{path.stat().st_mode & 0o777:04o}" if path.exists() else None
        values: dict[str, Any] = {"gpufleet_host": {"files": {str(path): {"mode": former}}}}
        if role == "nvidia_driver":
            text = (ROLES / f"nvidia_driver/tasks/repository-{manager}.yml").read_text(encoding="utf-8")
            task = as_user(yaml.safe_load(text)[-1]["block"])[-1]
            values["__nvidia_driver_repository"] = {**repository, "entry": entry}
        else:
            text = (ROLES / "cuda_toolkit/tasks/repository.yml").read_text(encoding="utf-8")
            (task,) = (one for one in as_user(yaml.safe_load(text)) if "ansible.builtin.copy" in one)
            values["__cuda_toolkit_plan"] = {"files": [{"state": "present", **entry}]}
        output = play(tmp_path, task, **values)
        assert "failed=0" in output, output
        assert "s3cret" not in output
        assert path.read_text() == entry["content"]
        modes.append(path.stat().st_mode & 0o777)
    assert modes == [0o600, 0o644]
