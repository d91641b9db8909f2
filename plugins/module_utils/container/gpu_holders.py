# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which container, pod or process holds which GPU of a host, and when a stopped container does. Pure functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    GpuProcess,
    Inventory,
    Unit,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.container_labels import is_exclusive
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import (
    is_running,
    name_of,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.gpu_processes import Container, ProcessTable
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.kubelet_pod_devices import Kubelet, PodDevices

CONTAINER, POD, PROCESS = "container", "pod", "process"
KUBERNETES = "kubernetes"
_SHORT_IDENTIFIER = 12
# The kernel cuts the command of a process to this length: proc_pid_comm(5).
_LONGEST_COMMAND = 15
_NO_TABLE = ProcessTable(is_complete=False)
_NO_KUBELET = Kubelet()


def _as_is(path: str) -> Collection[str]:
    return (path,)


@dataclass(frozen=True)
class Holder:
    """A container, pod or process that holds GPUs, or a run in progress that has reserved GPUs for a container.

    `uuids` are GPUs and partitions. `exclusive`: whether they were assigned for exclusive use.
    `engine` is empty for a process. `user`: the user of a rootless engine or of a process, else empty.
    """

    name: str
    engine: str
    uuids: frozenset[str]
    exclusive: bool = False
    detail: str = ""
    kind: str = CONTAINER
    user: str = ""
    pid: int | None = None
    identifier: str = ""

    @property
    def key(self) -> tuple:
        return (self.kind, self.engine, self.user, self.name, self.pid)

    def __str__(self) -> str:
        is_process, name = self.kind == PROCESS, shown(self.name)
        text = f"process {self.pid} ({name})" if is_process else f"{self.engine} {self.kind} {name}"
        text += f" of user {self.user}" if self.user else ""
        return text + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class GpuUse:
    """How the GPUs of a host are used.

    `busy`: the processes on each unit, by UUID. `unlisted`: the GPUs whose processes the driver does not list.
    `rootless_users`: users of rootless engines. Their stopped containers are not visible.
    `offered`: the units that Kubernetes can give to pods.
    `is_container`: whether the host is a container itself. The processes outside of it are not visible.
    `compute_node`: the node that a program on a GPU also has open, if the vendor has one.
    """

    holders: tuple[Holder, ...] = ()
    busy: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unlisted: frozenset[str] = frozenset()
    rootless_users: tuple[str, ...] = ()
    offered: frozenset[str] = frozenset()
    is_container: bool = False
    compute_node: str | None = None

    def limits(self, units: Collection[Unit]) -> list[str]:
        """Describe what is not visible for these units, and who can use them later. Empty if all is visible."""
        offered = [str(unit) for unit in units if unit.uuid in self.offered]
        later = (
            f"Kubernetes can give {', '.join(offered)} to a pod, because its device plugin offers all GPUs of this "
            "host. Exclude the GPUs from the device plugin."
        )
        return [*self.unseen(units), *([later] if offered else [])]

    def unseen(self, units: Collection[Unit]) -> list[str]:
        """Describe what may hold these units and is not visible."""
        found = []
        if self.is_container:
            found.append("this host is a container itself. Processes and containers outside of it are not visible.")
        unlisted = list(dict.fromkeys(str(unit.gpu) for unit in units if unit.gpu.uuid in self.unlisted))
        if unlisted:
            nodes = (
                f"both the device node of the GPU and {self.compute_node}" if self.compute_node else "its device node"
            )
            found.append(
                f"the driver does not list the processes on {', '.join(unlisted)}. Only processes that have {nodes} "
                "open are counted."
            )
        if self.rootless_users:
            found.append(
                f"stopped containers of rootless engines (user {', '.join(self.rootless_users)}) are not visible. They "
                "use their GPUs again when they are started."
            )
        return found


def holders_of(unit: Unit, holders: Collection[Holder], inventory: Inventory | None = None) -> list[Holder]:
    """List the holders of a unit. The holder of a partition also holds its GPU, and vice versa."""
    related = {unit.uuid, unit.gpu.uuid}
    if inventory is not None and not unit.is_partition:
        related.update(device.uuid for device in inventory.partitions(unit.gpu))
    return [holder for holder in holders if holder.uuids & related]


def sharing_warnings(units: Iterable[Unit], holders: Collection[Holder]) -> list[str]:
    """Return a warning for each unit that another holder uses exclusively."""
    return [
        f"{unit} is shared with {holder}, which requested exclusive use."
        for unit in units
        for holder in holders_of(unit, holders)
        if holder.exclusive
    ]


def without_repetitions(holders: Iterable[Holder]) -> list[Holder]:
    """Return one holder for each ID: two engines list a container if one answers on the socket of the other."""
    found = list(holders)
    first = {holder.identifier: holder for holder in reversed(found)}
    return [holder for holder in found if not holder.identifier or first[holder.identifier] is holder]


def merge_holders(holders: Iterable[Holder]) -> list[Holder]:
    """Combine several entries for one container. The result holds the GPUs of all of them."""
    found: dict[tuple, Holder] = {}
    for holder in holders:
        known = found.get(holder.key, holder)
        found[holder.key] = replace(
            known,
            uuids=known.uuids | holder.uuids,
            exclusive=known.exclusive or holder.exclusive,
            detail="; ".join(dict.fromkeys(detail for detail in (known.detail, holder.detail) if detail)),
        )
    return list(found.values())


def find_use(
    inventory: Inventory,
    listed: Iterable[Holder],
    table: ProcessTable | None = None,
    kubelet: Kubelet = _NO_KUBELET,
    nodes: Callable[[str], Collection[str]] = _as_is,
    *,
    ignored: Collection[str] = (),
    own: tuple[str, str] | None = None,
    compute_node: str | None = None,
) -> GpuUse:
    """Return how the GPUs of a host are used.

    `listed`: every container of the queried engines, with its ID. A container that requested no GPU has no UUIDs. Other
    containers come from the process table. `table` is None if only the queried engines count.
    `nodes` maps /dev/char/MAJOR:MINOR to the names of the vendor's nodes: see vendor_protocol.py.
    `ignored`: names of containers, pods and commands that do not count. `own`: engine and name of one more container.
    """
    finder = _Finder(inventory, listed, table or _NO_TABLE, kubelet, nodes)
    if table is not None:
        finder.add_containers()
        finder.add_pods()
        finder.add_processes()

    def counts(holder: Holder) -> bool:
        names = {holder.name, holder.name.rpartition("/")[2]}  # a pod with and without its namespace
        if holder.kind == PROCESS and len(holder.name) == _LONGEST_COMMAND:
            names.update(name for name in ignored if name.startswith(holder.name))
        is_own = (holder.kind, holder.user, holder.engine, holder.name) == (CONTAINER, "", *(own or ()))
        return names.isdisjoint(ignored) and not is_own

    busy: dict[str, tuple[str, ...]] = {}
    for unit in inventory.units:
        descriptions = [
            f"process {process.pid}" + (f" ({shown(owner.name)})" if owner.kind == PROCESS else f" of {owner}")
            for process in finder.processes(unit)
            if counts(owner := finder.owner(process))
        ]
        if descriptions:
            busy[unit.uuid] = tuple(dict.fromkeys(descriptions))
    return GpuUse(
        holders=tuple(holder for holder in merge_holders(finder.found) if holder.uuids and counts(holder)),
        busy=busy,
        unlisted=frozenset(gpu.uuid for gpu in inventory.gpus if gpu.processes is None),
        rootless_users=tuple(sorted(finder.table.rootless_users)),
        offered=frozenset(unit.uuid for device in kubelet.offered for unit in inventory.named(device)),
        is_container=table is not None and not table.is_complete,
        compute_node=compute_node,
    )


class _Finder:
    """Collect the holders. The public functions of this file are the interface."""

    def __init__(
        self,
        inventory: Inventory,
        listed: Iterable[Holder],
        table: ProcessTable,
        kubelet: Kubelet,
        nodes: Callable[[str], Collection[str]],
    ) -> None:
        self.found = list(listed)
        self.table = table
        self._inventory = inventory
        self._by_identifier = {holder.identifier: holder for holder in self.found if holder.identifier}
        self._running_pods = [pod for pod in kubelet.pods if pod.uid in table.pods]
        self._pods = {pod.uid: pod for pod in kubelet.pods}
        self._nodes = functools.lru_cache(maxsize=None)(lambda major, minor: nodes(f"/dev/char/{major}:{minor}"))

    def add_containers(self) -> None:
        """Add the containers of other engines and users by their device nodes.

        The checkpoint of Kubernetes is complete for the pods in it. Other pods and privileged containers that see all
        GPUs hold none: they watch the GPUs, as the device plugin and DCGM do.
        """
        every_gpu = {node for gpu in self._inventory.gpus for node in gpu.nodes}
        for container in self.table.containers:
            if self._known(container) or container.pod in self._pods:
                continue
            nodes = {node for number in container.devices for node in self._nodes(*number)}
            if nodes >= every_gpu and (container.privileged or container.pod):
                continue
            units = self._inventory.by_nodes(nodes)
            if units:
                self.found.append(replace(self._unlisted(container), uuids=frozenset(unit.uuid for unit in units)))

    def add_pods(self) -> None:
        """Add the running pods. A pod has its GPUs exclusively, unless the device plugin shares them."""
        for pod in self._running_pods:
            for device in sorted(pod.devices):
                uuids = frozenset(unit.uuid for unit in self._inventory.named(device))
                self.found.append(replace(_pod_holder(pod), uuids=uuids, exclusive=device not in pod.shared))

    def add_processes(self) -> None:
        """Add the processes on each GPU, or their containers if these did not request the GPU."""
        for unit in self._inventory.units:
            for process in self.processes(unit):
                owner = self.owner(process)
                if any(unit.uuid in holder.uuids for holder in self.found if holder.key == owner.key):
                    continue
                detail = owner.detail
                if owner.kind != PROCESS:
                    detail = f"process {process.pid}"
                self.found.append(replace(owner, uuids=frozenset({unit.uuid}), exclusive=False, detail=detail))

    def processes(self, unit: Unit) -> list[GpuProcess]:
        """Return the processes on a unit, without those that have ended since the driver listed them."""
        listed = unit.gpu.processes
        if listed is None:
            nodes = unit.gpu.nodes or unit.nodes
            listed = tuple(GpuProcess(one.pid) for one in self.table.processes.values() if nodes & one.opened)
        return [
            process
            for process in listed
            if unit.runs(process) and (process.pid in self.table.processes or not self.table.is_complete)
        ]

    def owner(self, process: GpuProcess) -> Holder:
        """Return the container of a process, or the process itself."""
        seen = self.table.processes.get(process.pid)
        if seen is not None and seen.container is not None:
            return self._known(seen.container) or self._unlisted(seen.container)
        name = seen.command if seen else process.name.rpartition("/")[2]
        return Holder(
            name=name or "unknown",
            engine="",
            uuids=frozenset(),
            kind=PROCESS,
            user=seen.user if seen else "",
            pid=process.pid,
        )

    def _known(self, container: Container) -> Holder | None:
        """Return the container of a queried engine. A container inside of another one belongs to the outer one."""
        return next((self._by_identifier[key] for key in container.identifiers if key in self._by_identifier), None)

    def _unlisted(self, container: Container) -> Holder:
        if container.pod in self._pods:
            return _pod_holder(self._pods[container.pod])
        identifier = container.identifiers[-1] if container.identifiers else ""
        if container.pod:
            return Holder(container.pod, KUBERNETES, frozenset(), kind=POD)
        return Holder(
            name=container.name or identifier[:_SHORT_IDENTIFIER],
            engine=container.engine,
            uuids=frozenset(),
            user=container.user,
            identifier=identifier,
        )


def _pod_holder(pod: PodDevices) -> Holder:
    return Holder(pod.name, KUBERNETES, frozenset(), kind=POD)


def holding_state(container: Mapping[str, Any]) -> str | None:
    """Return the state in which a container holds its GPUs, or None if it does not hold them.

    A running, paused or restarting container holds its GPUs. A stopped container holds them if the engine starts it
    again: with the restart policy `always`, or with `unless-stopped` if nobody stopped it. Then it was never started,
    or its last start failed, for example at boot.
    """
    details = container.get("State") or {}
    state = details.get("Status") or ("running" if is_running(container) else "exited")
    if is_running(container):
        return state
    if state == "dead":
        return None  # Its removal failed halfway, and Docker never starts it again.
    policy = ((container.get("HostConfig") or {}).get("RestartPolicy") or {}).get("Name") or ""
    is_waiting = state in ("created", "configured", "initialized") or bool(details.get("Error"))
    if policy == "always" or (policy == "unless-stopped" and is_waiting):
        return f"{state}, restart policy {policy}"
    return None


def as_holder(container: Mapping[str, Any], engine: EngineState, held: frozenset[str]) -> Holder:
    """Return a container as a holder. It has no UUIDs if it does not hold the GPUs that it was given."""
    state = holding_state(container)
    return Holder(
        name=name_of(container),
        engine=engine.name,
        uuids=frozenset() if state is None else held,
        exclusive=is_exclusive(container),
        detail="" if state in (None, "running") else state,
        identifier=str(container.get("Id") or ""),
    )
