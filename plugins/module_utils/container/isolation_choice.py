# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the way to give a container its devices, from those that its vendor offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

CDI, VOLUME, RUNTIME, DEVICE_REQUESTS, DEVICES = "cdi", "volume", "runtime", "device_requests", "devices"
NONE = "none"
# The values of the option `isolation`.
OPTIONS = ("auto", CDI, DEVICE_REQUESTS, RUNTIME, VOLUME, DEVICES)


class IsolationError(Exception):
    """An isolation that is not available on this host."""


@dataclass(frozen=True)
class Choice:
    """The selected isolation and the reason for it."""

    name: str
    reason: str


def choose(
    requested: str, current: str | None, preference: Sequence[str], obstacle: Callable[[str], str | None]
) -> Choice:
    """Choose an isolation. Raise IsolationError if the requested one, or each one, is not available.

    `current`: that of the existing container. `obstacle` returns why an isolation is not available, or None.
    """
    if requested != "auto":
        found = obstacle(requested)
        if found:
            others = " or ".join(preference)
            raise IsolationError(f"isolation={requested} is not available: {found}. Set isolation to {others}.")
        return Choice(requested, f"isolation={requested} is set")
    obstacles = {name: obstacle(name) for name in preference}
    available = [name for name in preference if not obstacles[name]]
    if not available:
        texts = "; ".join(f"{name}: {text}" for name, text in obstacles.items())
        raise IsolationError(f"No isolation is available: {texts}.")
    if current in available and current != available[0]:
        return Choice(current, f"the container already uses {current}; {available[0]} is also available")
    skipped = [f"{name}: {obstacles[name]}" for name in preference[: preference.index(available[0])]]
    reason = f"{available[0]} is the first available isolation"
    return Choice(available[0], f"{reason} ({'; '.join(skipped)})" if skipped else reason)
