# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an adapter of module gpu_workload provides. Adapters know work, and nothing of owners and records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown

_MOST_REASON = 300
# What stands in a reason before the step that failed.
FAILED = "failed: "


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


def reason_text(*parts: str) -> str:
    """Return one line for a scheduler: printable, and no longer than a scheduler shows."""
    text = ": ".join(
        "".join(letter if letter.isprintable() else " " for letter in part).strip() for part in parts if part.strip()
    )
    # Slurm and shells of administrators give quotes and brackets a meaning.
    text = text.translate(str.maketrans({'"': "'", "[": "(", "]": ")", "\\": "/"}))
    return text if len(text) <= _MOST_REASON else text[: _MOST_REASON - 3] + "..."


def is_reason(shown_text: str, ours: str) -> bool:
    """Return whether a drain has our reason: alone, or followed by the step that failed or by a message of Slurm."""
    ours = shown_reason(ours)
    # slurmctld appends what happens to a drained node ("gpufleet: kernel : Not responding"): SchedMD/slurm (284c3b95),
    # src/slurmctld/node_mgr.c, set_node_reason.
    starts = (f"{ours}: {FAILED}"[: _MOST_REASON - 3], f"{ours} : "[:_MOST_REASON])
    return shown_text == ours or shown_text.startswith(starts)


def shown_reason(text: str) -> str:
    r"""Return a reason that somebody gave, on one line: each character that is not printable becomes \xNN."""
    # `shown` shortens names. A reason is longer.
    return "".join(letter if letter.isprintable() else shown(letter) for letter in text)[:_MOST_REASON]
