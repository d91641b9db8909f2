# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the number of GPUs by type that Slurm reports for a node, for example gpu:1080:2."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.gpu_types import NAME

# Slurm's suffixes of a count: k and KiB are powers of 1024, KB of 1000. SchedMD/slurm (284c3b95), suffix_mult.
_COUNT = re.compile(r"([0-9]+)(?:([kmgtp])(i?b)?)?", re.ASCII | re.IGNORECASE)
_POWERS = "kmgtp"
# Longer counts are as wrong as this one.
_MOST_DIGITS = 18


def parse(text: str) -> dict[str, int]:
    """Return the number of GPUs by type of a Gres, "" for those without a type. gpu:a100:2(S:0-1),shard:4 → a100: 2."""
    counts: dict[str, int] = {}
    for part in re.sub(r"\([^()]*\)", "", text).split(","):
        fields = part.split(":")
        if fields[0] != NAME:
            continue
        number = count(fields[-1]) if len(fields) > 1 else None
        # A type can be a number: gpu:1080:2.
        kind = fields[1] if len(fields) > 2 or (len(fields) > 1 and number is None) else ""
        counts[kind] = counts.get(kind, 0) + (1 if number is None else number)
    return counts


def count(text: str) -> int | None:
    """Return a count of Slurm: 8, 1K. None for what is no number, which Slurm reads as a type, and 0 for a bad one."""
    if not "0" <= text[:1] <= "9":
        return None
    match = _COUNT.fullmatch(text)
    if match is None:
        return 0
    digits, letter, unit = match.groups()
    base = 1000 if (unit or "").lower() == "b" else 1024
    power = _POWERS.index(letter.lower()) + 1 if letter else 0
    return int(digits.lstrip("0")[:_MOST_DIGITS] or 0) * base**power
