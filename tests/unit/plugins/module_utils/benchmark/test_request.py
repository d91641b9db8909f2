# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of playbook benchmark: defaults, and values that are not valid."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.figures import BenchmarkValueError
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.request import DEFAULTS, request


def test_defaults_are_valid_and_strings_become_numbers():
    assert request({}) == {**DEFAULTS, "benchmark_outlier_percent": 5.0}
    given = request({"benchmark_sizes": ["64", 128], "benchmark_repetitions": "3", "benchmark_outlier_percent": "2.5"})
    assert (given["benchmark_sizes"], given["benchmark_repetitions"]) == ([64, 128], 3)
    assert given["benchmark_outlier_percent"] == 2.5


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"benchmark_imge": "x"}, "Unknown variables: benchmark_imge. Known variables: benchmark_image,"),
        ({"benchmark_image": "a b"}, "benchmark_image is 'a b', but must be the name of an image, or empty."),
        ({"benchmark_image": "--privileged"}, "benchmark_image is '--privileged'"),
        ({"benchmark_image": None}, "benchmark_image is None"),
        ({"benchmark_sizes": []}, "benchmark_sizes is [], but must be a list, for example [1024, 4096]."),
        ({"benchmark_sizes": 1024}, "benchmark_sizes is 1024, but must be a list"),
        ({"benchmark_sizes": [8]}, "benchmark_sizes contains 8, but needs whole numbers from 16 to 32768."),
        ({"benchmark_sizes": [1e3]}, "benchmark_sizes contains 1000.0"),
        ({"benchmark_sizes": [True]}, "benchmark_sizes contains True"),
        ({"benchmark_dtypes": ["fp8"]}, "benchmark_dtypes contains 'fp8'. Known values: float64, float32,"),
        ({"benchmark_dtypes": [["float32"]]}, "benchmark_dtypes contains ['float32']"),
        ({"benchmark_repetitions": 0}, "benchmark_repetitions is 0, but needs whole numbers from 1 to 1000."),
        ({"benchmark_warmup": -1}, "benchmark_warmup is -1"),
        ({"benchmark_time_limit": "5m"}, "benchmark_time_limit is '5m'"),
        ({"benchmark_outlier_percent": "x"}, "benchmark_outlier_percent is 'x'"),
    ],
)
def test_values_that_are_not_valid_are_named(variables, message):
    with pytest.raises(BenchmarkValueError) as error:
        request(variables)
    assert message in str(error.value)
