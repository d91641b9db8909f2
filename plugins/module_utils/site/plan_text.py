# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of a fleet as text for a terminal. Pure functions of the entries of plan_report.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import (
    CONTAINER_RECREATE,
    DRIVER_RELOAD,
    ENGINE_RESTART,
    FORBIDDEN,
    POSSIBLE,
    REBOOT,
    Disruption,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.output.fleet_lines import (
    CHANGES,
    ERROR,
    PLAIN,
    SiteLine,
    grouped,
    names,
    section,
    wrapped,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry

# What the last line counts, for one and for several, and what is forbidden.
_COUNTED = {
    REBOOT: ("reboots", "reboot", "reboot"),
    DRIVER_RELOAD: ("reloads the driver", "reload the driver", "reload of the driver"),
    ENGINE_RESTART: ("engine restarts", "engines restart", "restart of the engine"),
    CONTAINER_RECREATE: ("container is recreated", "containers are recreated", "recreation of a container"),
}


def render(entries: Sequence[Mapping[str, Any]], *, reasons: bool = False) -> list[SiteLine]:
    """Return the plans of all hosts: interruptions, changes by part, notes, errors, and a line with counts.

    What several hosts have in common stands once, with their names. `reasons`: also say why a part changes something.
    """
    planned = [entry for entry in entries if entry["state"] == "changes"]
    prevented = [entry for entry in entries if entry["state"] == "failed"]
    total = len(entries)
    lines = _interruptions([entry for entry in entries if entry["state"] != "failed"], total)
    for part in _parts(planned):
        lines += _changes(planned, part, part, total, reasons=reasons)
    for part in _parts(prevented):
        title = f"{part}, after the errors below are solved"
        lines += _changes(prevented, part, title, total, reasons=reasons)
    lines += section(
        "Notes", grouped((text, entry) for entry in entries for text in entry.get("notes", [])), total, PLAIN
    )
    lines += section("Errors", grouped((text, entry) for entry in entries for text in entry["errors"]), total, ERROR)
    for state, title in (("unreachable", "Unreachable"), ("converged", "Converged")):
        hosts = [entry for entry in entries if entry["state"] == state]
        if hosts:
            lines += [SiteLine(text, state) for text in wrapped(f"{title}: {names(hosts, total)}", "", "  ")]
            lines.append(SiteLine(""))
    failed = any(entry["state"] in ("failed", "unreachable") for entry in entries)
    lines.append(SiteLine(summary(entries), ERROR if failed else PLAIN))
    return lines


def summary(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the last line: how many hosts are in which state, and what is interrupted."""
    states = []
    for state in ("converged", "changes", "failed", "unreachable"):
        count = sum(entry["state"] == state for entry in entries)
        if count:
            states.append(f"{count} {'change' if state == 'changes' and count != 1 else state}")
    counts: dict[tuple[str, str], int] = {}
    for entry in entries:
        for disruption in _disruptions(entry) if entry["state"] != "failed" else ():
            state = disruption.state if disruption.state in (POSSIBLE, FORBIDDEN) else ""
            counts[disruption.kind, state] = counts.get((disruption.kind, state), 0) + 1
    interrupted = [_count(kind, state, counts[kind, state]) for kind, state in sorted(counts, key=_order)]
    hosts = f"{len(entries)} {'host' if len(entries) == 1 else 'hosts'}"
    return "; ".join(
        [f"{hosts}: {', '.join(states) or 'nothing to plan'}", *([", ".join(interrupted)] if interrupted else [])]
    )


def _order(key: tuple[str, str]) -> tuple[int, str]:
    return list(_COUNTED).index(key[0]), key[1]


def _count(kind: str, state: str, count: int) -> str:
    """Return a count of the last line, such as "2 reboot" or "1 may reboot"."""
    one, several, forbidden = _COUNTED[kind]
    if state == FORBIDDEN:
        return f"{count} {'needs' if count == 1 else 'need'} a forbidden {forbidden}"
    if state == POSSIBLE:
        return f"{count} may {several}" if kind in (REBOOT, DRIVER_RELOAD) else f"up to {count} {several}"
    return f"{count} {one if count == 1 else several}"


def _disruptions(entry: Mapping[str, Any]) -> list[Disruption]:
    return [Disruption(**found) for part in entry["changes"] for found in part.get("disruptions", [])]


def _interruptions(entries: Sequence[Mapping[str, Any]], total: int) -> list[SiteLine]:
    found = grouped((disruption.text(), entry) for entry in entries for disruption in _disruptions(entry))
    return section("Interruptions", found, total, CHANGES)


def _parts(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the parts that change something, in the order in which they act."""
    changing = {part["part"] for entry in entries for part in entry["changes"] if part["changes"]}
    order = {part: number for number, part in enumerate(registry.PARTS)}
    return sorted(changing, key=lambda part: (order.get(part, len(order)), part))


def _changes(
    entries: Sequence[Mapping[str, Any]], name: str, title: str, total: int, *, reasons: bool
) -> list[SiteLine]:
    """Return a section: what a part changes. Hosts with the same changes share a group."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for entry in entries:
        for part in entry["changes"]:
            if part["part"] == name and part["changes"]:
                why = [f"because: {'; '.join(part['reasons'])}"] if reasons and part["reasons"] else []
                groups.setdefault((*part["changes"], *why), []).append(entry)
    lines = [SiteLine(title)]
    for texts, hosts in groups.items():
        lines += [SiteLine(line) for line in wrapped(f"{names(hosts, total)}:", "  ", "    ")]
        for text in texts:
            kind = PLAIN if text.startswith("because: ") else CHANGES
            lines += [SiteLine(line, kind) for line in wrapped(text, "    ", "      ")]
    return [*lines, SiteLine("")]
