# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which engines site.yml has the driver volume registered with, also in check mode before an engine is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

PLAYBOOK = Path(__file__).resolve().parents[3] / "playbooks/site.yml"


def trusted(value: Any) -> Any:
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: trusted(item) for key, item in value.items()}
    return value


def rendered(name: str, runs_docker: bool, has_podman: bool, **variables: Any) -> dict[str, Any]:
    """The arguments of a task of the play, for a host with these engines."""
    (play,) = yaml.safe_load(PLAYBOOK.read_text(encoding="utf-8"))
    task = next(task for task in play["tasks"] if task["name"] == name)
    engines = {
        "docker": {"info": {"server_version": "26.1.5"} if runs_docker else None},
        "podman": {"package": "podman" if has_podman else None},
    }
    known = {
        "ansible_run_tags": ["all"],
        "ansible_skip_tags": [],
        "gpufleet_host": {"engines": engines},
        **trusted({**play["vars"], **task.get("vars", {})}),
        **variables,
    }
    arguments = next(value for key, value in task.items() if "." in key)
    return Templar(loader=DataLoader(), variables=known).template(trusted(arguments))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {"engine": ["auto"], "expected_engines": ["docker"]}),
        ({"container_engine_name": "podman"}, {"engine": ["auto"], "expected_engines": ["podman"]}),
        ({"container_engine_name": "containerd"}, {"engine": ["none"], "expected_engines": []}),
        ({"ansible_run_tags": ["driver_volume"]}, {"engine": ["auto"], "expected_engines": []}),
        (
            {"ansible_run_tags": ["driver_volume", "container_engine"]},
            {"engine": ["auto"], "expected_engines": ["docker"]},
        ),
        ({"ansible_skip_tags": ["container_engine"]}, {"engine": ["auto"], "expected_engines": []}),
    ],
)
def test_check_mode_expects_the_engine_that_this_run_installs(
    variables: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert rendered("Create the driver volume", False, False, **variables) == expected


@pytest.mark.parametrize(
    ("runs_docker", "has_podman", "variables", "words"),
    [
        (False, False, {}, "once the driver is loaded and registers it with docker."),
        (True, True, {}, "once the driver is loaded and registers it with docker and podman."),
        (False, False, {"container_engine_name": "podman"}, "once the driver is loaded and registers it with podman."),
        (True, False, {"container_engine_name": "containerd"}, "once the driver is loaded."),
        (False, False, {"ansible_skip_tags": ["container_engine"]}, "once the driver is loaded."),
    ],
)
def test_check_mode_names_the_engines_before_the_driver_is_loaded(
    runs_docker: bool, has_podman: bool, variables: dict[str, Any], words: str
) -> None:
    result = rendered("Report the driver volume that a real run would create", runs_docker, has_podman, **variables)
    assert result["msg"].endswith(words)
