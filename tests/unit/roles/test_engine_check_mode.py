# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode of role container_engine if the role changes the version of Docker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from ansible_collections.gpufleet.hosts.tests.unit.plugins import engine_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.docker_daemon_host import Host

TASKS = Path(__file__).resolve().parents[3] / "roles/container_engine/tasks"
# Before Docker 23.0, dockerd has no --validate. It checks the file, and then requires root.
DOCKERD = """#!/bin/sh
if [ "$1" = --version ]; then echo "Docker version {version}, build x"; exit 0; fi
if [ "$1" = --validate ]; then echo "configuration OK"; exit 0; fi
echo "dockerd needs to be started with root privileges"; exit 1
"""
OLD_RPM = {"docker-ce": "3:24.0.9-1.el9", "docker-ce-cli": "1:24.0.9-1.el9", "containerd.io": "1.7.28-1.el9"}
OFFERS = {
    **engine_samples.FULL["debian"],
    "docker-ce": ["5:28.0.4-1", "3:27.5.1-1.el9"],
    "docker-ce-cli": ["5:28.0.4-1", "1:27.5.1-1.el9"],
}
DIRECTORIES = {"docker_options": {"cdi-spec-dirs": ["/srv/cdi"]}}
# the platform, its packages, the installed version, the role's variables, whether the role changes Docker's version
CASES: list[tuple[str, dict[str, str], str, dict[str, Any], bool]] = [
    (
        "debian-12",
        {"docker.io": "20.10.24"},
        "20.10.24",
        {"source": "docker", "replace": True, "version": "28.0"},
        True,
    ),
    ("el-9", OLD_RPM, "24.0.9", {"minimum_version": "25.0"}, True),
    ("el-9", OLD_RPM, "24.0.9", {"minimum_version": "25.0", **DIRECTORIES}, True),
    # Packages change, but not those of Docker.
    ("el-9", OLD_RPM, "24.0.9", DIRECTORIES, False),
]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_options_of_the_new_version_are_accepted_in_check_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, Any, str, dict[str, Any], bool], check: bool
) -> None:
    platform, packages, installed, variables, changes_version = case
    seen = engine_samples.host(platform, packages)
    done = engine_samples.answered(seen, OFFERS, docker_recommended=True, **variables)
    assert done.transaction is not None
    options = done.options or variables["docker_options"]
    (task,) = (
        task
        for task in yaml.safe_load((TASKS / "docker_config.yml").read_text(encoding="utf-8"))
        if "gpufleet.hosts.docker_daemon_config" in task
    )
    known = {"gpufleet_plan": {"container_engine": done}, "ansible_check_mode": check}
    validate = task["gpufleet.hosts.docker_daemon_config"].get("validate", "{{ true }}")
    there = Host(tmp_path, monkeypatch)
    there.dockerd.write_text(DOCKERD.format(version=installed))
    arguments = {"managed_by": "container_engine", "purge": True, "check": check}
    result = there(options, **arguments, validate=NativeEnvironment().from_string(validate).render(known))
    assert result.get("failed", False) is not (changes_version and check), result.get("msg")
