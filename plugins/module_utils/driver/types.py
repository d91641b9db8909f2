# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Types that the resolver and the plan of the driver share."""

from __future__ import annotations

from typing import Any, NamedTuple


class Refused(Exception):
    """The host cannot have the requested driver."""


class NoVersion(Exception):
    """No version of the driver satisfies the request."""


class Case(NamedTuple):
    """One resolution: the host, the request, the platform's data and the result, which the resolver fills in."""

    host: dict
    request: dict
    platform: dict | None
    generations: dict
    window: tuple[int, int | None, str, str]
    result: dict


def named(generations: dict, test: Any) -> str:
    """Name the GPUs whose generation passes a test, for example `0x1db1 (Volta)`."""
    return ", ".join(f"{device} ({generation.name})" for device, generation in generations.items() if test(generation))
