# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bars of the benchmark's chart: seconds on a logarithmic scale, with the speed-up beside them.

A GPU is often hundreds of times faster than a CPU, so a linear scale would hide its bar.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.median_and_outliers import (
    BenchmarkValueError,
    duration,
    speed_up,
    summarize,
)

WIDTH, LEFT, RIGHT, TOP, ROW = 960, 360, 190, 44, 28
COLORS = {"cpu": "#7f7f7f", "gpu": "#1f77b4"}


def chart(title: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the template draws. A row has `label`, `device` (cpu or gpu), `seconds` and `baseline`.

    `baseline` is the CPU's seconds for the same measurement, or None.
    """
    wrong = next((row["device"] for row in rows if row["device"] not in COLORS), None)
    if wrong is not None:
        raise BenchmarkValueError(f"Device {wrong!r} is unknown. Known devices: {', '.join(COLORS)}.")
    for row in rows:
        summarize([row["seconds"]])  # A logarithm needs a duration above 0.
    factors = [None if row["baseline"] is None else speed_up(row["baseline"], row["seconds"]) for row in rows]
    # A power of ten below the shortest duration, so that every bar is visible.
    low = min((math.floor(math.log10(row["seconds"])) for row in rows), default=0) - 0.5
    high = max((math.log10(row["seconds"]) for row in rows), default=1)
    bars = [
        {
            "label": row["label"],
            "x": LEFT,
            "y": TOP + number * ROW,
            "width": round((WIDTH - LEFT - RIGHT) * (math.log10(row["seconds"]) - low) / (high - low), 1),
            "color": COLORS[row["device"]],
            "text": duration(row["seconds"])
            + (f", {factor:,.{0 if factor >= 100 else 1}f} times" if factor is not None else ""),
        }
        for number, (row, factor) in enumerate(zip(rows, factors))
    ]
    return {"title": title, "width": WIDTH, "height": TOP + len(rows) * ROW + 16, "bars": bars}
