# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""That a look at a host answers for the packages that a user named, whichever role has it done."""

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
    # As -e with key=value gives them.
    ({"nvidia_driver_extra_packages": "nvtop, libfoo:i386"}, ["nvtop", "libfoo:i386"]),
    ({"nvidia_driver_extra_packages": "", "nvidia_driver_kernel_packages": None}, []),
    ({"nvidia_driver_kernel_packages": ["linux-headers-mine"]}, ["linux-headers-mine"]),
]


@pytest.mark.parametrize(("variables", "names"), NAMES)
def test_one_look_sees_what_the_driver_s_role_was_asked_for(variables, names):
    look = load("observe/tasks/main.yml")[0]["block"][0]
    known = {name: trusted(value) for name, value in look["vars"].items()}
    wanted = look["gpufleet.hosts.gpu_host_info"]["packages"]
    assert rendered(wanted, {"observe_packages": ["mine"], **known, **variables}) == ["mine", *names]
    everything = {"nvidia_driver_extra_packages": [], "nvidia_driver_kernel_packages": [], **variables}
    named = load("nvidia_driver/vars/main.yml")["__nvidia_driver_named"]
    assert rendered(named, everything) == names


def test_what_another_role_did_not_look_for_is_looked_for_before_the_plan():
    tasks = load("nvidia_driver/tasks/plan.yml")
    (look,) = [place for place, task in enumerate(tasks) if "ansible.builtin.include_role" in task]
    assert look < next(place for place, task in enumerate(tasks) if "ansible.builtin.set_fact" in task)
    condition = "{{ " + tasks[look]["when"] + " }}"
    for asked, again in (({}, True), ({"nvtop": False, "x": True}, False), ({"x": True}, True)):
        variables = {"__nvidia_driver_named": ["nvtop"], "gpufleet_host": {"packages_asked": asked}}
        assert rendered(condition, variables) is again
