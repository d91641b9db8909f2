# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of a benchmark: repetitions, speed-up and outliers, and values that are not valid."""

from __future__ import annotations

import math

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark import median_and_outliers


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([2.0], (2.0, 2.0, 2.0, 0.0, 1)),
        ([1.0, 9.0, 2.0], (2.0, 1.0, 9.0, 400.0, 3)),
        ([1.0, 2.0, 3.0, 4.0], (2.5, 1.0, 4.0, 120.0, 4)),
    ],
)
def test_repetitions_have_a_median_and_a_spread(seconds, expected):
    assert tuple(median_and_outliers.summarize(seconds)) == expected


@pytest.mark.parametrize("seconds", [[], [0.0], [-1.0], [math.nan], [1.0, math.inf], ["1"], [True]])
def test_durations_that_are_not_valid_are_refused(seconds):
    with pytest.raises(median_and_outliers.BenchmarkValueError):
        median_and_outliers.summarize(seconds)


def test_the_speed_up_is_slow_divided_by_fast():
    assert median_and_outliers.speed_up(8.0, 2.0) == 4.0
    with pytest.raises(median_and_outliers.BenchmarkValueError, match="0 seconds is unknown"):
        median_and_outliers.speed_up(8.0, 0)


@pytest.mark.parametrize("value", ["five", "", None, True, 0, -5, 100, "nan", [], {}])
def test_a_percentage_that_is_not_valid_is_named(value):
    with pytest.raises(median_and_outliers.BenchmarkValueError, match="must be a number above 0 and below 100"):
        median_and_outliers.mark_outliers([], value)


def gpus(speeds, model="NVIDIA H100", measurement="fp16 8192"):
    return [{"model": model, "measurement": measurement, "speed": speed} for speed in speeds]


@pytest.mark.parametrize(
    ("speeds", "percent", "expected"),
    [
        ([100, 100, 100], 5, [None, None, None]),
        ([100, 100, 100, 50], 5, [False, False, False, True]),
        ([100, 100, 100, 95], "5", [False, False, False, False]),
        ([100, 100, 100, 94.9], 5, [False, False, False, True]),
        ([100, 100, 100, 150], 5, [False, False, False, False]),
        ([100, 100, 100, None], 5, [None, None, None, None]),
        ([100, 100, 100, 100, None], 5, [False, False, False, False, None]),
    ],
)
def test_gpus_below_the_median_of_four_or_more_are_outliers(speeds, percent, expected):
    assert [gpu["outlier"] for gpu in median_and_outliers.mark_outliers(gpus(speeds), percent)] == expected


def test_models_and_measurements_are_not_compared_with_each_other():
    mixed = gpus([100] * 4) + gpus([10] * 4, model="NVIDIA L4") + gpus([1] * 4, measurement="fp64 4096")
    assert {gpu["outlier"] for gpu in median_and_outliers.mark_outliers(mixed, 5)} == {False}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (12.345, "12.3 s"),
        (1, "1 s"),
        (0.9994, "999 ms"),
        (0.0028, "2.8 ms"),
        (0.0000959, "95.9 µs"),
        (2e-9, "0.002 µs"),
    ],
)
def test_a_duration_has_three_digits_and_its_unit(seconds, text):
    assert median_and_outliers.duration(seconds) == text
