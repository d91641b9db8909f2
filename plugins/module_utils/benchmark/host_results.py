# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of one host of a benchmark as rows. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.median_and_outliers import (
    BenchmarkValueError,
    speed_up,
    summarize,
)

_NO_PYTHON = (126, 127)
_KILLED = 137
PLACES = ("container", "host", "kernel")


def document(result: Mapping[str, Any], variable: str, command: Sequence[str], time_limit: int) -> dict[str, Any]:
    """Return what the program printed, from the result of the task that started it, or an error with a way out.

    `variable` has the command of Python.
    """
    text = str(result.get("stdout") or "").strip().splitlines()
    try:
        found = json.loads(text[-1])
        if isinstance(found, dict) and isinstance(found["measurements"], list):
            return found
    except (ValueError, IndexError, KeyError, TypeError):
        pass
    status, words = result.get("rc"), str(result.get("stderr") or result.get("msg") or "").strip()
    tail = shown(words.splitlines()[-1]) if words else "no error message"
    if status in _NO_PYTHON or "executable file" in words or "No such file" in words:
        name = " ".join(command)
        return _failed(f"{variable} is {name!r}, which cannot be started: {tail}. Set it to Python 3.8 or later.")
    if status == _KILLED:
        return _failed(f"the program was killed. Memory may be too small, or the limit of {time_limit} s was reached.")
    return _failed(f"the program ended with exit status {status}: {tail}")


def failure(result: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return why a task failed, with a way out for what the variables can cause. `result`: of the task."""
    text = str(result.get("msg") or "a task failed").rstrip(".")
    # The message of a command is only that it failed.
    words = f"{text}: {result['stderr'].strip()}" if result.get("stderr") else text
    command = " ".join(settings["benchmark_python"])
    if "executable file" in words:
        image = settings["benchmark_image"]
        return (
            f"benchmark_image {image} cannot start {command!r}, the value of benchmark_python. Set it to Python 3.8 or "
            f"later in this image. {text}."
        )
    if "pull=never" in words:
        return f"{text}. In this playbook, use benchmark_archive or benchmark_pull."
    if result.get("stderr"):
        return f"{words.rstrip('.')}."
    return f"{text}."


def _failed(error: str) -> dict[str, Any]:
    return {"error": error, "framework": None, "measurements": []}


def rows(host: str, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row per measurement. `result` has the documents of PLACES, the GPU facts, or an error."""
    gpus = {gpu["uuid"]: gpu for gpu in result.get("gpus") or ()}
    found = []
    for place in ("container", "host"):
        told = result.get(place) or {}
        found += [_row(host, place, told, one, gpus) for one in told.get("measurements") or ()]
    found += _kernel_rows(host, result.get("kernel") or {}, gpus)
    _compare(found)
    return found


def _row(
    host: str, place: str, told: Mapping[str, Any], one: Mapping[str, Any], gpus: Mapping[str, Any]
) -> dict[str, Any]:
    uuids = list(one.get("gpus") or ())
    models = sorted({str((gpus.get(uuid) or {}).get("name") or "unknown GPU") for uuid in uuids})
    row = {
        "host": host,
        "place": place,
        "device": "gpu" if uuids else "cpu",
        "model": " + ".join(models) if uuids else str(told.get("cpu") or "unknown CPU"),
        "count": len(uuids) or 1,
        "uuids": uuids,
        "indexes": [(gpus.get(uuid) or {}).get("index") for uuid in uuids],
        **{name: told.get(name) for name in ("framework", "framework_version", "cuda", "python", "threads")},
        **{name: one.get(name) for name in ("size", "dtype", "tf32", "error")},
        "details": [
            {"uuid": uuid, **details(gpus.get(uuid), reading)}
            for uuid, reading in zip(uuids, [*(one.get("readings") or ()), *({} for _uuid in uuids)])
        ],
    }
    return {**row, **_figures(row, one.get("seconds") or ())}


def _figures(row: Mapping[str, Any], seconds: Sequence[float]) -> dict[str, Any]:
    """Return the statistics of a row, or its error. Each GPU of a row computes one product."""
    names = ("seconds", "median_s", "fastest_s", "slowest_s", "spread_percent", "repetitions", "tflops")
    if row["error"]:
        return dict.fromkeys(names)
    try:
        summary = summarize(seconds)
    except BenchmarkValueError as error:
        return {**dict.fromkeys(names), "error": str(error)}
    tflops = 2 * int(row["size"]) ** 3 * row["count"] / summary.median / 1e12
    return dict(zip(names, (list(seconds), *summary, tflops)))


def _kernel_rows(host: str, probe: Mapping[str, Any], gpus: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the kernel of nvidia_cuda_probe."""
    found = []
    for gpu in probe.get("gpus") or ():
        matrix = gpu.get("matrix") or {}
        told = {"framework": "kernel of nvidia_cuda_probe", "cuda": probe.get("cuda_version")}
        one = {
            "gpus": [gpu["uuid"] or "unknown"],
            "error": None if matrix else gpu["result"],
            **{name: matrix.get(name) for name in ("size", "dtype", "seconds")},
        }
        found.append({**_row(host, "kernel", told, one, gpus), "note": matrix.get("note")})
    return found


def details(gpu: Mapping[str, Any] | None, reading: Mapping[str, Any]) -> dict[str, Any]:
    """Return what explains a slow GPU: values under load if they were read, else those of the facts."""
    facts = gpu or {}
    idle = {
        "temperature_c": (facts.get("temperature") or {}).get("gpu_c"),
        "sm_clock_mhz": (facts.get("clocks") or {}).get("sm_mhz"),
        "power_limit_w": (facts.get("power") or {}).get("enforced_limit_w"),
        "pcie_width": (facts.get("pcie") or {}).get("width"),
    }
    return {
        **{name: reading.get(name, value) for name, value in idle.items()},
        "power_w": reading.get("power_w"),
        "under_load": bool(reading),
        "pcie_width_max": (facts.get("pcie") or {}).get("width_max"),
        "default_power_limit_w": (facts.get("power") or {}).get("default_limit_w"),
    }


def _compare(found: Iterable[dict[str, Any]]) -> None:
    """Add how many times faster than the CPU a GPU is, and a container than the host."""
    by_key = {_key(row, row["place"], row["uuids"]): row for row in found}
    for row in by_key.values():
        cpu = by_key.get(_key(row, row["place"], [])) if row["device"] == "gpu" else None
        host = by_key.get(_key(row, "host", row["uuids"])) if row["place"] == "container" else None
        # All GPUs together compute one product each.
        row["speed_up"] = _times(cpu, row, row["count"])
        row["times_host"] = _times(host, row)


def _key(row: Mapping[str, Any], place: str, uuids: Sequence[str]) -> tuple[Any, ...]:
    return (place, tuple(uuids), row["size"], row["dtype"], row["framework"])


def _times(slow: Mapping[str, Any] | None, fast: Mapping[str, Any], products: int = 1) -> float | None:
    if slow is None or slow["median_s"] is None or fast["median_s"] is None:
        return None
    return speed_up(slow["median_s"], fast["median_s"]) * products
