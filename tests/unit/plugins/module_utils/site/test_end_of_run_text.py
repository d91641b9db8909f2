# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text at the end of playbooks site and verify."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ansible_collections.gpufleet.hosts.plugins.module_utils.site import end_of_run_text, end_of_run_verdicts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.fleet_samples import FLEET


def text(results: dict, *, is_check: bool = False) -> list[str]:
    return [line.text for line in end_of_run_text.render(end_of_run_verdicts.report(results), is_check=is_check)]


def test_what_was_adopted_stands_once_for_equal_hosts_with_its_columns_and_visible_control_characters():
    table = ("PART  STATE    VERSION", "cuda  adopted  12.9", "efa   adopted  1.4\x1b[31m")
    results = {
        name: replace(FLEET["gpu01"], adoption=table if name != "gpu03" else ()) for name in ("gpu01", "gpu02", "gpu03")
    }
    lines = text(results)
    assert lines[lines.index("Adopted image: gpu01, gpu02") :] == [
        "Adopted image: gpu01, gpu02",
        "  PART  STATE    VERSION",
        "  cuda  adopted  12.9",
        r"  efa   adopted  1.4\x1b[31m",
        "",
        "3 hosts: 3 pass; 3 rebooted",
    ]


def test_no_host():
    assert text({}) == ["0 hosts: nothing to show"]


def test_a_fleet_of_every_state_and_of_several_vendors():
    assert text(FLEET) == [
        "HOST   ACCELERATORS                          DRIVER          ENGINE         TOOLKIT  REBOOTED  VERDICT",
        "gpu01  8 x NVIDIA H100 80GB HBM3             580.95.05       docker 28.5.1  1.18.0   yes       pass",
        "gpu02  2 x NVIDIA A100-SXM4-40GB             580.95.05       podman 5.4.2   -        no        info",
        "gpu03  2 x NVIDIA Ampere                     580.95.05       podman 5.4.2   -        no        critical",
        "amd01  4 x AMD                               amdgpu 6.12.12  docker 28.5.1  -        no        pass",
        "gpu04  1 x NVIDIA Hopper, 1 x AWS Trainium2  -               -              -        no        critical",
        "gpu05  ?                                     ?               ?              ?        ?         unknown",
        "gpu06  ?                                     ?               ?              ?        ?         unknown",
        "",
        "Failed tasks",
        "  gpu04: nvidia_driver : Install the packages",
        "",
        "Problems",
        "  gpu03: GPU 0000:3b:00.0 is not in persistence mode. Start nvidia-persistenced.",
        "",
        "Notes",
        "  gpu02, gpu03: A reboot is required: kernel 6.1.0-49-amd64 is running, but kernel 6.1.0-56-amd64 boots next.",
        "",
        "Unreachable: gpu05",
        "",
        "Not started: gpu06",
        "",
        "7 hosts: 2 pass, 1 info, 2 critical, 2 unknown; 1 rebooted, 1 failed, 1 unreachable, 1 not started",
    ]


def test_in_check_mode_the_text_says_that_nothing_has_changed():
    assert text({"gpu01": FLEET["gpu01"]}, is_check=True)[0] == (
        "Check mode: the table shows the state without the changes."
    )


def test_the_example_of_the_documentation():
    page = (Path(__file__).parents[5] / "docs/playbooks.md").read_text(encoding="utf-8")
    assert "\n".join(["```", *text(FLEET), "```"]) in page
