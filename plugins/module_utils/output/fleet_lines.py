# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of text about a fleet, for plan_text.py and end_of_run_text.py: groups of hosts, wrapped lines, meanings."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What a line says, from which the caller chooses a color.
PLAIN, CONVERGED, CHANGES, ERROR, UNREACHABLE = "plain", "converged", "changes", "failed", "unreachable"
# The columns of a line, and the names of hosts that are listed before a count.
_WIDTH, _NAMES = 110, 5


@dataclass(frozen=True)
class SiteLine:
    """A line of text, and what it says: one of the constants above."""

    text: str
    kind: str = PLAIN


def grouped(pairs: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the entries of the hosts by their texts."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for text, entry in pairs:
        entries = groups.setdefault(text, [])
        if entry not in entries:
            entries.append(entry)
    return groups


def section(title: str, groups: Mapping[str, list[Mapping[str, Any]]], total: int, kind: str) -> list[SiteLine]:
    """Return a section with a text for each group of hosts. `total`: the number of all hosts."""
    if not groups:
        return []
    lines = [SiteLine(title)]
    for text, entries in groups.items():
        lines += [SiteLine(line, kind) for line in wrapped(f"{names(entries, total)}: {text}", "  ", "    ")]
    return [*lines, SiteLine("")]


def names(entries: Sequence[Mapping[str, Any]], total: int) -> str:
    """Return the names of hosts, with a count beyond five. `total`: the number of all hosts."""
    if len(entries) == total and total > _NAMES:
        return f"all {total} hosts"
    found = [entry["host"] for entry in entries]
    more = [f"and {len(found) - _NAMES} more"] if len(found) > _NAMES else []
    return " ".join([", ".join(found[:_NAMES]), *more])


def wrapped(text: str, first: str, rest: str) -> list[str]:
    """Return a text as lines. Names are not broken at their hyphens."""
    options = {"initial_indent": first, "subsequent_indent": rest, "break_on_hyphens": False, "break_long_words": False}
    return textwrap.wrap(printable(text), _WIDTH, **options)


def printable(text: str) -> str:
    """Return a text in one line. Control characters become visible."""
    return visible(" ".join(text.split()))


def visible(line: str) -> str:
    """Return a line with its spaces. Control characters become visible."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
