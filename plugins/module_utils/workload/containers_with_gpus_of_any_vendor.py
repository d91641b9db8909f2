# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapters docker and podman on this host: the engines, and their containers with accelerators of any vendor."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import vendor_of_host
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import (
    ReservationError,
    Reservations,
    directory_for,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import ContainerVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import stopped_engine
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    Docker,
    Podman,
    UnavailableEngine,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import DOCKER_HOST, EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import pynvml_kept_until_boot as nvml_binding
from ansible_collections.gpufleet.hosts.plugins.module_utils.usage import gpu_usage_report as usage_report
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import WorkloadError
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.docker_and_podman_adapter import ContainerWorkload

# Of nvidia_gpu_facts.
_SUBSETS = frozenset({"min", "identity"})


def docker(options: Mapping[str, Any], run: Run, binding: str | None) -> ContainerWorkload:
    """Return the adapter for Docker. `binding`: the path of pynvml if the controller sent it."""
    try:
        engine: Docker | UnavailableEngine = Docker(options.get("docker_host") or DOCKER_HOST)
    except EngineError as error:
        raise WorkloadError(str(error)) from error
    if not os.path.exists(engine.socket or "/") or (
        engine.socket and stopped_engine.is_socket_activated(engine.socket)
    ):
        engine = UnavailableEngine("docker", "docker is not running")
    return ContainerWorkload(engine, lister(engine, run, binding), stops=bool(options.get("stop")))


def podman(options: Mapping[str, Any], run: Run, binding: str | None) -> ContainerWorkload:
    """Return the adapter for root's Podman."""
    program = pinned_environment.find("podman")
    engine: Podman | UnavailableEngine = Podman(run, program)
    # The first call of Podman would create its storage.
    if program is None or stopped_engine.podman() is not None:
        engine = UnavailableEngine("podman", "podman has no containers of this user")
    return ContainerWorkload(engine, lister(engine, run, binding), stops=bool(options.get("stop")))


def lister(
    engine: Docker | Podman | UnavailableEngine, run: Run, binding: str | None, root: str = "/"
) -> Callable[[], Sequence[Mapping[str, Any]]]:
    """Return the function that lists the containers with accelerators of any vendor. `root` is / except in tests."""

    def gather(_subsets: frozenset) -> Mapping[str, Any]:
        path = binding or nvml_binding.remembered()
        return facts_gather.gather(_SUBSETS, run=run, timeout=10, binding_path=path, driver_root=None)["facts"]

    def containers() -> Sequence[Mapping[str, Any]]:
        host = vendor_of_host.VendorHost({"cdi_kind": None, "driver_root": None}, run, gather, root)
        found: dict[str, Mapping[str, Any]] = {}
        for vendor in vendor_of_host.on_host(root):
            found.update({one["id"]: one for one in _of_vendor(engine, vendor_of_host.VENDORS[vendor](host))})
        return list(found.values())

    return containers


def _of_vendor(
    engine: Docker | Podman | UnavailableEngine, accelerator: ContainerVendor
) -> Sequence[Mapping[str, Any]]:
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
