# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of playbook benchmark: defaults, and values that are not valid."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.median_and_outliers import BenchmarkValueError
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.variables import DEFAULTS, request


def test_defaults_are_valid():
    commands = {"benchmark_python": ["python3"], "benchmark_host_python": ["python3"]}
    assert request({}) == {**DEFAULTS, **commands, "benchmark_outlier_percent": 5.0}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("benchmark_sizes", ["64", 128], [64, 128]),
        ("benchmark_sizes", "64,128", [64, 128]),
        ("benchmark_sizes", "[64, 128]", [64, 128]),
        ("benchmark_sizes", 64, [64]),
        ("benchmark_dtypes", "float32,float16", ["float32", "float16"]),
        ("benchmark_repetitions", "3", 3),
        ("benchmark_outlier_percent", "2.5", 2.5),
        ("benchmark_tf32", "yes", True),
        ("benchmark_python", "/opt/venv/bin/python3 -s", ["/opt/venv/bin/python3", "-s"]),
        ("benchmark_python", ["env", "A=b c", "python3"], ["env", "A=b c", "python3"]),
        ("benchmark_volumes", [], []),
        ("benchmark_file", "result.json", "/home/operator/result.json"),
        ("benchmark_chart", "/home/operator/chart.svg", "/home/operator/chart.svg"),
    ],
)
def test_text_from_the_command_line_is_converted(name, value, expected):
    given = request({name: value}, "/home/operator", is_directory=lambda path: path == "/home/operator")
    assert given[name] == expected


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"benchmark_imge": "x"}, "Unknown variables: benchmark_imge. Known variables: benchmark_image,"),
        ({"benchmark_image": "a b"}, "benchmark_image is 'a b', but must be the name of an image, or empty."),
        ({"benchmark_image": "--privileged"}, "benchmark_image is '--privileged'"),
        ({"benchmark_image": None}, "benchmark_image is None"),
        ({"benchmark_sizes": []}, "benchmark_sizes is [], but must be a list, for example [1024, 4096]."),
        ({"benchmark_sizes": ""}, "benchmark_sizes is '', but must be a list"),
        ({"benchmark_sizes": {"a": 1}}, "benchmark_sizes is {'a': 1}, but must be a list"),
        ({"benchmark_sizes": [8]}, "benchmark_sizes contains 8, but needs whole numbers from 16 to 32768."),
        ({"benchmark_sizes": [1e3]}, "benchmark_sizes contains 1000.0"),
        ({"benchmark_sizes": [True]}, "benchmark_sizes contains True"),
        ({"benchmark_dtypes": ["fp8"]}, "benchmark_dtypes contains 'fp8'. Known values: float64, float32,"),
        ({"benchmark_dtypes": [["float32"]]}, "benchmark_dtypes contains ['float32']"),
        ({"benchmark_repetitions": 0}, "benchmark_repetitions is 0, but needs whole numbers from 1 to 1000."),
        ({"benchmark_warmup": -1}, "benchmark_warmup is -1"),
        ({"benchmark_time_limit": "5m"}, "benchmark_time_limit is '5m'"),
        ({"benchmark_time_limit": 9}, "benchmark_time_limit is 9, but needs whole numbers from 10 to 3600."),
        ({"benchmark_outlier_percent": "x"}, "benchmark_outlier_percent is 'x'"),
        (
            {"benchmark_archive": "image.tar", "benchmark_image": "x"},
            "benchmark_archive is 'image.tar', but must be an",
        ),
        ({"benchmark_archive": 3}, "benchmark_archive is 3, but must be an absolute path on the host, or empty."),
        ({"benchmark_archive": "/a.tar"}, "but benchmark_image is empty. Set it to the name of the image"),
        ({"benchmark_engine": "containerd"}, "benchmark_engine is 'containerd'. Known values: auto, docker, podman."),
        ({"benchmark_engine": ["docker"]}, "benchmark_engine is ['docker']. Known values"),
        ({"benchmark_pull": True}, "benchmark_pull is True. Known values: missing, always, never."),
        ({"benchmark_python": ""}, "benchmark_python is '', but must be the command of Python 3.8"),
        ({"benchmark_python": "'a"}, 'benchmark_python is "\'a", but must be the command'),
        ({"benchmark_python": ["a", 1]}, "benchmark_python is ['a', 1], but must be the command"),
        ({"benchmark_host_python": None}, "benchmark_host_python is None, but must be the command"),
        ({"benchmark_volumes": ["/data"]}, "benchmark_volumes contains '/data', but needs SOURCE:DESTINATION"),
        ({"benchmark_volumes": None}, "benchmark_volumes is None, but must be a list, for example ['/data:/data:ro']."),
        ({"benchmark_tf32": "maybe"}, "benchmark_tf32 is 'maybe', but must be true or false."),
        ({"benchmark_file": 1}, "benchmark_file is 1, but must be the path of a file on the controller, or empty."),
        ({"benchmark_file": "missing/a.json"}, "but the controller has no directory /tmp/missing. Create it first."),
        ({"benchmark_chart": "/tmp/"}, "benchmark_chart is '/tmp/', which is a directory. Add the name of a file."),
    ],
)
def test_values_that_are_not_valid_are_named(variables, message):
    with pytest.raises(BenchmarkValueError) as error:
        request(variables, "/tmp", is_directory=lambda path: path.rstrip("/") == "/tmp")
    assert message in str(error.value)
