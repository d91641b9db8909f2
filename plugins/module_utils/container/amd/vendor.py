# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's GPUs and partitions, as the planner uses them: see vendor_protocol.py."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import amd_kfd_nodes, sysfs_refusals
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.amd import visible_devices
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Gpu,
    GpuProcess,
    Inventory,
    Unit,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_nodes_only import NodeVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpu_distance import Topology
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import AMD

# Processes with a compute context. vram_<gpu_id> is the memory of the process on that GPU, and queues/<n>/gpuid the GPU
# of a queue (torvalds/linux, drivers/gpu/drm/amd/amdkfd/kfd_process.c).
_PROCESSES = "/sys/class/kfd/kfd/proc"
_RENDER = re.compile(r"/dev/dri/renderD(\d+)")
# The kind of AMD's own tool.
_KIND_OF_AMD = "amd.com/gpu"
# Partitions of the same GPU are closer to each other than GPUs with a link.
_SAME_PARENT, _LINKED = 2, 1


class AmdVendor(NodeVendor):
    """The GPUs and partitions of this host. A partition is the unit of allocation, and has an index of its own."""

    name = AMD
    title = "AMD GPU"
    resources = ("amd.com/gpu",)

    def __init__(self, gather: Any, root: str = "/", cdi_kind: str | None = None) -> None:
        super().__init__(gather, root, cdi_kind)
        self._has_kind = cdi_kind is not None
        # By unit: all of its nodes, and the number of its render node.
        self._all_nodes: dict[str, list[str]] = {}
        self._minors: dict[int, str] = {}

    def build_inventory(self, devices: Sequence[Mapping[str, Any]]) -> Inventory:
        """Return each GPU and each partition as a unit."""
        for device in devices:
            nodes = [node["path"] for node in device["nodes"] or ()]
            self._all_nodes[device["stable_id"]] = nodes
            self._minors.update(
                {int(match[1]): device["stable_id"] for node in nodes if (match := _RENDER.match(node))}
            )
        return super().build_inventory(devices)

    def gpu(self, device: Mapping[str, Any], **more: Any) -> Gpu:
        """Return a device. Only its render node gives access to it, and partitions share the address of their GPU."""
        found = super().gpu(device, **more)
        render = frozenset(node["path"] for node in device["nodes"] or () if node["role"] == "render")
        address = None if device["partition"]["id"] is not None else found.pci_bus_id
        return replace(found, nodes=render, pci_bus_id=address)

    def build_topology(self, devices: Sequence[Mapping[str, Any]]) -> Topology:
        """Return the links: to partitions of the same GPU, to peers, and to the other GPUs of the hive."""
        known = [device for device in devices if device["index"] is not None]
        return Topology(
            uuids=tuple(device["stable_id"] for device in known),
            links=tuple(tuple(_links(one, other) for other in known) for one in known),
        )

    def units_of_runtime(self, container: Mapping[str, Any], engine: EngineState) -> frozenset[str]:
        """Return the GPUs that AMD's runtime gives to a container."""
        return visible_devices.units(container, engine, self.inventory)

    def _nodes_of(self, unit: Unit) -> list[str]:
        return self._all_nodes[unit.uuid]

    def _is_own(self, name: str) -> bool:
        return super()._is_own(name) or name.startswith(f"{_KIND_OF_AMD}=")

    def _cdi_device(self, unit: Unit, engine: EngineState) -> specification_reader.CdiDevice | None:
        """Return the CDI device with exactly the nodes of a unit: ours, else that of AMD's tool."""
        found = super()._cdi_device(unit, engine)
        if found or self._has_kind:
            return found
        device = self._read_specs(engine).devices.get(f"{_KIND_OF_AMD}={unit.gpu.index}")
        return device if device and set(device.nodes) == set(self._nodes_of(unit)) else None

    def _with_processes(self, inventory: Inventory) -> Inventory:
        """Return the inventory with the processes on each GPU.

        The runtime of ROCm opens the nodes of all GPUs. So of the processes that KFD knows, only those count that have
        memory or a queue on the GPU, and of all others, those that have its node open.
        """
        tree = sysfs_refusals.SysfsTree(self._root)
        if not tree.exists(_PROCESSES):
            return super()._with_processes(inventory)
        units = self._units_by_kfd_id(tree)
        computing = {int(name) for name in tree.names(_PROCESSES, r"[0-9]{1,10}")}
        found: dict[str, list[GpuProcess]] = {gpu.uuid: [] for gpu in inventory.gpus}
        for pid in sorted(computing):
            for kfd_id in _used(tree, f"{_PROCESSES}/{pid}") & units.keys():
                found[units[kfd_id]].append(GpuProcess(pid))
        nodes = {node for gpu in inventory.gpus for node in gpu.nodes}
        for one in gpu_processes.read(self._root, nodes=nodes).processes.values():
            for gpu in inventory.gpus:
                if one.pid not in computing and one.opened & gpu.nodes:
                    found[gpu.uuid].append(GpuProcess(one.pid, one.command))
        gpus = {gpu.uuid: replace(gpu, processes=tuple(found[gpu.uuid])) for gpu in inventory.gpus}
        changed = tuple(replace(unit, gpu=gpus[unit.gpu.uuid]) for unit in inventory.units)
        return replace(inventory, gpus=tuple(gpus.values()), units=changed)

    def _units_by_kfd_id(self, tree: sysfs_refusals.SysfsTree) -> dict[str, str]:
        """Return the stable ID of each unit by the ID that KFD gives it until the next boot."""
        found = {}
        for name in tree.names(amd_kfd_nodes.DIRECTORY, r"[0-9]{1,6}"):
            base = f"{amd_kfd_nodes.DIRECTORY}/{name}"
            minor = sysfs_refusals.properties(tree.read(f"{base}/properties").text or "").get("drm_render_minor")
            kfd_id = tree.read(f"{base}/gpu_id").text
            if minor in self._minors and kfd_id:
                found[kfd_id] = self._minors[minor]
        return found


def _links(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    if one is other:
        return 0
    parent = one["partition"]["parent"]
    if parent is not None and parent == other["partition"]["parent"]:
        return _SAME_PARENT
    links, others = one["links"] or {}, other["links"] or {}
    fabric = links.get("fabric")
    is_linked = other["stable_id"] in (links.get("peers") or ()) or (fabric and fabric == others.get("fabric"))
    return _LINKED if is_linked else 0


def _used(tree: sysfs_refusals.SysfsTree, directory: str) -> set[str]:
    """Return the IDs of the GPUs on which a process has memory or a queue."""
    found = {
        name[len("vram_") :]
        for name in tree.names(directory, r"vram_[0-9]{1,10}")
        if (tree.read(f"{directory}/{name}").text or "") not in ("", "0")
    }
    for queue in tree.names(f"{directory}/queues", r"[0-9]{1,10}"):
        found.add(tree.read(f"{directory}/queues/{queue}/gpuid").text or "")
    return found
