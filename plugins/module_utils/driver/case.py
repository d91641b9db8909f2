# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One question to the driver's resolver: what is known of a host, what is asked for, and the answer as it grows."""

from __future__ import annotations

from typing import Any, NamedTuple


class Refused(Exception):
    """What was asked for cannot be had on this host."""


class Case(NamedTuple):
    """One question: what is known, what is asked, and the answer as it grows."""

    host: dict
    wish: dict
    platform: dict | None
    generations: dict
    window: tuple[int, int | None, str, str]
    result: dict


def named(generations: dict, test: Any) -> str:
    """Name the GPUs whose generation passes a test, as 0x1db1 (Volta)."""
    return ", ".join(f"{device} ({generation.name})" for device, generation in generations.items() if test(generation))
