# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles that site.yml plans, in the order in which they act. Every run reports conflicts in this order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

PLAYBOOK = Path(__file__).resolve().parents[3] / "playbooks/site.yml"
ALL = ["nvidia_driver", "nvidia_persistenced", "container_engine"]
# Enough roles that the order of a set cannot match by chance.
MANY = [f"role_{number}" for number in range(30)]


def planned(**variables: Any) -> list[str]:
    (play,) = yaml.safe_load(PLAYBOOK.read_text(encoding="utf-8"))
    trusted = {name: trust_as_template(value) for name, value in play["vars"].items()}
    known = {
        "ansible_run_tags": ["all"],
        "ansible_skip_tags": [],
        "gpufleet_host": {"nvidia": {"gpus": ["0000:01:00.0"]}},
        **trusted,
        **variables,
    }
    return Templar(loader=DataLoader(), variables=known).template(trust_as_template("{{ site_planned }}"))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ALL),
        ({"gpufleet_host": {"nvidia": {"gpus": []}}}, ["container_engine"]),
        ({"nvidia_driver_state": "absent"}, ["container_engine"]),
        ({"ansible_run_tags": ["tagged"]}, ALL),
        ({"ansible_run_tags": ["container_engine", "nvidia_driver"]}, ["nvidia_driver", "container_engine"]),
        ({"ansible_run_tags": ["verify"]}, []),
        ({"ansible_skip_tags": ["nvidia_persistenced"]}, ["nvidia_driver", "container_engine"]),
        ({"site_roles": MANY}, MANY),
        ({"site_roles": MANY, "ansible_run_tags": MANY[::-1], "ansible_skip_tags": MANY[:3]}, MANY[3:]),
    ],
)
def test_roles_are_planned_in_the_order_in_which_they_act(variables: dict[str, Any], expected: list[str]) -> None:
    assert planned(**variables) == expected
