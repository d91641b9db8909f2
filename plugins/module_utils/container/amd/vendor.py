# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's GPUs and partitions, as the planner uses them: see vendor_protocol.py."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.amd import processes_using_gpu, visible_devices
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Gpu,
    Inventory,
    Unit,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_nodes_only import NodeVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpu_distance import Topology
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import AMD

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
        """Return the inventory with the processes on each GPU. Without a list of KFD, open device nodes decide."""
        found = processes_using_gpu.with_processes(inventory, self._root, self._minors)
        return super()._with_processes(inventory) if found is None else found


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
