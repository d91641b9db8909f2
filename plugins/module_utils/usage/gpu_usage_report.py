# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds which GPU of a host, and which GPUs are free. Only reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import gpu_holders
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Inventory,
    Unit,
    unit_indexes,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import (
    container_labels,
    inspected_container,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import GpuUse, Holder, holders_of
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.slurm_jobs import JobsUnknown
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import ContainerVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    Docker,
    EngineState,
    Podman,
    UnavailableEngine,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError

Engines = Mapping[str, "Docker | Podman | UnavailableEngine"]
_NO_RESERVATION = ("", "")


@dataclass
class Listing:
    """The containers of one engine, or the reason why they are not listed."""

    state: EngineState | None = None
    containers: list[dict] = field(default_factory=list)
    reason: str | None = None


def report(
    engines: Engines,
    accelerator: ContainerVendor,
    reservations: Reservations,
    *,
    user: int,
    jobs: Callable[[Inventory], list[Holder]] = lambda _inventory: [],
) -> dict[str, Any]:
    """Return the GPUs with their holders, the containers with GPUs, and the engines. `user` runs the task."""
    listings = {name: _list_containers(engine) for name, engine in engines.items()}
    _drop_repetitions(listings)
    use, unseen = find_use(listings, accelerator, reservations, user=user, jobs=jobs)
    gpus = [_describe_unit(unit, use.holders, accelerator) for unit in accelerator.inventory.units]
    return {
        "gpus": gpus,
        "free": [gpu["uuid"] for gpu in gpus if gpu["free"]],
        "containers": [
            described
            for listing in listings.values()
            for container in listing.containers
            if (described := _describe_container(container, listing.state, use.holders, accelerator)) is not None
        ],
        "engines": {name: _describe_engine(listing) for name, listing in listings.items()},
        "unseen": unseen,
    }


def find_use(
    listings: Mapping[str, Listing],
    accelerator: ContainerVendor,
    reservations: Reservations,
    *,
    user: int,
    jobs: Callable[[Inventory], list[Holder]] = lambda _inventory: [],
) -> tuple[GpuUse, list[str]]:
    """Return what holds the GPUs, and sentences about holders that cannot be seen."""
    listed = [
        gpu_holders.as_holder(container, listing.state, accelerator.assigned_gpus(container, listing.state).held)
        for listing in listings.values()
        for container in listing.containers
    ]
    scheduled, unknown = _scheduled(jobs, accelerator.inventory)
    reserved = reservations.holders(exclude=_NO_RESERVATION)
    use = accelerator.use([*listed, *reserved, *scheduled], whole_host=user == 0)
    unseen = [
        *unknown,
        *(
            f"The containers of {name} are not listed: {listing.reason.rstrip('.')}."
            for name, listing in listings.items()
            if listing.reason is not None and (listing.state is not None or _is_denied(listing.reason))
        ),
    ]
    if user != 0:
        unseen.append(
            f"The task runs as uid {user}, which does not see containers, processes and reservations of other users, "
            "and pods of Kubernetes. Set become: true to include them."
        )
    elif accelerator.inventory.units:
        unseen += [text[0].upper() + text[1:] for text in use.unseen(accelerator.inventory.units)]
    return use, unseen


def _scheduled(jobs: Callable[[Inventory], list[Holder]], inventory: Inventory) -> tuple[list[Holder], list[str]]:
    """Return the jobs of a scheduler that hold GPUs, or a sentence why they are not known."""
    try:
        return jobs(inventory), []
    except JobsUnknown as error:
        return [], [str(error)]


def _drop_repetitions(listings: Mapping[str, Listing]) -> None:
    """Keep each container once: two engines list it if one answers on the socket of the other."""
    seen: set[str] = set()
    for listing in listings.values():
        listing.containers = [one for one in listing.containers if not one.get("Id") or one["Id"] not in seen]
        seen.update(one["Id"] for one in listing.containers if one.get("Id"))


def _list_containers(engine: Docker | Podman | UnavailableEngine) -> Listing:
    reason = engine.unavailable_reason()
    if reason is not None:
        return Listing(reason=reason)
    # An engine that answers, but cannot list its containers, still has a state: its containers may hold GPUs.
    listing = Listing(state=EngineState(engine.name, ""))
    try:
        listing.state = engine.state()
        listing.containers = [container_labels.with_image_labels(engine, one) for one in engine.containers()]
    except EngineError as error:
        listing.reason = str(error).strip().splitlines()[-1]
    return listing


def _is_denied(reason: str) -> bool:
    """Return whether an engine runs that this user must not query."""
    return "permission denied" in reason.lower()


def _describe_engine(listing: Listing) -> dict[str, Any]:
    return {
        "listed": listing.reason is None,
        "reason": listing.reason,
        "version": (listing.state.version or None) if listing.state else None,
        "rootless": listing.state.rootless if listing.state and listing.state.version else None,
    }


def _describe_unit(unit: Unit, holders: Sequence[Holder], accelerator: ContainerVendor) -> dict[str, Any]:
    found = holders_of(unit, holders, accelerator.inventory)
    gpu = unit.gpu
    return {
        "uuid": unit.uuid,
        "index": unit_indexes([unit])[0],
        "gpu_uuid": gpu.uuid,
        "name": gpu.name,
        "pci_bus_id": gpu.pci_bus_id,
        "mig_profile": unit.profile,
        "memory_total_mib": unit.memory_total_mib if unit.is_partition else gpu.memory_total_mib,
        "health": gpu.health_state,
        "unusable_reason": gpu.unusable_reason,
        "free": not found and gpu.unusable_reason is None,
        "exclusive": any(holder.exclusive for holder in found),
        "holders": [
            {
                "name": holder.name,
                "kind": holder.kind,
                "engine": holder.engine or None,
                "user": holder.user or None,
                "pid": holder.pid,
                "exclusive": holder.exclusive,
                "detail": holder.detail or None,
            }
            for holder in found
        ],
    }


def _describe_container(
    container: Mapping[str, Any], state: EngineState | None, holders: Sequence[Holder], accelerator: ContainerVendor
) -> dict[str, Any] | None:
    """Describe a container that has GPUs. Return None for another container."""
    if state is None:
        return None
    assigned = accelerator.assigned_gpus(container, state)
    key = gpu_holders.as_holder(container, state, assigned.held).key
    held = frozenset(uuid for holder in holders if holder.key == key for uuid in holder.uuids)
    uuids = assigned.uuids | held
    if not uuids:
        return None
    if not accelerator.inventory.gpus:
        # Without the driver, device nodes cannot be mapped to UUIDs.
        uuids = container_labels.labeled_gpus(container) or uuids
    known = accelerator.inventory.by_uuid()
    units = sorted((known[uuid] for uuid in uuids if uuid in known), key=lambda unit: unit.order)
    return {
        "name": inspected_container.name_of(container),
        "id": container.get("Id"),
        "engine": state.name,
        "image": container.get("ImageName") or (container.get("Config") or {}).get("Image"),
        "state": (container.get("State") or {}).get("Status"),
        "holds_gpus": bool(held),
        "exclusive": container_labels.is_exclusive(container),
        "isolation": assigned.isolation,
        "uuids": [unit.uuid for unit in units] + sorted(uuids - set(known)),
        "indexes": unit_indexes(units),
    }
