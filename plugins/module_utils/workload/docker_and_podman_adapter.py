# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapters docker and podman: wait for the containers that have GPUs, and stop them only if the user allows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    Docker,
    Podman,
    UnavailableEngine,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import (
    WorkloadError,
    WorkloadView,
)

# The states in which the processes of a container exist, and those in which the engine starts it again by itself.
_RUNNING = ("running", "paused", "restarting", "stopping")


class ContainerWorkload:
    """The containers with GPUs of one engine. `containers` lists those of all engines, as gpu_container_info does."""

    closes = False

    def __init__(
        self,
        engine: Docker | Podman | UnavailableEngine,
        containers: Callable[[], Sequence[Mapping[str, Any]]],
        *,
        stops: bool,
    ) -> None:
        self.name = engine.name
        self.gaps = (f"Users, other tools and restart policies can start containers of {engine.name} at any time.",)
        self._engine, self._containers, self._stops = engine, containers, stops

    def view(self) -> WorkloadView:
        """Return the containers with GPUs that run."""
        # An engine that is not installed or does not run has no running containers.
        if isinstance(self._engine, UnavailableEngine):
            return WorkloadView()
        found = [
            one
            for one in self._containers()
            if one["engine"] == self.name and str(one["state"]).lower() in _RUNNING and one["id"]
        ]
        return WorkloadView(
            work=tuple(f"container {shown(one['name'])} ({shown(one['state'])})" for one in found),
            stoppable=tuple(one["id"] for one in found) if self._stops else (),
        )

    def close(self, reason: str) -> None:
        """An engine cannot refuse new containers."""

    def reopen(self) -> None:
        """An engine cannot refuse new containers."""

    def stop(self, identifiers: tuple[str, ...]) -> None:
        """Stop containers, each with its own stop timeout."""
        for identifier in identifiers:
            self._change(self._engine.stop_container, identifier)

    def start(self, identifiers: tuple[str, ...]) -> list[str]:
        """Start the containers that still exist and do not run."""
        if identifiers and isinstance(self._engine, UnavailableEngine):
            names = ", ".join(shown(identifier[:12]) for identifier in identifiers)
            raise WorkloadError(
                f"The stopped containers {names} cannot be started again: {self._engine.unavailable_reason()}. Start "
                f"{self.name}, and run again. If the containers are no longer needed, remove {owned.DRAIN_RECORD}."
            )
        missing = []
        for identifier in identifiers:
            known = self._inspect(identifier)
            if known is None:
                missing.append(
                    f"Container {shown(identifier[:12])} of {self.name} was stopped and cannot be started again: it no "
                    "longer exists."
                )
            elif not (known.get("State") or {}).get("Running"):
                self._change(self._engine.start_container, identifier)
        return missing

    def _inspect(self, identifier: str) -> Mapping[str, Any] | None:
        try:
            return next((one for one in self._engine.containers() if one.get("Id") == identifier), None)
        except EngineError as error:
            raise WorkloadError(str(error)) from error

    def _change(self, call: Callable[[str], None], identifier: str) -> None:
        try:
            call(identifier)
        except EngineError as error:
            raise WorkloadError(f"Container {shown(identifier[:12])}: {error}") from error
