# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapter command: programs of the user drain the host. They are started without a shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import (
    WorkloadError,
    WorkloadView,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_reason import shown_reason

# Exit statuses of the program `view`: the host gets new work, gets none and is idle, gets none and still works.
OPEN, IDLE, BUSY = 0, 10, 75
_LATE = (124, 137)
_STEPS = ("view", "close", "reopen")


class CommandWorkload:
    """Three programs: one shows the state of the host, one closes it, and one opens it again."""

    name = "command"
    gaps = ()
    closes = True

    def __init__(
        self, run: Run, argv: Mapping[str, Sequence[str] | None], environment: Mapping[str, str], timeout: int
    ) -> None:
        missing = [step for step in _STEPS if not argv.get(step)]
        if missing:
            raise WorkloadError(f"Adapter command needs the programs `view`, `close` and `reopen`. Missing: {missing}")
        # For the program `timeout`, 0 is no limit.
        if timeout < 1:
            raise WorkloadError(f"command.timeout={timeout} is invalid. Use at least 1 second.")
        self._run, self._argv, self._timeout = run, argv, timeout
        self._environment = {name: str(value) for name, value in environment.items()}

    def view(self) -> WorkloadView:
        """Ask the program. Its first line is the reason, and the further lines name the work."""
        status, out = self._call("view", {}, (OPEN, IDLE, BUSY))
        if status == OPEN:
            return WorkloadView()
        lines = [shown_reason(line.strip()) for line in out.splitlines()]
        work = tuple(line for line in lines[1:] if line) or ("work that the program does not name",)
        return WorkloadView(closed=True, reason=lines[0] if lines else "", work=work if status == BUSY else ())

    def close(self, reason: str) -> None:
        """Close the host for new work."""
        self._call("close", {"GPUFLEET_REASON": reason}, (0,))

    def reopen(self) -> None:
        """Open the host for new work."""
        self._call("reopen", {}, (0,))

    def stop(self, identifiers: tuple[str, ...]) -> None:
        """The programs stop nothing that this module knows."""

    def start(self, identifiers: tuple[str, ...]) -> list[str]:
        """The programs stop nothing that this module knows."""
        return []

    def _call(self, step: str, more: Mapping[str, str], expected: tuple[int, ...]) -> tuple[int, str]:
        argv = list(self._argv[step] or ())
        limit = ["timeout", "--kill-after=5", str(self._timeout)]
        status, out, err = self._run([*limit, *argv], environment={**self._environment, **more})
        if status in _LATE:
            raise WorkloadError(f"The program of step {step}, {argv[0]}, did not end within {self._timeout} seconds.")
        if status not in expected:
            raise WorkloadError(
                f"The program of step {step}, {argv[0]}, ended with exit status {status} and not "
                f"{' or '.join(map(str, expected))}: {shown_reason((err or out).strip())}"
            )
        return status, out
