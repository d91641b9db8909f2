# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of playbook benchmark: errors, what a host measures, and the time that is left."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.filter import benchmark_internal
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark import measuring_program

FILTERS = benchmark_internal.FilterModule().filters()
ENGINES = {"docker": {"version": "28.5.1"}, "podman": {"version": None}}
USAGE = {"gpus": [], "engines": ENGINES, "nvidia_gpu_state_reason": "no NVIDIA GPU"}


def settings(**variables):
    return FILTERS["_benchmark_request"](variables, "/")


def test_a_wrong_variable_is_an_error_of_the_filter():
    with pytest.raises(AnsibleFilterError, match="benchmark_engine is 'lxc'"):
        settings(benchmark_engine="lxc")


@pytest.mark.parametrize(("sizes", "size"), [([16], 64), ([100, 1000], 960), ([64], 64), ([32768], 16384)])
def test_the_kernel_has_the_largest_size_that_it_supports(sizes, size):
    assert FILTERS["_benchmark_start"](settings(benchmark_sizes=sizes), USAGE)["matrix_size"] == size


def test_the_program_for_the_hosts_is_complete():
    start = FILTERS["_benchmark_start"](settings(), USAGE)
    space = {"__name__": "copy"}
    exec(compile(start["program"], "program", "exec"), space)
    assert set(space["DEFAULTS"]) == set(measuring_program.DEFAULTS)


@pytest.mark.parametrize(("elapsed", "left"), [(None, 300), (100.4, 199), (299.9, 1), (400, 1)])
def test_the_host_gets_the_time_that_the_container_left(elapsed, left):
    start = FILTERS["_benchmark_start"](settings(), USAGE)
    before = {"framework": "torch", "elapsed_s": elapsed}
    found = FILTERS["_benchmark_arguments"](settings(), start, before)
    assert (found["time_limit"], found["framework"]) == (left, "torch")
    assert set(found) == set(measuring_program.DEFAULTS), "the program knows every key"


def test_the_report_has_every_host():
    hostvars = {
        "node1": {"gpu_benchmark_request": settings(), "gpu_benchmark_result": {"error": "no engine"}},
        "node2": {},
    }
    found = FILTERS["_benchmark_report"](hostvars, ["node1", "node2"], "gpu_benchmark_result")
    assert [(host["host"], bool(host["error"])) for host in found["hosts"]] == [("node1", True), ("node2", True)]
    assert found["settings"]["benchmark_repetitions"] == 5
    assert FILTERS["_benchmark_failures"](found, "node1") == ["no engine"]
    assert FILTERS["_benchmark_chart"](found, "title")["bars"] == []
