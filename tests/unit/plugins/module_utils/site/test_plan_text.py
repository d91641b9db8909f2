# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text that playbook plan prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.output import fleet_lines
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_report, plan_text
from ansible_collections.gpufleet.hosts.tests.unit.plugins.plan_samples import FLEET, REBOOT, RESTART, part


def text(results: dict, *, reasons: bool = False) -> list[str]:
    return [line.text for line in plan_text.render(plan_report.report(results), reasons=reasons)]


def test_one_converged_host():
    assert text({"gpu01": {"changes": [part("nvidia_driver")]}}) == ["Converged: gpu01", "", "1 host: 1 converged"]


def test_no_host():
    assert text({}) == ["0 hosts: nothing to plan"]


def test_a_fleet_of_every_state():
    assert text(FLEET) == [
        "Interruptions",
        "  gpu02, gpu03: reboot: required: nouveau is bound to 0000:3b:00.0; only a reboot can unbind it",
        "  gpu03: restart of docker.service: required, stops web: the runtime nvidia is added",
        "",
        "nvidia_driver",
        "  gpu02, gpu03:",
        "    install nvidia-driver-cuda, nvidia-open",
        "",
        "container_engine",
        "  gpu03:",
        "    install docker.io",
        "    start docker.service",
        "",
        "nvidia_container_toolkit, after the errors below are solved",
        "  gpu04:",
        "    install nvidia-container-toolkit",
        "",
        "Notes",
        "  gpu03: cloud-init is running.",
        "",
        "Errors",
        "  gpu04: The archive does not answer.",
        "",
        "Unreachable: gpu05",
        "",
        "Converged: gpu01",
        "",
        "5 hosts: 1 converged, 2 change, 1 failed, 1 unreachable; 2 reboot, 1 engine restarts",
    ]


def test_two_hundred_equal_hosts_take_as_many_lines_as_one():
    driver = part("nvidia_driver", "install nvidia-open", disruptions=(REBOOT,))
    fleet = {f"node{number:03}": {"changes": [driver]} for number in range(200)}
    assert len(text(fleet)) == len(text({"node000": fleet["node000"]}))
    assert text(fleet) == [
        "Interruptions",
        "  all 200 hosts: reboot: required: nouveau is bound to 0000:3b:00.0; only a reboot can unbind it",
        "",
        "nvidia_driver",
        "  all 200 hosts:",
        "    install nvidia-open",
        "",
        "200 hosts: 200 change; 200 reboot",
    ]


def test_errors_of_several_hosts_stand_once():
    fleet = {f"node{number}": {"failed": True, "errors": ["One.", "Two."]} for number in range(7)}
    assert text({**fleet, "node7": {"failed": True, "errors": ["Two."]}}) == [
        "Errors",
        "  node0, node1, node2, node3, node4 and 2 more: One.",
        "  all 8 hosts: Two.",
        "",
        "8 hosts: 8 failed",
    ]


def test_a_difference_in_one_part_does_not_split_the_others():
    driver = part("nvidia_driver", "install nvidia-open")
    fleet = {
        "a": {"changes": [driver, part("container_engine", "one")]},
        "b": {"changes": [driver, part("container_engine", "two")]},
    }
    assert text(fleet).count("    install nvidia-open") == 1
    assert "  a, b:" in text(fleet)


def test_parts_stand_in_the_order_in_which_they_act():
    # The plan of a host with errors has only some parts.
    driver, daemon, toolkit = "nvidia_driver", "nvidia_persistenced", "nvidia_container_toolkit"
    fleet = {
        "a": {"changes": [part(daemon, "1")]},
        "b": {"changes": [part(toolkit, "1")]},
        "c": {"changes": [part(driver, "1"), part(daemon), part(toolkit, "1")]},
    }
    assert [line for line in text(fleet) if line in (driver, daemon, toolkit)] == [driver, daemon, toolkit]


@pytest.mark.parametrize("reasons", [False, True])
def test_reasons_are_shown_on_request(reasons):
    found = part("nvidia_driver", "one", reasons=("first", "second"))
    assert ("    because: first; second" in text({"a": {"changes": [found]}}, reasons=reasons)) is reasons


@pytest.mark.parametrize(
    ("disruptions", "expected"),
    [
        ([{**REBOOT, "state": "possible"}], "1 may reboot"),
        ([{**REBOOT, "state": "forbidden", "forbidden_by": "x"}], "1 needs a forbidden reboot"),
        ([RESTART, RESTART], "2 engines restart"),
        ([{**RESTART, "state": "possible"}], "up to 1 engines restart"),
        ([{**REBOOT, "kind": "driver_reload"}, REBOOT], "1 reboots, 1 reloads the driver"),
        ([{**RESTART, "kind": "container_recreate", "target": "web"}], "1 container is recreated"),
    ],
)
def test_the_last_line_counts_interruptions(disruptions, expected):
    found = part("nvidia_driver", "one", disruptions=tuple(disruptions))
    assert text({"a": {"changes": [found]}})[-1] == f"1 host: 1 changes; {expected}"


def test_a_failed_host_interrupts_nothing():
    found = part("nvidia_driver", "one", disruptions=(REBOOT,))
    lines = text({"a": {"failed": True, "errors": ["One."], "changes": [found]}})
    assert "Interruptions" not in lines
    assert lines[-1] == "1 host: 1 failed"


def test_long_changes_continue_in_the_next_line():
    names = [f"libnvidia-package-with-a-long-name-{number}" for number in range(6)]
    lines = text({"a": {"changes": [part("nvidia_driver", f"install {', '.join(names)}")]}})
    found = [line for line in lines if "libnvidia" in line]
    assert len(found) == 3
    # Names are not broken at their hyphens.
    assert " ".join(" ".join(found).split()) == f"install {', '.join(names)}"
    assert max(map(len, lines)) <= 110


def test_no_text_controls_the_terminal():
    hostile = "pid 7 \x1b[2J\x1b]0;title\x07\x08\u202e\x9b31m\r\nend"
    fleet = {
        "a\x1b[1m": {"changes": [part("nvidia_driver", hostile, reasons=(hostile,))], "notes": [hostile]},
        "b": {"failed": True, "errors": [hostile]},
    }
    lines = text(fleet, reasons=True)
    assert all(line.isprintable() for line in lines)
    assert "  b: pid 7 \\x1b[2J\\x1b]0;title\\x07\\x08\\u202e\\x9b31m end" in lines


def test_lines_know_what_they_say():
    kinds = {line.text.strip(): line.kind for line in plan_text.render(plan_report.report(FLEET))}
    assert kinds["install docker.io"] == fleet_lines.CHANGES
    assert kinds["gpu04: The archive does not answer."] == fleet_lines.ERROR
    assert kinds["Unreachable: gpu05"] == fleet_lines.UNREACHABLE
    assert kinds["Converged: gpu01"] == fleet_lines.CONVERGED
    assert kinds["container_engine"] == fleet_lines.PLAIN


def test_the_example_of_the_documentation():
    page = (Path(__file__).parents[5] / "docs/playbooks.md").read_text(encoding="utf-8")
    assert "\n".join(["```", *text(FLEET), "```"]) in page
