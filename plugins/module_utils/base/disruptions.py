# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run interrupts on a host: reboot, reload of the driver, restart of an engine, recreation of a container."""

from __future__ import annotations

import dataclasses

REBOOT, DRIVER_RELOAD, ENGINE_RESTART, CONTAINER_RECREATE = (
    "reboot",
    "driver_reload",
    "engine_restart",
    "container_recreate",
)
# `possible`: only the run shows whether it is needed. `forbidden`: it is required, but a policy or the host forbids it.
REQUIRED, POSSIBLE, FORBIDDEN = "required", "possible", "forbidden"
_TITLES = {
    REBOOT: "reboot",
    DRIVER_RELOAD: "reload of the driver",
    ENGINE_RESTART: "restart of {}",
    CONTAINER_RECREATE: "recreation of {}",
}


@dataclasses.dataclass(frozen=True)
class Disruption:
    """One interruption. `count`: how many workloads (containers, processes) it stops; `names`: those that are known.

    `target`: what restarts, for example docker.service. Empty for the host and its driver.
    """

    kind: str
    reason: str
    state: str = REQUIRED
    target: str = ""
    count: int = 0
    names: tuple[str, ...] = ()
    # What forbids it: a variable, or a sentence.
    forbidden_by: str = ""

    def title(self) -> str:
        """Return what is interrupted, for example: restart of docker.service."""
        return _TITLES[self.kind].format(self.target)

    def text(self) -> str:
        """Return a line for the user."""
        title = self.title()
        verdicts = {REQUIRED: "required", POSSIBLE: "may be needed"}
        verdict = verdicts.get(self.state, f"required, forbidden by {self.forbidden_by}")
        stops = f", stops {', '.join(self.names) if self.names else f'{self.count} containers'}" if self.count else ""
        return f"{title}: {verdict}{stops}: {self.reason}"
