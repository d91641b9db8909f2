# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engines with which playbook site registers the driver volume, also before an engine is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.registry import PARTS
from ansible_collections.gpufleet.hosts.tests.unit.plugins import site_samples

STEP = Path(__file__).resolve().parents[3] / "playbooks/tasks/parts/driver_volume.yml"
MODULE = "gpufleet.hosts.nvidia_driver_volume"
NO_ENGINE = tuple(part for part in PARTS if part != "container_engine")


def planned(engine: str, parts: tuple[str, ...], *, runs_docker: bool = False, has_podman: bool = False) -> Part:
    """Return the part of the driver volume, for a host without a driver and with these engines."""
    host = site_samples.bare()
    if runs_docker:
        info = {"server_version": "26.1.5", "containers_running": 0}
        host["engines"]["docker"] = {"package": "docker.io", "version": "26.1.5", "info": info}
    if has_podman:
        host["engines"]["podman"]["package"] = "podman"
    return site_samples.planned(host, {"container_engine": {"name": engine}}, parts)["driver_volume"]


def arguments(part: Part) -> dict[str, Any]:
    """Return the options with which the playbook calls the module."""
    tasks = yaml.safe_load(STEP.read_text(encoding="utf-8"))
    (options,) = [task[MODULE] for task in tasks if MODULE in task]
    templar = Templar(loader=DataLoader(), variables={"site_plan": {"plan": {"driver_volume": part.plan}}})
    return {name: templar.template(trust_as_template(value)) for name, value in options.items()}


@pytest.mark.parametrize(
    ("engine", "parts", "expected"),
    [
        ("docker", PARTS, {"engine": ["auto"], "expected_engines": ["docker"]}),
        ("podman", PARTS, {"engine": ["auto"], "expected_engines": ["podman"]}),
        ("containerd", PARTS, {"engine": ["none"], "expected_engines": []}),
        ("none", PARTS, {"engine": ["none"], "expected_engines": []}),
        ("docker", ("driver_volume",), {"engine": ["auto"], "expected_engines": []}),
        ("docker", ("driver_volume", "container_engine"), {"engine": ["auto"], "expected_engines": ["docker"]}),
        ("docker", NO_ENGINE, {"engine": ["auto"], "expected_engines": []}),
    ],
)
def test_check_mode_expects_the_engine_that_this_run_installs(
    engine: str, parts: tuple[str, ...], expected: dict[str, Any]
) -> None:
    assert arguments(planned(engine, parts)) == expected


@pytest.mark.parametrize(
    ("engine", "parts", "runs_docker", "has_podman", "words"),
    [
        ("docker", PARTS, False, False, " is loaded and register it with docker"),
        # The volume is registered with every engine of the host.
        ("docker", PARTS, True, True, " is loaded and register it with docker and podman"),
        ("docker", PARTS, False, True, " is loaded and register it with docker and podman"),
        ("podman", PARTS, True, False, " is loaded and register it with docker and podman"),
        ("podman", PARTS, False, False, " is loaded and register it with podman"),
        ("containerd", PARTS, True, False, " is loaded"),
        ("none", PARTS, True, False, " is loaded"),
        ("docker", NO_ENGINE, False, False, " is loaded"),
        ("docker", NO_ENGINE, True, False, " is loaded and register it with docker"),
    ],
)
def test_the_plan_names_the_engines_before_the_driver_is_loaded(
    engine: str, parts: tuple[str, ...], runs_docker: bool, has_podman: bool, words: str
) -> None:
    part = planned(engine, parts, runs_docker=runs_docker, has_podman=has_podman)
    assert part.changes == [f"create the driver volume once driver {site_samples.VERSION}{words}"]
