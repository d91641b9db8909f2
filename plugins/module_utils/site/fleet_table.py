# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of hosts at the end of playbooks site and verify, a part of end_of_run_text.py. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.output import fleet_lines
from ansible_collections.gpufleet.hosts.plugins.module_utils.output.fleet_lines import PLAIN, SiteLine
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import end_of_run_verdicts

_TITLES = ("HOST", "ACCELERATORS", "DRIVER", "ENGINE", "TOOLKIT", "REBOOTED", "VERDICT")
_KINDS = {
    end_of_run_verdicts.PASS: fleet_lines.CONVERGED,
    end_of_run_verdicts.INFO: fleet_lines.CHANGES,
    end_of_run_verdicts.CRITICAL: fleet_lines.ERROR,
    end_of_run_verdicts.UNKNOWN: fleet_lines.UNREACHABLE,
}
# With more hosts, equal rows stand once.
_ROWS = 20
# Longer cells are cut: one long name must not make every line wrap.
_CELL = 40
_NOTHING = "-"


def rows_of_hosts(entries: Sequence[Mapping[str, Any]]) -> list[SiteLine]:
    """Return the lines of the table, then an empty line. No host gives no line."""
    rows: dict[tuple[str, ...], list[str]] = {}
    kinds: dict[tuple[str, ...], str] = {}
    for position, entry in enumerate(entries):
        cells = _cells(entry)
        key = cells if len(entries) > _ROWS else (*cells, str(position))
        rows.setdefault(key, []).append(entry["host"])
        kinds[key] = _KINDS[entry["verdict"]]
    if not rows:
        return []
    table = [(_TITLES, PLAIN)]
    for key, names in rows.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        table.append(((fleet_lines.printable(names[0]) + more, *key[: len(_TITLES) - 1]), kinds[key]))
    widths = [max(len(cells[column]) for cells, _kind in table) for column in range(len(_TITLES))]
    lines = [
        SiteLine("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip(), kind)
        for cells, kind in table
    ]
    return [*lines, SiteLine("")]


def _cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a row after the host."""
    unknown = entry["accelerators"] is None
    accelerators = [_accelerator(found) for found in entry["accelerators"] or []]
    drivers = [_driver(found, several=len(entry["drivers"]) > 1) for found in entry["drivers"] or []]
    engine = entry["engine"]
    cells = (
        ", ".join(accelerators) or ("?" if unknown else "none"),
        ", ".join(drivers),
        f"{engine['name']} {_version(engine['version'])}" if engine else "",
        _version(entry["toolkit"]),
        {True: "yes", False: "no"}.get(entry["rebooted"], ""),
        entry["verdict"],
    )
    return tuple(_cut(fleet_lines.printable(cell).strip() or ("?" if unknown else _NOTHING)) for cell in cells)


def _accelerator(found: Mapping[str, Any]) -> str:
    """Return for example "8 x NVIDIA H100 80GB HBM3". The names of NVML begin with the vendor."""
    model = found["model"] or found["vendor"]
    name = model if model.lower().startswith(found["vendor"].lower()) else f"{found['vendor']} {model}"
    return f"{found['count']} x {name}"


def _driver(found: Mapping[str, Any], *, several: bool) -> str:
    name = found["name"] if several or found["name"] != "nvidia" else ""
    version = _version(found["version"]) or ("loaded" if found["loaded"] else "installed")
    return " ".join(filter(None, [name, version, "" if found["loaded"] else "(not loaded)"]))


def _version(version: str | None) -> str:
    """Return the version of a program without the epoch and the revision of its package."""
    return re.sub(r"^\d+:|[-+~].*$", "", version or "")


def _cut(cell: str) -> str:
    return cell if len(cell) <= _CELL else f"{cell[: _CELL - 3]}..."
