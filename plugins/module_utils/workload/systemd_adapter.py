# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapter systemd: the units that the user names are stopped, and started again at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import (
    WorkloadError,
    WorkloadView,
)

# systemd.unit(5). Without a suffix, systemctl adds .service.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*", re.ASCII)
# Seconds for systemctl. A unit can have no time limit for its start.
_TIMEOUT = 600
_LATE = (124, 137)
_RUNNING = ("active", "activating", "reloading", "deactivating", "refreshing")


class SystemdWorkload:
    """Units of the system's manager."""

    name = "systemd"
    gaps = ("Users, timers, sockets and other units can start the stopped units again. A boot starts enabled units.",)
    closes = False

    def __init__(self, run: Run, units: Sequence[str]) -> None:
        wrong = [unit for unit in units if not _UNIT.fullmatch(unit)]
        if wrong or not units:
            raise WorkloadError(
                f"{', '.join(map(shown, wrong)) or 'An empty list'} names no unit. Set `units` to the names of the "
                "units to stop, for example [inference.service]. Patterns are not supported."
            )
        self._run, self._units = run, tuple(unit if "." in unit else f"{unit}.service" for unit in units)

    def view(self) -> WorkloadView:
        """Return the units that run."""
        states = {unit: self._state(unit) for unit in self._units}
        running = {unit: state for unit, state in states.items() if state in _RUNNING}
        return WorkloadView(
            work=tuple(f"unit {unit} ({state})" for unit, state in running.items()),
            stoppable=tuple(unit for unit, state in running.items() if state != "deactivating"),
        )

    def _state(self, unit: str) -> str:
        values = self._properties(unit)
        if _is_gone(values):
            raise WorkloadError(f"This host has no unit {unit}. Correct `units`.")
        return values["ActiveState"]

    def _properties(self, unit: str) -> dict[str, str]:
        status, out, err = self._run(["systemctl", "show", "--property=LoadState,ActiveState", unit])
        values = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        if status or "ActiveState" not in values:
            raise WorkloadError(f"systemctl cannot read unit {unit}: {shown((err or out).strip())}")
        return values

    def close(self, reason: str) -> None:
        """Nothing refuses new work."""

    def reopen(self) -> None:
        """Nothing refuses new work."""

    def stop(self, identifiers: tuple[str, ...]) -> None:
        """Ask systemd to stop units, and do not wait."""
        self._systemctl("stop", identifiers)

    def start(self, identifiers: tuple[str, ...]) -> list[str]:
        """Start the units, in the order of their dependencies, and wait."""
        gone = [unit for unit in identifiers if _is_gone(self._properties(unit))]
        left = tuple(unit for unit in identifiers if unit not in gone)
        if left:
            self._systemctl("start", left)
        return [f"Unit {unit} was stopped and no longer exists, so it was not started." for unit in gone]

    def _systemctl(self, verb: str, units: tuple[str, ...]) -> None:
        waits = [] if verb == "start" else ["--no-block"]
        limit = ["timeout", "--kill-after=5", str(_TIMEOUT)]
        status, out, err = self._run([*limit, "systemctl", verb, *waits, "--", *units])
        if status in _LATE:
            raise WorkloadError(
                f"systemctl {verb} {' '.join(units)} did not end within {_TIMEOUT} seconds. systemd goes on with "
                "it. Read the journal of the units, and run again."
            )
        if status:
            raise WorkloadError(
                f"systemctl {verb} {' '.join(units)} failed: {shown((err or out).strip().replace(chr(10), ' '))}. "
                "Read the journal of the unit."
            )


def _is_gone(values: Mapping[str, str]) -> bool:
    return values.get("LoadState") == "not-found" and values["ActiveState"] == "inactive"
