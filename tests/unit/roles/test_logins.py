# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a run with -v and --diff contains no logins of mirrors and proxies."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run, planned_roles
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import bare

MIRROR, PROXY = "http://mirror.example/cuda", "http://proxy.example:3128"


def planned(root: Path, role: str, **values: Any) -> str:
    """Plan a role with -v and --diff, and return the output."""
    environment = planned_roles.install(root)
    calls = planned_roles.observations(root / "calls.json", bare())
    include = {"name": "observe", "tasks_from": "plan.yml"}
    task = {"ansible.builtin.include_role": include, "vars": {"__observe_parts": [role]}}
    play = {"hosts": "localhost", "gather_facts": False, "environment": calls, "tasks": [task]}
    (root / "values.json").write_text(json.dumps({"ansible_python_interpreter": sys.executable, **values}))
    (root / "play.yml").write_text(yaml.safe_dump([play]))
    argv = ["ansible-playbook", "-v", "--diff", "-i", "localhost,", "-c", "local", "-e", f"@{root}/values.json"]
    argv.append(str(root / "play.yml"))
    done = ansible_run.run(argv, env=environment)
    return done.stdout + done.stderr


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
