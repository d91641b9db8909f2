# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark of a fleet: the data for a file, one table by model, and the rows of the chart. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark import host_results as one_host
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.median_and_outliers import (
    LEAST_GPUS,
    duration,
    mark_outliers,
)

_HEADINGS = ("HOST", "GPU", "MEDIAN", "SPREAD", "FLOP/S", "VS CPU", "VS HOST", "NOTES")
_UNREACHABLE = "the host is unreachable, or an earlier task failed"


def report(results: Mapping[str, Mapping[str, Any] | None], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all results. `results`: by host, None for an unreachable host. `settings`: the playbook's variables."""
    hosts, rows = [], []
    for name, result in results.items():
        told = result or {"error": _UNREACHABLE}
        places = {place: _about(told[place]) for place in one_host.PLACES if told.get(place)}
        hosts.append(
            {
                "host": name,
                "error": told.get("error"),
                "gpu_reason": gpu_reason(told),
                "skipped_gpus": list(told.get("skipped") or ()),
                "runs": places,
            }
        )
        rows += one_host.rows(name, told)
    named = [{**row, "measurement": measurement(row), "speed": _speed(row)} for row in rows]
    marked = mark_outliers(named, settings["benchmark_outlier_percent"])
    ordered = sorted(marked, key=_order)
    return {"settings": dict(settings), "hosts": hosts, "measurements": ordered}


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the sort key of a row: GPUs first, then by model and measurement."""
    return (
        row["device"] == "cpu",
        row["model"],
        row["dtype"] or "",
        row["size"] or 0,
        row["measurement"],
        row["count"],
    )


def _about(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name not in ("measurements", "gpus", "changed", "failed")}


def _speed(row: Mapping[str, Any]) -> float | None:
    """Return the speed that is compared within a model. Only single GPUs are compared."""
    return row["tflops"] if row["device"] == "gpu" and row["count"] == 1 else None


def gpu_reason(told: Mapping[str, Any]) -> str | None:
    """Return why no GPU of a host was measured, or None."""
    if told.get("reason"):
        return told["reason"]
    # Without an image, the kernel needs no framework, so its reason says more.
    reasons = [(told.get("kernel") or {}).get("error")]
    reasons += [(told.get(place) or {}).get("gpu_reason") for place in ("container", "host")]
    measured = any(row["device"] == "gpu" for row in one_host.rows("", told))
    return None if measured else next((reason for reason in reasons if reason), None)


def measurement(row: Mapping[str, Any]) -> str:
    """Return what is comparable between hosts."""
    tf32 = " with TF32" if row["tf32"] else ""
    framework = shown(" ".join(str(word) for word in (row["framework"], row["framework_version"]) if word))
    where = {"container": "in a container", "host": "on the host", "kernel": "on the host"}[row["place"]]
    return f"{row['dtype']}{tf32} {row['size']}, {framework} {where}"


def table(document: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table, by model, followed by what was not measured."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in document["measurements"]:
        groups.setdefault((row["model"], row["measurement"]), []).append(row)
    cells = {key: [_cells(row) for row in rows] for key, rows in groups.items()}
    every = [_HEADINGS, *(row for rows in cells.values() for row in rows)]
    widths = [max(len(row[column]) for row in every) for column in range(len(_HEADINGS) - 1)]

    def line(row: tuple[str, ...]) -> str:
        return "  ".join(["", *(cell.ljust(width) for cell, width in zip(row, widths)), row[-1]]).rstrip()

    lines = [line(_HEADINGS)] if groups else ["Nothing was measured."]
    for (model, name), rows in cells.items():
        lines += [f"{shown(model)}: {name}", *(line(row) for row in rows)]
    return [*lines, *_remarks(document)]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    gpu = (
        "CPU" if row["device"] == "cpu" else ", ".join("?" if index is None else str(index) for index in row["indexes"])
    )
    if row["error"]:
        return (row["host"], gpu, "-", "", "", "", "", one_line(row["error"]))
    return (
        row["host"],
        gpu,
        duration(row["median_s"]),
        f"{row['spread_percent']:.1f} %",
        flops(row["tflops"]),
        "" if row["speed_up"] is None else f"{row['speed_up']:,.1f}",
        "" if row["times_host"] is None else f"{row['times_host']:.2f}",
        notes(row),
    )


def flops(tflops: float) -> str:
    """Return a speed with the prefix of its unit."""
    for prefix, factor in (("T", 1), ("G", 1e3), ("M", 1e6)):
        if tflops * factor >= 1:
            return f"{tflops * factor:.3g} {prefix}"
    return f"{tflops * 1e12:.3g}"


def notes(row: Mapping[str, Any]) -> str:
    """Return the mark of a slow GPU with what may explain it, and what the speed is not comparable with."""
    found = [row["note"]] if row.get("note") else []
    if row["device"] == "cpu":
        found.append(f"{row['threads']} thread{'' if row['threads'] == 1 else 's'}")
    if row["outlier"]:
        values = row["details"][0]
        load = "" if values["under_load"] else " after the load"
        known = [
            f"{label} {values[name]:g}{unit}"
            for name, label, unit in (
                ("temperature_c", "temperature", " °C"),
                ("sm_clock_mhz", "SM clock", " MHz"),
                ("power_limit_w", "power limit", " W"),
                ("pcie_width", "PCIe x", ""),
            )
            if values[name] is not None
        ]
        slow = f"SLOW: {row['below_median_percent']:.1f} % below the median"
        found.insert(0, f"{slow} ({', '.join(known).replace('PCIe x ', 'PCIe x')}{load})" if known else slow)
    return "; ".join(found)


def _remarks(document: Mapping[str, Any]) -> list[str]:
    lines = []
    for entry in document["hosts"]:
        name = entry["host"]
        if entry["error"]:
            lines.append(f"{name}: {entry['error']}")
        if entry["gpu_reason"]:
            lines.append(f"{name}: no GPU was measured: {entry['gpu_reason']}")
        lines += [f"{name}: GPU {gpu['index']} was not measured: {gpu['reason']}" for gpu in entry["skipped_gpus"]]
        for place in one_host.PLACES:
            told = entry["runs"].get(place) or {}
            texts = [told.get("error"), *(told.get("problems") or ())]
            if place == "host" and told and not told.get("framework") and not told.get("error"):
                texts.append(
                    "the framework of the container cannot be imported, so it was measured in the container only"
                )
            lines += [f"{name}: {place}: {one_line(text)}" for text in texts if text and text != entry["gpu_reason"]]
    few = sorted(
        {row["model"] for row in document["measurements"] if row["speed"] is not None and row["outlier"] is None}
    )
    if few:
        lines.append(
            f"Slow GPUs are marked only for models with {LEAST_GPUS} or more measured GPUs, not for {', '.join(few)}."
        )
    return lines


def one_line(text: object) -> str:
    """Return a sentence of a host on one line."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())[:300]


def chart_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for the chart per model and measurement, with the medians of all devices."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in document["measurements"]:
        if row["median_s"] is not None:
            key = (
                row["size"],
                row["dtype"],
                row["tf32"] or False,
                row["device"],
                row["model"],
                row["place"],
                row["count"],
            )
            groups.setdefault(key, []).append(row)
    return [_chart_row(rows) for _key, rows in sorted(groups.items(), key=lambda item: item[0])]


def _chart_row(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, median = rows[0], statistics.median(row["median_s"] for row in rows)
    factors = [row["speed_up"] for row in rows if row["speed_up"] is not None]
    together = f", {first['count']} at once" if first["count"] > 1 else f", median of {len(rows)}" if rows[1:] else ""
    tf32 = " TF32" if first["tf32"] else ""
    return {
        "label": f"{shown(first['model'])}{together}: {first['dtype']}{tf32} {first['size']}, {first['place']}",
        "device": first["device"],
        "seconds": median,
        "baseline": statistics.median(factors) * median if factors else None,
    }


def failures(document: Mapping[str, Any], name: str) -> list[str]:
    """Return why a host could not be measured as requested. A GPU that is used by others is not a failure."""
    entry = next(entry for entry in document["hosts"] if entry["host"] == name)
    # Beside a container, the run on the host is only for comparison.
    told = entry["runs"].get("container") or entry["runs"].get("host") or {}
    found = [entry["error"], told.get("error")]
    rows: Sequence[Mapping[str, Any]] = [row for row in document["measurements"] if row["host"] == name]
    found += [f"GPU {row['indexes'][0]}: {row['error']}" for row in rows if row["place"] == "kernel" and row["error"]]
    if not any(found) and all(row["error"] for row in rows):
        found.append("nothing was measured. See the table for the reasons.")
    return [text for text in found if text]
