# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an adapter of module gpu_workload provides. Adapters know work, and nothing of owners and records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


class WorkloadError(Exception):
    """The work of a host cannot be read, drained or started again."""


@dataclass(frozen=True)
class WorkloadView:
    """The work of a host now. All texts of the host are escaped.

    `closed`: the scheduler gives the host no new work, whoever asked for that. `reason` and `author` say why.
    `work`: what still runs. `stoppable`: the identifiers of what `stop` can stop.
    """

    closed: bool = False
    reason: str = ""
    author: str = ""
    work: tuple[str, ...] = ()
    stoppable: tuple[str, ...] = field(default=())


class WorkloadAdapter(Protocol):
    """One way to keep work away from a host."""

    name: str
    # Where new work can start although the host is drained: sentences. Empty if a scheduler refuses all new work.
    gaps: tuple[str, ...]
    # Whether `close` makes the host refuse new work, so that the view shows `closed`.
    closes: bool

    def view(self) -> WorkloadView:
        """Read the work."""

    def close(self, reason: str) -> None:
        """Give the host no new work, and do not touch what runs. Replaces the reason of an earlier call."""

    def reopen(self) -> None:
        """Give the host new work again."""

    def stop(self, identifiers: tuple[str, ...]) -> None:
        """Stop running work. May return before it has ended."""

    def start(self, identifiers: tuple[str, ...]) -> list[str]:
        """Start what `stop` stopped and what does not run. Return sentences about what no longer exists."""


@runtime_checkable
class EvictingAdapter(Protocol):
    """An adapter whose scheduler ends running work on request, and can refuse the request for now."""

    def evict(self) -> int:
        """Request it for all work that may be ended. Return how many requests were accepted."""
