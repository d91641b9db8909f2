# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark of one host and of a fleet: free GPUs, rows, the table with its marks, and the rows of the chart."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark import (
    fleet_report,
    free_or_skipped_gpus,
    host_results,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.chart import chart
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.variables import request

SETTINGS = request({})
FREE = {
    "uuid": "GPU-0",
    "index": 0,
    "name": "NVIDIA H200",
    "mig_profile": None,
    "unusable_reason": None,
    "free": True,
    "holders": [],
}
ENGINES = {"docker": {"version": "28.5.1"}, "podman": {"version": "5.4.2"}}


def usage(*gpus, **more):
    return {"gpus": list(gpus), "engines": ENGINES, "nvidia_gpu_state_reason": "no NVIDIA GPU", **more}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"holders": [{"kind": "container", "name": "trainer"}]}, "used by container trainer"),
        ({"holders": [{"kind": "process", "name": "a\nb"}], "free": False}, "used by process a\\x0ab"),
        ({"mig_profile": "1g.10gb"}, "a MIG device, which is not comparable with a whole GPU"),
        ({"unusable_reason": "it is lost", "free": False}, "it is lost"),
        ({"free": False}, "not free"),
    ],
)
def test_a_gpu_that_is_used_or_unusable_is_left_alone(change, reason):
    chosen = free_or_skipped_gpus.selection(usage(FREE, {**FREE, "uuid": "GPU-1", "index": 1, **change}), "auto")
    assert chosen["uuids"] == ["GPU-0"]
    assert [(gpu["uuid"], gpu["reason"]) for gpu in chosen["skipped"]] == [("GPU-1", reason)]
    assert free_or_skipped_gpus.selection(usage({**FREE, **change}), "auto")["reason"] == "no GPU is free"


def test_a_host_without_gpus_says_why():
    assert free_or_skipped_gpus.selection(usage(), "auto")["reason"] == "no NVIDIA GPU"


@pytest.mark.parametrize(
    ("wanted", "docker", "podman", "engine"),
    [
        ("auto", "28", "5", "docker"),
        ("auto", None, "5", "podman"),
        ("auto", None, None, "docker"),
        ("podman", "28", None, "podman"),
    ],
)
def test_the_engine_is_that_of_gpu_container(wanted, docker, podman, engine):
    engines = {"docker": {"version": docker}, "podman": {"version": podman}}
    assert free_or_skipped_gpus.selection(usage(FREE, engines=engines), wanted)["engine"] == engine


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (
            {"rc": 127, "stdout": "", "stderr": "sh: python3: not found"},
            "benchmark_python is 'python3', which cannot be",
        ),
        ({"rc": 1, "stderr": 'exec: "python3": executable file not found in $PATH'}, "Set it to Python 3.8 or later."),
        ({"rc": 137, "stdout": ""}, "the limit of 60 s was reached"),
        ({"rc": 2, "stdout": "[]", "stderr": "a\nlast line"}, "the program ended with exit status 2: last line"),
        ({"msg": "ssh failed"}, "ssh failed"),
        ({"rc": 0, "stdout": '{"measurements": 1}'}, "the program ended with exit status 0: no error message"),
    ],
)
def test_a_program_without_a_result_is_an_error_with_a_way_out(result, error):
    assert error in host_results.document(result, "benchmark_python", ["python3"], 60)["error"]


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (
            {"msg": 'Error starting container: exec: "python3": executable file not found in $PATH'},
            "benchmark_image tiny cannot start 'python3', the value of benchmark_python. Set it to Python 3.8 or later",
        ),
        (
            {"msg": "non-zero return code", "rc": 125, "stderr": "Error: open /a.tar: no such file or directory\n"},
            "non-zero return code: Error: open /a.tar: no such file or directory.",
        ),
        (
            {"msg": "image a is not in docker, and pull=never. Load the image, or set pull=missing."},
            "image a is not in docker, and pull=never. Load the image, or set pull=missing. In this playbook, use "
            "benchmark_archive or benchmark_pull.",
        ),
        ({"msg": "This task needs root."}, "This task needs root."),
        ({}, "a task failed."),
    ],
)
def test_a_failed_task_has_its_reason(result, error):
    assert host_results.failure(result, request({"benchmark_image": "tiny"})).startswith(error)


def test_the_reason_of_the_kernel_comes_first():
    kernel = {"gpus": [], "error": "cuInit: CUDA_ERROR_NO_DEVICE (100)"}
    result = {"host": {"gpu_reason": "python cannot use GPUs.", "measurements": []}, "kernel": kernel}
    assert fleet_report.gpu_reason(result) == "cuInit: CUDA_ERROR_NO_DEVICE (100)"


def test_the_result_is_the_last_line_of_the_output():
    told = {"measurements": [], "framework": "torch"}
    assert (
        host_results.document(
            {"stdout": f"warning\n{json.dumps(told)}\n", "rc": 0}, "benchmark_python", ["python3"], 60
        )
        == told
    )


def gpu(number, **more):
    return {
        "uuid": f"GPU-{number}",
        "index": number,
        "name": "NVIDIA H200",
        "temperature": {"gpu_c": 40},
        "clocks": {"sm_mhz": 345},
        "power": {"enforced_limit_w": 700.0, "default_limit_w": 700.0},
        "pcie": {"width": 16, "width_max": 16},
        **more,
    }


def told(seconds, cpu=2.0, together=None, **more):
    """Return a document of the program. `seconds`: of each GPU."""

    def one(gpus, value):
        reading = {"temperature_c": 88, "sm_clock_mhz": 990, "power_limit_w": 350.0, "pcie_width": 8}
        return {
            "gpus": [f"GPU-{number}" for number in gpus],
            "size": 1000,
            "dtype": "float32",
            "tf32": False if gpus else None,
            "seconds": [value, value, value * 1.5],
            "readings": [reading for _gpu in gpus],
        }

    measurements = [one([number], value) for number, value in enumerate(seconds)]
    measurements += [one(range(len(seconds)), together)] if together else []
    measurements.append(one([], cpu))
    about = {"framework": "torch", "framework_version": "2.11", "cuda": "12.8", "threads": 16, "cpu": "AMD EPYC"}
    return {**about, "python": "3.12", "problems": [], "gpu_reason": None, "measurements": measurements, **more}


def fleet(results):
    return fleet_report.report(results, SETTINGS)


def row(document, **wanted):
    return next(row for row in document["measurements"] if all(row[name] == value for name, value in wanted.items()))


def test_a_gpu_is_compared_with_the_cpu_and_a_container_with_the_host():
    gpus = [gpu(0), gpu(1)]
    result = {"gpus": gpus, "container": told([0.002, 0.002], together=0.0025), "host": told([0.001, 0.001], cpu=1.0)}
    document = fleet({"node1": result})
    single = row(document, place="container", uuids=["GPU-0"])
    assert (single["median_s"], single["speed_up"], single["times_host"]) == (0.002, 1000.0, 0.5)
    assert (single["spread_percent"], single["repetitions"]) == (50.0, 3)
    assert single["tflops"] == pytest.approx(1.0)
    both = row(document, count=2)
    assert both["speed_up"] == pytest.approx(1600.0), "two GPUs compute two products"
    assert both["outlier"] is None
    assert row(document, place="host", uuids=["GPU-1"])["times_host"] is None
    assert row(document, device="cpu", place="container")["speed_up"] is None


def test_the_table_marks_a_slow_gpu_with_what_may_explain_it():
    result = {"gpus": [gpu(number) for number in range(4)], "container": told([0.002, 0.002, 0.002, 0.004])}
    document = fleet({"node1": result})
    lines = fleet_report.table(document)
    assert "NVIDIA H200: float32 1000, torch 2.11 in a container" in lines
    assert "AMD EPYC: float32 1000, torch 2.11 in a container" in lines
    slow = [line for line in lines if "SLOW" in line]
    assert len(slow) == 1
    assert slow[0].split()[:2] == ["node1", "3"]
    assert slow[0].endswith(
        "SLOW: 50.0 % below the median (temperature 88 °C, SM clock 990 MHz, power limit 350 W, PCIe x8)"
    )


def test_siblings_on_other_hosts_are_compared():
    hosts = {f"node{number}": {"gpus": [gpu(0)], "container": told([0.001 if number else 0.1])} for number in range(4)}
    assert [line.split()[0] for line in fleet_report.table(fleet(hosts)) if "SLOW" in line] == ["node0"]


def test_another_framework_or_model_is_not_compared():
    other = {"gpus": [gpu(0)], "container": told([0.1], framework_version="1.0")}
    hosts = {f"node{number}": {"gpus": [gpu(0)], "container": told([0.001])} for number in range(3)}
    lines = fleet_report.table(fleet({**hosts, "other": other}))
    assert not [line for line in lines if "SLOW" in line]
    assert lines[-1].startswith(
        "Slow GPUs are marked only for models with 4 or more measured GPUs, not for NVIDIA H200"
    )


def test_the_kernel_of_the_probe_finds_slow_gpus_without_a_framework():
    def probed(number):
        matrix = {"size": 1024, "dtype": "float32", "seconds": [0.3 if number == 2 else 0.1], "note": "not comparable"}
        return {"uuid": f"GPU-{number}", "result": "PASS", "matrix": matrix}

    kernel = {"cuda_version": "13.0", "error": None, "gpus": [probed(number) for number in range(4)]}
    document = fleet({"node1": {"gpus": [gpu(number) for number in range(4)], "kernel": kernel}})
    slow = next(line for line in fleet_report.table(document) if "SLOW" in line)
    assert slow.split()[1] == "2"
    assert "temperature 40 °C, SM clock 345 MHz, power limit 700 W, PCIe x16 after the load); not comparable" in slow


def test_a_gpu_that_does_not_compute_fails_its_host():
    broken = {"uuid": "GPU-0", "result": "memory round trip of 8 bytes: byte 3 changed", "matrix": None}
    kernel = {"cuda_version": "13.0", "error": None, "gpus": [broken]}
    document = fleet({"node1": {"gpus": [gpu(0)], "host": told([]), "kernel": kernel}})
    assert fleet_report.failures(document, "node1") == ["GPU 0: memory round trip of 8 bytes: byte 3 changed"]


def test_what_was_not_measured_is_named():
    skipped = [{"uuid": "GPU-1", "index": 1, "model": "NVIDIA H200", "reason": "used by container trainer"}]
    measured = told([])
    measured["measurements"][0].update(error="RuntimeError: out\nof memory", seconds=None)
    results = {
        "cpu": {"gpus": [], "reason": "no NVIDIA GPU", "container": measured, "host": {"framework": None}},
        "gone": None,
        "busy": {
            "gpus": [],
            "reason": None,
            "skipped": skipped,
            "container": {"error": "no Python", "measurements": []},
        },
    }
    document = fleet(results)
    text = "\n".join(fleet_report.table(document))
    assert "RuntimeError: out of memory" in text
    assert "cpu: no GPU was measured: no NVIDIA GPU" in text
    assert "cpu: host: the framework of the container cannot be imported, so it was measured in the container" in text
    assert "gone: the host is unreachable, or an earlier task failed" in text
    assert "busy: GPU 1 was not measured: used by container trainer" in text
    assert "busy: container: no Python" in text
    assert fleet_report.failures(document, "busy") == ["no Python"]
    assert fleet_report.failures(document, "gone") == ["the host is unreachable, or an earlier task failed"]
    assert fleet_report.failures(document, "cpu") == ["nothing was measured. See the table for the reasons."]


def test_a_host_whose_gpus_are_all_used_does_not_fail():
    document = fleet({"node1": {"gpus": [], "reason": "no GPU is free", "container": told([])}})
    assert fleet_report.failures(document, "node1") == []
    assert document["hosts"][0]["gpu_reason"] == "no GPU is free"


def test_durations_that_are_not_numbers_are_an_error_of_the_row():
    broken = told([])
    broken["measurements"][0]["seconds"] = ["fast"]
    assert "'fast'" in fleet({"a": {"container": broken}})["measurements"][0]["error"]


def test_the_chart_has_one_bar_for_all_gpus_of_a_model():
    results = {f"node{number}": {"gpus": [gpu(0)], "container": told([0.001 * (number + 1)])} for number in range(3)}
    rows = fleet_report.chart_rows(fleet(results))
    assert [(one["label"], one["seconds"]) for one in rows] == [
        ("AMD EPYC, median of 3: float32 1000, container", 2.0),
        ("NVIDIA H200, median of 3: float32 1000, container", 0.002),
    ]
    assert [drawn["text"] for drawn in chart("", rows)["bars"]] == ["2 s", "2 ms, 1,000 times"]


def test_an_empty_fleet_has_a_table():
    assert fleet_report.table(fleet({})) == ["Nothing was measured."]


@pytest.mark.parametrize(
    ("tflops", "text"), [(804.4, "804 T"), (1.0, "1 T"), (0.25, "250 G"), (3.2e-5, "32 M"), (2e-8, "2e+04")]
)
def test_speeds_have_a_prefix(tflops, text):
    assert fleet_report.flops(tflops) == text
