# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that say what hosts do while a long task runs. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.output import fleet_lines

# A host says what it does in a few words. Anything longer is cut.
_LENGTH = 100


class HostProgress(NamedTuple):
    """What a host does, and since how many seconds its task runs."""

    host: str
    text: str
    seconds: float


def lines(hosts: Sequence[HostProgress]) -> list[str]:
    """Return the lines. Hosts that do the same share one, with the time of the slowest."""
    groups: dict[str, list[HostProgress]] = {}
    for progress in sorted(hosts):
        groups.setdefault(fleet_lines.printable(progress.text)[:_LENGTH], []).append(progress)
    found = []
    for text, members in groups.items():
        names = fleet_lines.names([{"host": member.host} for member in members], 0)
        found.append(f"{fleet_lines.printable(names)}: {_clock(max(member.seconds for member in members))} {text}")
    return found


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
