# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the reason of a drain is made safe for a scheduler, and when a reason is ours. Pure functions."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown

_MOST_REASON = 300


# What stands in a reason before the step that failed.
FAILED = "failed: "


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
