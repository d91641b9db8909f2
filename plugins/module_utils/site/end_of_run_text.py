# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run prints at its end: table, failed tasks, problems, notes, adopted images, counts. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.output import fleet_lines
from ansible_collections.gpufleet.hosts.plugins.module_utils.output.fleet_lines import PLAIN, SiteLine
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import end_of_run_verdicts, fleet_table


def render(entries: Sequence[Mapping[str, Any]], *, is_check: bool = False) -> list[SiteLine]:
    """Return the table of the hosts, what failed, problems, notes, and a line with counts.

    `is_check`: the run was in check mode, so the table shows the state before its changes.
    """
    total = len(entries)
    lines = [SiteLine("Check mode: the table shows the state without the changes."), SiteLine("")] if is_check else []
    lines += fleet_table.rows_of_hosts(entries)
    # The messages of failed hosts are above, at the task that failed.
    failed = [
        (entry["failed_task"] or "see above", entry)
        for entry in entries
        if entry["state"] == end_of_run_verdicts.FAILED
    ]
    sections = [
        ("Failed tasks", failed, fleet_lines.ERROR),
        ("Problems", _texts(entries, "problems"), fleet_lines.ERROR),
        ("Notes", _texts(entries, "notes"), PLAIN),
    ]
    for title, pairs, kind in sections:
        lines += fleet_lines.section(title, fleet_lines.grouped(pairs), total, kind)
    lines += _adoptions(entries)
    stopped = ((end_of_run_verdicts.UNREACHABLE, "Unreachable"), (end_of_run_verdicts.NOT_STARTED, "Not started"))
    for state, title in stopped:
        hosts = [entry for entry in entries if entry["state"] == state]
        if hosts:
            text = f"{title}: {fleet_lines.names(hosts, total)}"
            lines += [SiteLine(line, fleet_lines.UNREACHABLE) for line in fleet_lines.wrapped(text, "", "  ")]
            lines.append(SiteLine(""))
    bad = any(
        entry["state"] != end_of_run_verdicts.OK or entry["verdict"] == end_of_run_verdicts.CRITICAL
        for entry in entries
    )
    return [*lines, SiteLine(summary(entries), fleet_lines.ERROR if bad else PLAIN)]


def summary(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the last line: how many hosts have which verdict, and what happened to them."""
    verdicts = [
        (sum(entry["verdict"] == verdict for entry in entries), verdict) for verdict in end_of_run_verdicts.VERDICTS
    ]
    happened = [
        (sum(entry["rebooted"] is True for entry in entries), "rebooted"),
        (sum(entry["state"] == end_of_run_verdicts.FAILED for entry in entries), "failed"),
        (sum(entry["state"] == end_of_run_verdicts.UNREACHABLE for entry in entries), "unreachable"),
        (sum(entry["state"] == end_of_run_verdicts.NOT_STARTED for entry in entries), "not started"),
    ]
    texts = [", ".join(f"{count} {text}" for count, text in found if count) for found in (verdicts, happened)]
    hosts = f"{len(entries)} {'host' if len(entries) == 1 else 'hosts'}"
    return f"{hosts}: {'; '.join(text for text in texts if text) or 'nothing to show'}"


def _texts(entries: Sequence[Mapping[str, Any]], key: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [(text, entry) for entry in entries if entry["state"] == end_of_run_verdicts.OK for text in entry[key]]


def _adoptions(entries: Sequence[Mapping[str, Any]]) -> list[SiteLine]:
    """Return what was adopted, completed and left alone on hosts with a prepared image. Equal tables stand once."""
    tables = fleet_lines.grouped(("\n".join(entry["adoption"]), entry) for entry in entries if entry.get("adoption"))
    lines = []
    for table, hosts in tables.items():
        lines += [SiteLine(f"Adopted image: {fleet_lines.names(hosts, len(entries))}")]
        lines += [SiteLine(f"  {fleet_lines.visible(line)}") for line in table.split("\n")] + [SiteLine("")]
    return lines
