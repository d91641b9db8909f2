# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of playbook benchmark: their defaults, and the errors of values that are not valid."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.common.validation import check_type_bool

from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.median_and_outliers import (
    BenchmarkValueError,
    outlier_percent,
)

DTYPES = ("float64", "float32", "float16", "bfloat16")
ENGINES = ("auto", "docker", "podman")
PULLS = ("missing", "always", "never")
DEFAULTS: dict[str, Any] = {
    "benchmark_image": "",
    "benchmark_archive": "",
    "benchmark_pull": "missing",
    "benchmark_engine": "auto",
    "benchmark_python": "python3",
    "benchmark_volumes": [],
    "benchmark_host_python": "python3",
    "benchmark_sizes": [1024, 4096],
    "benchmark_dtypes": ["float32"],
    "benchmark_tf32": False,
    "benchmark_warmup": 2,
    "benchmark_repetitions": 5,
    "benchmark_time_limit": 300,
    "benchmark_outlier_percent": 5,
    "benchmark_file": "",
    "benchmark_chart": "",
}
RANGES = {
    "benchmark_sizes": (16, 32768),
    "benchmark_warmup": (0, 100),
    "benchmark_repetitions": (1, 1000),
    "benchmark_time_limit": (10, 3600),
}


def request(
    variables: Mapping[str, Any], directory: str = "", is_directory: Callable[[str], bool] = os.path.isdir
) -> dict[str, Any]:
    """Return the settings with their defaults. Raise an error that names the first value that is not valid.

    `directory`: where ansible-playbook runs, for files on the controller with a relative path.
    """
    unknown = sorted(set(variables) - set(DEFAULTS))
    if unknown:
        raise BenchmarkValueError(f"Unknown variables: {', '.join(unknown)}. Known variables: {', '.join(DEFAULTS)}.")
    wanted = {**DEFAULTS, **variables}
    _check_image(wanted)
    for name, known in (("benchmark_engine", ENGINES), ("benchmark_pull", PULLS)):
        if not isinstance(wanted[name], str) or wanted[name] not in known:
            raise BenchmarkValueError(f"{name} is {wanted[name]!r}. Known values: {', '.join(known)}.")
    for name in ("benchmark_python", "benchmark_host_python"):
        wanted[name] = _command(name, wanted[name])
    wanted["benchmark_volumes"] = [_volume(entry) for entry in _list("benchmark_volumes", wanted, may_be_empty=True)]
    sizes = [_number("benchmark_sizes", value) for value in _list("benchmark_sizes", wanted)]
    wanted["benchmark_sizes"] = sorted(set(sizes))
    wanted["benchmark_dtypes"] = list(dict.fromkeys(_dtype(value) for value in _list("benchmark_dtypes", wanted)))
    wanted["benchmark_tf32"] = _boolean("benchmark_tf32", wanted["benchmark_tf32"])
    for name in ("benchmark_warmup", "benchmark_repetitions", "benchmark_time_limit"):
        wanted[name] = _number(name, wanted[name])
    wanted["benchmark_outlier_percent"] = outlier_percent(wanted["benchmark_outlier_percent"])
    for name in ("benchmark_file", "benchmark_chart"):
        wanted[name] = _file_on_controller(name, wanted[name], directory, is_directory)
    return wanted


def _check_image(wanted: Mapping[str, Any]) -> None:
    image, archive = wanted["benchmark_image"], wanted["benchmark_archive"]
    if not isinstance(image, str) or (image and (image.split() != [image] or image.startswith("-"))):
        raise BenchmarkValueError(f"benchmark_image is {image!r}, but must be the name of an image, or empty.")
    if not isinstance(archive, str) or (archive and not archive.startswith("/")):
        raise BenchmarkValueError(
            f"benchmark_archive is {archive!r}, but must be an absolute path on the host, or empty."
        )
    if archive and not image:
        raise BenchmarkValueError(
            f"benchmark_archive is {archive!r}, but benchmark_image is empty. Set it to the name of the image in the "
            "archive."
        )


def _list(name: str, wanted: Mapping[str, Any], *, may_be_empty: bool = False) -> list[Any]:
    """Return a list. Text with commas is one, too, as in `-e benchmark_sizes=1024,4096`."""
    value = wanted[name]
    if isinstance(value, str):
        value = [part.strip() for part in value.strip().removeprefix("[").removesuffix("]").split(",") if part.strip()]
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, (list, tuple)) or not (value or may_be_empty):
        example = DEFAULTS[name] or ["/data:/data:ro"]
        raise BenchmarkValueError(f"{name} is {wanted[name]!r}, but must be a list, for example {example!r}.")
    return list(value)


def _command(name: str, value: Any) -> list[str]:
    """Return the words of a command that starts Python."""
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError:
        words = None
    if not isinstance(words, (list, tuple)) or not words or not all(isinstance(word, str) and word for word in words):
        raise BenchmarkValueError(
            f"{name} is {value!r}, but must be the command of Python 3.8 or later, for example 'python3'."
        )
    return list(words)


def _volume(value: Any) -> str:
    if not isinstance(value, str) or not 2 <= len(value.split(":")) <= 3 or not all(value.split(":")):
        raise BenchmarkValueError(
            f"benchmark_volumes contains {value!r}, but needs SOURCE:DESTINATION or SOURCE:DESTINATION:ro."
        )
    return value


def _dtype(value: Any) -> str:
    if value not in DTYPES:
        raise BenchmarkValueError(f"benchmark_dtypes contains {value!r}. Known values: {', '.join(DTYPES)}.")
    return value


def _boolean(name: str, value: Any) -> bool:
    try:
        return bool(check_type_bool(value))
    except TypeError:
        raise BenchmarkValueError(f"{name} is {value!r}, but must be true or false.") from None


def _number(name: str, value: Any) -> int:
    """Return a whole number, which -e passes as a string."""
    least, most = RANGES[name]
    text = "" if isinstance(value, bool) else str(value)
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        what = "contains" if name == "benchmark_sizes" else "is"
        raise BenchmarkValueError(f"{name} {what} {value!r}, but needs whole numbers from {least} to {most}.")
    return int(text)


def _file_on_controller(name: str, value: Any, directory: str, is_directory: Callable[[str], bool]) -> str:
    if not isinstance(value, str):
        raise BenchmarkValueError(f"{name} is {value!r}, but must be the path of a file on the controller, or empty.")
    if not value:
        return ""
    path = os.path.join(directory, value)
    if is_directory(path) or value.endswith("/"):
        raise BenchmarkValueError(f"{name} is {value!r}, which is a directory. Add the name of a file.")
    if not is_directory(os.path.dirname(path) or "."):
        raise BenchmarkValueError(
            f"{name} is {value!r}, but the controller has no directory {os.path.dirname(path)}. Create it first."
        )
    return path
