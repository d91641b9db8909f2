# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of playbook benchmark: their defaults, and the errors of values that are not valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.figures import (
    BenchmarkValueError,
    outlier_percent,
)

DTYPES = ("float64", "float32", "float16", "bfloat16")
DEFAULTS: dict[str, Any] = {
    "benchmark_image": "",
    "benchmark_sizes": [1024, 4096],
    "benchmark_dtypes": ["float32"],
    "benchmark_warmup": 2,
    "benchmark_repetitions": 5,
    "benchmark_time_limit": 300,
    "benchmark_outlier_percent": 5,
}
RANGES = {
    "benchmark_sizes": (16, 32768),
    "benchmark_warmup": (0, 100),
    "benchmark_repetitions": (1, 1000),
    "benchmark_time_limit": (10, 3600),
}


def request(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with their defaults. Raise an error that names the first value that is not valid."""
    unknown = sorted(set(variables) - set(DEFAULTS))
    if unknown:
        raise BenchmarkValueError(f"Unknown variables: {', '.join(unknown)}. Known variables: {', '.join(DEFAULTS)}.")
    wanted = {**DEFAULTS, **variables}
    image = wanted["benchmark_image"]
    if not isinstance(image, str) or (image and (image.split() != [image] or image.startswith("-"))):
        raise BenchmarkValueError(f"benchmark_image is {image!r}, but must be the name of an image, or empty.")
    for name, known in (("benchmark_sizes", None), ("benchmark_dtypes", DTYPES)):
        values = wanted[name]
        if not isinstance(values, (list, tuple)) or not values:
            raise BenchmarkValueError(f"{name} is {values!r}, but must be a list, for example {DEFAULTS[name]!r}.")
        wanted[name] = [_known(name, value, known) if known else _number(name, value) for value in values]
    for name in ("benchmark_warmup", "benchmark_repetitions", "benchmark_time_limit"):
        wanted[name] = _number(name, wanted[name])
    wanted["benchmark_outlier_percent"] = outlier_percent(wanted["benchmark_outlier_percent"])
    return wanted


def _known(name: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise BenchmarkValueError(f"{name} contains {value!r}. Known values: {', '.join(known)}.")
    return value


def _number(name: str, value: Any) -> int:
    """Return a whole number, which -e passes as a string."""
    least, most = RANGES[name]
    text = "" if isinstance(value, bool) else str(value)
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        what = "contains" if name == "benchmark_sizes" else "is"
        raise BenchmarkValueError(f"{name} {what} {value!r}, but needs whole numbers from {least} to {most}.")
    return int(text)
