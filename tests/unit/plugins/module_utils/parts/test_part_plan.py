# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts whose plans consist of steps, and what the plan of a host interrupts."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import ENGINE_RESTART, REBOOT, Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part, interruptions, of_steps

RESTART = Disruption(ENGINE_RESTART, "its unit changed", target="docker.service", count=2, names=("a", "b"))
BOOT = Disruption(REBOOT, "a new kernel")


def test_texts_and_interruptions_of_a_part_come_from_its_steps() -> None:
    part = of_steps([steps.install(["b=2"]), steps.reload("docker.service", disrupts=(RESTART,))], reasons=["why"])
    assert (part.acts, part.changes) == (True, ["install b", "reload systemd and restart docker.service"])
    assert (part.disruptions, part.reasons) == ([RESTART], ["why"])
    assert of_steps([]).acts is False


def test_interruptions_of_a_host_are_those_of_the_parts_that_act_each_once() -> None:
    parts = {
        "driver": Part(acts=True, disruptions=[BOOT]),
        "idle": Part(acts=False, disruptions=[Disruption(REBOOT, "never")]),
        "engine": Part(acts=True, disruptions=[RESTART, BOOT]),
    }
    found = interruptions(parts)
    assert found == [BOOT, RESTART]
    assert (found[1].count, found[1].names) == (2, ("a", "b"))


@pytest.mark.parametrize(
    ("step", "text", "items"),
    [
        (steps.install(["a=1", "b"]), "install a, b", [("package", "a"), ("package", "b")]),
        (steps.remove(["a"]), "remove a", []),
        (steps.file("/etc/a", "x"), "write /etc/a", [("file", "/etc/a")]),
        (steps.file("/etc/a", None), "remove /etc/a", []),
        (steps.user("a"), "create user a", []),
        (steps.reload(), "reload systemd", []),
        (steps.stop("a.service"), "disable and stop a.service", []),
        (steps.setting("0", "turn it on", "mode"), "turn it on", [("mode", "0")]),
    ],
)
def test_a_step_names_what_it_does_and_what_stays(step: steps.Step, text: str, items: list[tuple[str, str]]) -> None:
    assert (step.text, list(step.keeps)) == (text, items)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, []),
        ({"enable": True}, ["enable a.service"]),
        ({"start": True, "enable": True}, ["enable and start a.service"]),
        ({"unmask": True, "start": True}, ["unmask a.service", "start a.service"]),
    ],
)
def test_a_unit_gets_only_the_steps_that_it_needs(wanted: dict[str, bool], expected: list[str]) -> None:
    assert steps.texts(steps.service("a.service", **wanted)) == expected
