# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a run with -v contains no logins of mirrors and proxies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import bare

ROLES = Path(__file__).resolve().parents[3] / "roles"
MIRROR, PROXY = "http://robot:s3cret@mirror.example/cuda", "http://robot:s3cret@proxy.example:3128"


def play(root: Path, task: dict[str, Any], **values: Any) -> str:
    """Run a task with -v and return the output."""
    (root / "values.json").write_text(json.dumps({"ansible_python_interpreter": sys.executable, **values}))
    (root / "play.yml").write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    argv = ["ansible-playbook", "-v", "-i", "localhost,", "-c", "local", "-e", f"@{root}/values.json"]
    environment = {**os.environ, "ANSIBLE_LOCAL_TEMP": str(root / "local"), "ANSIBLE_REMOTE_TEMP": str(root / "remote")}
    argv.append(str(root / "play.yml"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    return done.stdout + done.stderr


def planned(root: Path, role: str, **values: Any) -> str:
    task = {"ansible.builtin.include_role": {"name": f"gpufleet.hosts.{role}", "tasks_from": "plan.yml"}}
    return play(root, task, gpufleet_host=bare(), **values)


REQUESTS = [
    ("nvidia_driver", {"nvidia_driver_source": "nvidia", "nvidia_driver_mirror": MIRROR}),
    ("cuda_toolkit", {"cuda_toolkit_source": "nvidia", "cuda_toolkit_versions": ["12.6"], "cuda_toolkit_proxy": PROXY}),
]


@pytest.mark.parametrize(("role", "request_"), REQUESTS)
def test_a_plan_with_a_login_is_not_shown(tmp_path: Path, role: str, request_: dict[str, Any]) -> None:
    output = planned(tmp_path, role, **request_)
    assert "failed=0" in output, output
    assert "s3cret" not in output


@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
def test_an_invalid_address_is_reported_without_its_login(tmp_path: Path, role: str) -> None:
    output = planned(tmp_path, role, **{f"{role}_source": "nvidia", f"{role}_proxy": "robot:s3cret@proxy"})
    assert "failed=1" in output, output
    assert f"{role}_proxy" in output
    assert "...@proxy" in output
    assert "s3cret" not in output


def test_a_file_with_a_login_is_written_and_not_shown(tmp_path: Path) -> None:
    tasks = yaml.safe_load((ROLES / "nvidia_driver/tasks/files.yml").read_text(encoding="utf-8"))
    text = nvidia_repository.apt_proxy({"url": "https://m.example/x", "proxy": PROXY})
    files = [{"path": f"{tmp_path}/out", "state": "present", "content": text}]
    output = play(tmp_path, {"block": tasks}, __nvidia_driver_files=files, ansible_diff_mode=True)
    assert "failed=0" in output, output
    assert "s3cret" not in output
    assert (tmp_path / "out").read_text() == text
