# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The observation covers the packages that a user requests by name, no matter which role runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLES = Path(__file__).resolve().parents[3] / "roles"


def load(path: str) -> Any:
    return yaml.safe_load((ROLES / path).read_text(encoding="utf-8"))


def trusted(value: Any) -> Any:
    return [trust_as_template(item) for item in value] if isinstance(value, list) else trust_as_template(value)


def rendered(text: str, variables: dict) -> Any:
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(text))


NAMES = [
    ({}, []),
    ({"nvidia_driver_extra_packages": ["nvtop"], "nvidia_driver_kernel_packages": []}, ["nvtop"]),
    # `-e key=value` passes strings.
    ({"nvidia_driver_extra_packages": "nvtop, libfoo:i386"}, ["nvtop", "libfoo:i386"]),
    ({"nvidia_driver_extra_packages": "", "nvidia_driver_kernel_packages": None}, []),
    ({"nvidia_driver_kernel_packages": ["linux-headers-mine"]}, ["linux-headers-mine"]),
]


@pytest.mark.parametrize(("variables", "names"), NAMES)
def test_the_observation_includes_the_requested_packages(variables, names):
    observe = load("observe/tasks/main.yml")[0]["block"][0]
    known = {name: trusted(value) for name, value in observe["vars"].items()}
    wanted = observe["gpufleet.hosts.gpu_host_info"]["packages"]
    assert rendered(wanted, {"observe_packages": ["mine"], **known, **variables}) == ["mine", *names]
    everything = {"nvidia_driver_extra_packages": [], "nvidia_driver_kernel_packages": [], **variables}
    requested = load("nvidia_driver/vars/main.yml")["__nvidia_driver_requested_packages"]
    assert rendered(requested, everything) == names
