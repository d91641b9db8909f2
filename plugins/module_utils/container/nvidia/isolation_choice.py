# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways to give a container access to its GPUs and to no others: which are available, and what each requires.

Only the files of the host are read, below a given root directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import (
    CDI,
    DEVICE_REQUESTS,
    DEVICES,
    RUNTIME,
    VOLUME,
    Choice,
    IsolationError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_obstacles import find_obstacle
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState

# Most preferred first. The first two add the device nodes to the container's own specification, so the access persists
# after `systemctl daemon-reload`.
PREFERENCE = (CDI, VOLUME, RUNTIME, DEVICE_REQUESTS)


def choose(
    requested: str,
    engine: EngineState,
    host: IsolationHost,
    units: Sequence[Unit],
    capabilities: Sequence[str],
    *,
    current: str | None = None,
) -> Choice:
    """Return the requested isolation. For `auto`, prefer the container's current one, then the order of preference."""
    if requested == DEVICES:
        raise IsolationError(f"isolation={DEVICES} gives no driver libraries to a container. Set isolation={VOLUME}.")
    obstacles = {name: find_obstacle(name, engine, host, units, capabilities) for name in PREFERENCE}
    available = [name for name in PREFERENCE if not obstacles[name]]
    if requested != "auto":
        if obstacles[requested]:
            raise IsolationError(
                f"isolation={requested} is not available: {obstacles[requested]}. "
                + (f"Available: {', '.join(available)}." if available else f"None is available: {_join(obstacles)}.")
            )
        return Choice(requested, f"isolation={requested} is set")
    if not available:
        raise IsolationError(f"No isolation is available: {_join(obstacles)}.")
    if current in available and current != available[0]:
        return Choice(current, f"the container already uses {current}; {available[0]} is also available")
    skipped = [f"{name}: {obstacles[name]}" for name in PREFERENCE[: PREFERENCE.index(available[0])]]
    reason = f"{available[0]} is the first available isolation"
    return Choice(available[0], f"{reason} ({'; '.join(skipped)})" if skipped else reason)


def _join(obstacles: Mapping[str, str | None]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in obstacles.items() if text)
