# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Summarize the measurements, compare them with the limits, and format tables and JSON. Runs and reads nothing."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

# Limits for each host of a converged run.
CALLS_MAX = 1
RESULTS_MAX = 4
BYTES_MAX = 250_000
# Limits for the wall time of a converged run, divided by the wall time of the other playbook.
GATHER_RATIO_MAX = 1.2
BASELINE_RATIO_MAX = 1 / 3
# Limits for the time per host in a large fleet: CPU seconds of the controller, and the ratio of the wall time per host
# to that in a small fleet. The wall time itself has no limit, because the simulated hosts use the controller's cores.
LARGE_FLEET = 50
SMALL_FLEET = 10
CPU_SECONDS_PER_HOST_MAX = 0.30
GROWTH_MAX = 1.15

PLAYBOOKS = {
    "site": "site.yml, converged",
    "gather": "fact gathering",
    "floor": "one empty call, four results",
    "baseline": "baseline, converged",
}
STATUSES = ("ok", "changed", "skipped", "failed")
# Connections that a host opened, and datagrams that it sent. Ansible's connections to the host do not count.
COUNTERS = {"Tcp.ActiveOpens": "CONNECTIONS", "Udp.OutDatagrams": "DATAGRAMS"}


class Check(NamedTuple):
    """A measured value and its limit. The value is None if it could not be measured."""

    what: str
    value: float | None
    most: float

    @property
    def met(self) -> bool:
        return self.value is not None and self.value <= self.most

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.what}: could not be measured"
        return f"{self.what}: {_cell(self.value)} (limit: {_cell(self.most)})"


def times(runs: dict[str, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """Return the median of the interleaved runs of each playbook, and the ratios of the wall times."""
    medians = {name: statistics.median(run["seconds"] for run in taken) for name, taken in runs.items()}
    return {
        "repeats": min(len(taken) for taken in runs.values()),
        "playbooks": {
            name: {
                "seconds": round(medians[name], 2),
                "fastest": round(min(run["seconds"] for run in taken), 2),
                "slowest": round(max(run["seconds"] for run in taken), 2),
                "cpu_seconds_per_host": round(statistics.median(run["cpu_seconds"] / run["hosts"] for run in taken), 3),
            }
            for name, taken in runs.items()
        },
        "ratio_to_gather": round(medians["site"] / medians["gather"], 3),
        "ratio_to_baseline": round(medians["site"] / medians["baseline"], 3),
        "floor_to_gather": round(medians["floor"] / medians["gather"], 3),
    }


def scale(runs: dict[int, Sequence[dict[str, Any]]], floors: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return the time per host for each number of hosts, its growth from a small to a large fleet, and the floor.

    Below 10 hosts, Ansible's start takes most of the time. The growth is None without a small and a large fleet, the
    floor without a large fleet.
    """
    rows = [_row(number, taken) for number, taken in sorted(runs.items())]
    seconds = {number: statistics.median(run["seconds"] for run in taken) for number, taken in runs.items()}
    small, large = (seconds.get(number, 0) / number for number in (SMALL_FLEET, LARGE_FLEET))
    growth = round(large / small, 3) if small and large else None
    return {"rows": rows, "growth": growth, "floor": _row(LARGE_FLEET, floors) if floors else None}


def _row(number: int, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    seconds = statistics.median(run["seconds"] for run in runs)
    return {
        "hosts": number,
        "seconds": round(seconds, 2),
        "seconds_per_host": round(seconds / number, 3),
        "cpu_seconds_per_host": round(statistics.median(run["cpu_seconds"] for run in runs) / number, 3),
        "memory_mib": round(statistics.median(run["memory_mib"] for run in runs)),
    }


def checks(found: dict[str, Any]) -> list[Check]:
    """Compare everything that was measured with the limits."""
    compared = []
    for host, taken in found.get("counts", {}).get("site", {}).items():
        sent = taken["network"]
        compared += [
            Check(f"{host}: module calls", taken["calls"], CALLS_MAX),
            Check(f"{host}: task results", sum(taken["results"].values()), RESULTS_MAX),
            Check(f"{host}: sent bytes", taken["sent"], BYTES_MAX),
            Check(f"{host}: connections and datagrams", None if sent is None else sum(sent.values()), 0),
        ]
    if "times" in found:
        compared += [
            Check("wall time / fact gathering", found["times"]["ratio_to_gather"], GATHER_RATIO_MAX),
            Check("wall time / baseline", found["times"]["ratio_to_baseline"], BASELINE_RATIO_MAX),
        ]
    for row in found.get("scale", {}).get("rows", ()):
        if row["hosts"] == LARGE_FLEET:
            what = f"controller CPU seconds per host, {LARGE_FLEET} hosts"
            compared.append(Check(what, row["cpu_seconds_per_host"], CPU_SECONDS_PER_HOST_MAX))
    if found.get("scale", {}).get("growth") is not None:
        what = f"time per host, {LARGE_FLEET} hosts / {SMALL_FLEET} hosts"
        compared.append(Check(what, found["scale"]["growth"], GROWTH_MAX))
    return compared


def exceeded(found: dict[str, Any]) -> list[str]:
    """Return a sentence for each limit that is not met."""
    return [str(check) for check in checks(found) if not check.met]


def document(found: dict[str, Any]) -> str:
    """Return the measurements and the checks as JSON."""
    compared = [{**check._asdict(), "met": check.met} for check in checks(found)]
    return json.dumps({**found, "checks": compared}, indent=1) + "\n"


def text(found: dict[str, Any]) -> str:
    """Return the measurements and the checks as tables."""
    parts = []
    if "counts" in found:
        parts.append(f"Module calls, task results and network traffic per host:\n\n{_table(_counts(found['counts']))}")
    if "times" in found:
        what = f"Time of ansible-playbook, median of {found['times']['repeats']} interleaved runs"
        parts.append(f"{what}:\n\n{_table(_times(found['times']))}")
    if "scale" in found:
        what = f"Time of site.yml by fleet size, {found['scale']['what']}"
        parts.append(f"{what}:\n\n{_table(_scale(found['scale']))}")
    parts.append(f"Facts compared with nvidia-smi: {found.get('gpu', 'not measured')}")
    compared = checks(found)
    if compared:
        parts.append(f"Limits:\n\n{_table(_limits(compared))}")
    return "\n\n".join(parts)


def _counts(counts: dict[str, dict[str, Any]]) -> list[Sequence[Any]]:
    rows: list[Sequence[Any]] = [
        ("PLAYBOOK", "HOST", "CALLS", "TASK RESULTS", "SENT BYTES", *COUNTERS.values(), "MODULES")
    ]
    for name, hosts in counts.items():
        for host, taken in hosts.items():
            by_status = [f"{taken['results'][status]} {status}" for status in STATUSES if status in taken["results"]]
            results = f"{sum(taken['results'].values())} ({', '.join(by_status)})"
            sent = [_cell((taken["network"] or {}).get(counter)) for counter in COUNTERS]
            modules = ", ".join(f"{module}{f' x{n}' if n > 1 else ''}" for module, n in taken["modules"].items())
            rows.append((PLAYBOOKS[name], host, taken["calls"], results, taken["sent"], *sent, modules))
    return rows


def _times(summary: dict[str, Any]) -> list[Sequence[Any]]:
    keys = ("seconds", "fastest", "slowest", "cpu_seconds_per_host")
    rows = [(PLAYBOOKS[name], *(taken[key] for key in keys)) for name, taken in summary["playbooks"].items()]
    return [("PLAYBOOK", "SECONDS", "FASTEST", "SLOWEST", "CONTROLLER CPU SECONDS PER HOST"), *rows]


def _scale(summary: dict[str, Any]) -> list[Sequence[Any]]:
    keys = ("hosts", "seconds", "seconds_per_host", "cpu_seconds_per_host", "memory_mib")
    rows = [[row[key] for key in keys] for row in summary["rows"]]
    if summary.get("floor"):
        rows.append([f"{LARGE_FLEET}, {PLAYBOOKS['floor']}", *(summary["floor"][key] for key in keys[1:])])
    titles = ("HOSTS", "SECONDS", "SECONDS PER HOST", "CONTROLLER CPU SECONDS PER HOST", "CONTROLLER MEMORY MIB")
    return [titles, *rows]


def _limits(compared: Sequence[Check]) -> list[Sequence[Any]]:
    rows = [(one.what, _cell(one.value), _cell(one.most), "ok" if one.met else "EXCEEDED") for one in compared]
    return [("CONVERGED RUN", "MEASURED", "LIMIT", ""), *rows]


def _cell(value: float | None) -> str:
    if value is None:
        return "?"
    return str(value) if isinstance(value, int) else f"{value:.3g}" if value < 1 else f"{value:g}"


def _table(rows: Iterable[Sequence[Any]]) -> str:
    lines = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)
