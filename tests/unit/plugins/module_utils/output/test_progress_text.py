# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that say what hosts do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.output.progress_text import HostProgress, lines

BUILD = "building nvidia 580.95.05 for kernel 6.8.0-90-generic"


def test_one_host():
    assert lines([HostProgress("node01", BUILD, 80.9)]) == [
        "node01: 1:20 building nvidia 580.95.05 for kernel 6.8.0-90-generic"
    ]


def test_hosts_that_do_the_same_share_a_line():
    hosts = [HostProgress("b", BUILD, 30), HostProgress("a", BUILD, 85), HostProgress("c", "rebooting", 5)]
    assert lines(hosts) == [f"a, b: 1:25 {BUILD}", "c: 0:05 rebooting"]


def test_two_hundred_hosts():
    hosts = [HostProgress(f"node{number:03}", BUILD, number) for number in range(200)]
    assert lines(hosts) == [f"node000, node001, node002, node003, node004 and 195 more: 3:19 {BUILD}"]


@pytest.mark.parametrize(("seconds", "clock"), [(0, "0:00"), (59.9, "0:59"), (600, "10:00"), (3661, "1:01:01")])
def test_the_time(seconds, clock):
    assert lines([HostProgress("a", "x", seconds)]) == [f"a: {clock} x"]


def test_text_from_a_host_stays_in_its_line():
    (line,) = lines([HostProgress("a", "\x1b[2Jx\ny" + "z" * 1000, 1)])
    assert line.startswith("a: 0:01 \\x1b[2Jx yzz")
    assert len(line) < 120


def test_the_example_of_the_documentation():
    build = "building nvidia 580.95.05 for kernel 6.8.0-90-generic"
    hosts = [HostProgress("gpu01", build, 80), HostProgress("gpu02", build, 70), HostProgress("gpu03", "rebooting", 50)]
    page = (Path(__file__).parents[5] / "docs/playbooks.md").read_text(encoding="utf-8")
    assert "\n".join(["```", *lines(hosts), "```"]) in page
