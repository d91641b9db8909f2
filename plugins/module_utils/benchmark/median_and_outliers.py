# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of a benchmark: median and spread, speed-up, and GPUs that are slower than their siblings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# With fewer GPUs of a model, the median says too little about the model.
LEAST_GPUS = 4


class BenchmarkValueError(ValueError):
    """A value of the benchmark is not valid. The message has the value and the way out."""


class Summary(NamedTuple):
    """Repetitions of one measurement. The spread is the range in percent of the median."""

    median: float
    fastest: float
    slowest: float
    spread_percent: float
    repetitions: int


def summarize(seconds: Sequence[float]) -> Summary:
    """Summarize the durations of the repetitions, without the warm-up."""
    if not seconds:
        raise BenchmarkValueError("The benchmark measured no repetition. Set the number of repetitions to 1 or more.")
    wrong = next((value for value in seconds if not _is_duration(value)), None)
    if wrong is not None:
        raise BenchmarkValueError(f"The benchmark measured {wrong!r} seconds, but a duration must be a number above 0.")
    median = statistics.median(seconds)
    spread = (max(seconds) - min(seconds)) / median * 100
    return Summary(median, min(seconds), max(seconds), round(spread, 1), len(seconds))


def _is_duration(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def speed_up(slow: float, fast: float) -> float:
    """Return how many times faster `fast` seconds are than `slow` seconds."""
    wrong = next((value for value in (slow, fast) if not _is_duration(value)), None)
    if wrong is not None:
        raise BenchmarkValueError(f"The speed-up of {wrong!r} seconds is unknown: a duration must be a number above 0.")
    return slow / fast


def outlier_percent(value: Any) -> float:
    """Return the value of benchmark_outlier_percent as a number."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < 100:
        raise BenchmarkValueError(
            f"benchmark_outlier_percent is {value!r}, but must be a number above 0 and below 100, for example 5."
        )
    return number


def mark_outliers(gpus: Sequence[Mapping[str, Any]], percent: Any) -> list[dict[str, Any]]:
    """Add `below_median_percent` and `outlier` to each GPU: its speed compared with the median of its model.

    Only measurements of the same `model` and `measurement` are compared. A GPU without `speed` was not measured. Both
    values are None if the GPU was not measured or fewer than LEAST_GPUS of its model were.
    """
    limit = outlier_percent(percent)
    speeds: dict[tuple[Any, Any], list[float]] = {}
    for gpu in gpus:
        if gpu.get("speed") is not None:
            speeds.setdefault((gpu["model"], gpu["measurement"]), []).append(gpu["speed"])
    marked = []
    for gpu in gpus:
        group = speeds.get((gpu["model"], gpu["measurement"]), [])
        below = outlier = None
        if gpu.get("speed") is not None and len(group) >= LEAST_GPUS:
            median = statistics.median(group)
            exact = (median - gpu["speed"]) / median * 100
            # Rounding before the comparison keeps binary fractions from marking a GPU that is exactly at the limit.
            below, outlier = round(exact, 1), round(exact, 6) > limit
        marked.append({**gpu, "below_median_percent": below, "outlier": outlier})
    return marked


def duration(seconds: float) -> str:
    """Return a duration with three digits and its unit."""
    for unit, factor in (("s", 1), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
