# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark on real GPUs: the variables of its runs, and the page with the figures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "gpu"))

from acceptance import benchmark, framework, machine

from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark import fleet_report
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark import variables as benchmark_variables

ROOT = Path(__file__).resolve().parents[3]
FOUND = framework.Framework(
    "/opt/venv/bin/python3", "2.11", True, "/usr/bin/python3.12", "/usr", ("/opt/venv/lib",), "/lib64/ld.so", ("/lib",)
)
ABOUT = dict.fromkeys(("gpus", "driver", "engine", "host", "commit", "date"), "known")


def test_the_playbook_accepts_the_variables_of_each_run(tmp_path):
    options = benchmark.arguments(["--size", "256", "--tf32"])
    for name, variables in benchmark.plays(options, FOUND, "/host", "podman"):
        given = {key: value for key, value in variables.items() if key.startswith("benchmark_")}
        wanted = benchmark_variables.request(given, str(tmp_path))
        assert wanted["benchmark_host_python"] == ["/opt/venv/bin/python3"]
        if name == "framework":
            assert wanted["benchmark_python"][0] == "env"
            assert wanted["benchmark_python"][-1] == "/host/usr/bin/python3.12", "the playbook appends the script"
            assert (wanted["benchmark_sizes"], wanted["benchmark_tf32"]) == ([256], True)
        else:
            assert wanted["benchmark_image"] == ""


def documents():
    one = {"size": 1024, "dtype": "float32", "tf32": False, "gpus": ["GPU-0"], "seconds": [0.001, 0.002]}
    cpu = {**one, "gpus": [], "tf32": None, "seconds": [0.1]}
    failed = {**cpu, "size": 4096, "seconds": None, "error": "a | b"}
    about = {"framework": "torch", "framework_version": "2.11", "threads": 8, "cpu": "Xeon", "cuda": "13.0"}
    gpus = [{"uuid": "GPU-0", "index": 0, "name": "NVIDIA H100"}]
    kernel = {"gpus": [{"uuid": "GPU-0", "result": "PASS", "matrix": {**one, "seconds": [0.005]}}]}
    runs = [
        {"gpus": gpus, "container": {**about, "measurements": [one, cpu, failed]}},
        {"gpus": gpus, "host": {**about, "measurements": [one, cpu]}, "kernel": kernel},
    ]
    return [fleet_report.report({"localhost": run}, benchmark_variables.request({})) for run in runs]


def test_the_figures_replace_the_last_section_of_the_page():
    page = (ROOT / "docs/benchmark.md").read_text(encoding="utf-8")
    once = benchmark.with_figures(page, ABOUT, documents())
    assert once.startswith(page.partition(benchmark.HEADING)[0])
    assert "Not measured yet" not in once
    assert "| NVIDIA H100 (0) | container | float32 | 1024 | 1.5 ms | 66.7 % | 1.43 | 66.7 |  |" in once
    assert "| Xeon | container | float32 | 4096 | not measured: a   b | | | | |" in once
    assert "| NVIDIA H100 (0) | kernel | float32 | 1024 | 5 ms |" in once
    assert "| CPU | Xeon, 8 threads |" in once
    assert benchmark.with_figures(once, ABOUT, documents()) == once, "the next run replaces them again"


def test_a_page_without_the_section_is_an_error():
    with pytest.raises(machine.CannotRun, match="has no section ## Measured"):
        benchmark.with_figures("# Benchmark\n", ABOUT, documents())
