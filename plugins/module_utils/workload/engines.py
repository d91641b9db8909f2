# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapters docker and podman on this host: the engines, and their containers with GPUs as in gpu_container_info."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import process_state
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.run import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.accelerator import Nvidia
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.request import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import (
    ReservationError,
    Reservations,
    directory_for,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import stopped
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import Docker, Podman, UnavailableEngine
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.volumes import DOCKER_HOST, EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import binding as nvml_binding
from ansible_collections.gpufleet.hosts.plugins.module_utils.usage import report as usage_report
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.containers import ContainerWorkload
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.types import WorkloadError

# Of nvidia_gpu_facts.
_SUBSETS = frozenset({"min", "identity"})


def docker(options: Mapping[str, Any], run: Run, binding: str | None) -> ContainerWorkload:
    """Return the adapter for Docker. `binding`: the path of pynvml if the controller sent it."""
    try:
        engine: Docker | UnavailableEngine = Docker(options.get("docker_host") or DOCKER_HOST)
    except EngineError as error:
        raise WorkloadError(str(error)) from error
    if not os.path.exists(engine.socket or "/") or (engine.socket and stopped.is_socket_activated(engine.socket)):
        engine = UnavailableEngine("docker", "docker is not running")
    return ContainerWorkload(engine, _lister(engine, run, binding), stops=bool(options.get("stop")))


def podman(options: Mapping[str, Any], run: Run, binding: str | None) -> ContainerWorkload:
    """Return the adapter for root's Podman."""
    program = process_state.find("podman")
    engine: Podman | UnavailableEngine = Podman(run, program)
    # The first call of Podman would create its storage.
    if program is None or stopped.podman() is not None:
        engine = UnavailableEngine("podman", "podman has no containers of this user")
    return ContainerWorkload(engine, _lister(engine, run, binding), stops=bool(options.get("stop")))


def _lister(
    engine: Docker | Podman | UnavailableEngine, run: Run, binding: str | None
) -> Callable[[], Sequence[Mapping[str, Any]]]:
    def containers() -> Sequence[Mapping[str, Any]]:
        facts = facts_gather.gather(
            _SUBSETS, run=run, timeout=10, binding_path=binding or nvml_binding.remembered(), driver_root=None
        )["facts"]
        accelerator = Nvidia(lambda subsets: facts)
        with contextlib.suppress(SelectionError):  # Containers can have GPUs that the driver does not show.
            accelerator.observe()
        reservations = Reservations(directory_for(os.geteuid(), os.environ))
        try:
            found = usage_report.report({engine.name: engine}, accelerator, reservations, user=os.geteuid())
        except ReservationError as error:
            raise WorkloadError(str(error)) from error
        listing = found["engines"][engine.name]
        if not listing["listed"]:
            raise WorkloadError(f"The containers of {engine.name} cannot be listed: {listing['reason']}")
        return found["containers"]

    return containers
