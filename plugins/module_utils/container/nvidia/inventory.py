# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's GPUs and MIG devices, from the facts of nvidia_gpu_facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import UUID, is_like
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Gpu,
    GpuProcess,
    GpuWords,
    Inventory,
    Unit,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpu_distance import Topology
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import gpu_health as nvml_health


@dataclass(frozen=True)
class NvidiaGpu(Gpu):
    """A GPU of NVIDIA."""

    words: ClassVar[GpuWords] = GpuWords(
        "MIG device", "MIG", "MIG", "an index, a UUID or its beginning (GPU-…, MIG-…), a PCI address, or gpu:mig"
    )

    minor: int | None = None
    compute_capability: str | None = None
    brand: str | None = None
    compute_mode: str | None = None
    recovery_action: str | None = None

    @property
    def unusable_reason(self) -> str | None:
        """Return why a count never selects this GPU, or None for a usable GPU."""
        reasons = []
        if self.lost:
            reasons.append("lost")
        if self.recovery_action not in (None, "none"):
            reasons.append(f"recovery action {self.recovery_action} is pending")
        elif nvml_health.needs_reset(self.health_reasons):
            reasons.append("a reset is required")
        if reasons:
            reasons += self.health_reasons
        if self.compute_mode == "prohibited":
            reasons.append(
                f"compute mode is prohibited (nvidia-smi --id={self.index} --compute-mode=DEFAULT changes it)"
            )
        return "; ".join(reasons) or None


@dataclass(frozen=True)
class NvidiaUnit(Unit):
    """A GPU, or a MIG device. The IDs of a partition are those of its GPU instance and its compute instance."""

    @property
    def mig_keys(self) -> tuple[str, str]:
        """Return the names of the capability nodes of a MIG device in the driver's list of minor numbers."""
        return nvidia_device_nodes.mig_keys(self.gpu.minor, *self.partition)


def inventory_from_facts(gpus: Sequence[Mapping[str, Any]], mig_minors: Mapping[str, int] | None = None) -> Inventory:
    """Convert the fact `nvidia_gpus`. `mig_minors`: the minor numbers of the capability nodes."""
    found: list[NvidiaGpu] = []
    units: list[NvidiaUnit] = []
    for item in gpus:
        mig = item.get("mig") or {}
        health = item.get("health") or {}
        minor = item.get("minor")
        gpu = NvidiaGpu(
            index=item["index"],
            minor=minor,
            uuid=item["uuid"] if is_like(UUID, item.get("uuid")) else f"GPU-unknown-{item['index']}",
            name=item.get("name") or "",
            pci_bus_id=item.get("pci_bus_id"),
            memory_total_mib=item.get("memory_total_mib"),
            memory_free_mib=item.get("memory_free_mib"),
            numa_node=item.get("numa_node"),
            compute_capability=item.get("compute_capability"),
            brand=item.get("brand"),
            is_partitioned=bool(mig.get("enabled")),
            health_state=health.get("state") or "ok",
            health_reasons=tuple(health.get("reasons") or ()),
            compute_mode=item.get("compute_mode"),
            recovery_action=item.get("recovery_action"),
            processes=_processes(item.get("processes")),
            nodes=frozenset() if minor is None else frozenset({nvidia_device_nodes.gpu_node(minor)}),
        )
        found.append(gpu)
        if not gpu.is_partitioned:
            units.append(NvidiaUnit(uuid=gpu.uuid, gpu=gpu, nodes=gpu.nodes))
            continue
        units.extend(
            NvidiaUnit(
                uuid=device["uuid"],
                gpu=gpu,
                partition_index=device["index"],
                partition=(device.get("gi"), device.get("ci")),
                profile=device.get("profile"),
                memory_total_mib=device.get("memory_total_mib"),
                memory_free_mib=device.get("memory_free_mib"),
                nodes=_mig_nodes(gpu, device, mig_minors or {}),
                aliases=(f"MIG-{gpu.uuid}/{device.get('gi')}/{device.get('ci')}",),
            )
            for device in mig.get("devices") or ()
            if is_like(UUID, device.get("uuid"))
        )
    return Inventory(gpus=tuple(found), units=tuple(units))


def topology_from_facts(topology: Mapping[str, Any] | None) -> Topology:
    """Convert the fact `nvidia_topology`."""
    if not topology:
        return Topology()
    return Topology(
        uuids=tuple(topology.get("gpus") or ()),
        links=tuple(tuple(row) for row in topology.get("nvlinks") or ()),
        pcie=tuple(tuple(row) for row in topology.get("pcie") or ()),
    )


def _mig_nodes(gpu: NvidiaGpu, device: Mapping[str, Any], mig_minors: Mapping[str, int]) -> frozenset[str]:
    """Return the nodes that together give access to a MIG device. Empty if one of them is unknown."""
    keys = nvidia_device_nodes.mig_keys(gpu.minor, device.get("gi"), device.get("ci"))
    if not gpu.nodes or not {*keys} <= {*mig_minors}:
        return frozenset()
    return gpu.nodes | {nvidia_device_nodes.capability_node(mig_minors[key]) for key in keys}


def _processes(listed: Sequence[Mapping[str, Any]] | None) -> tuple[GpuProcess, ...] | None:
    if listed is None:
        return None
    return tuple(
        GpuProcess(one["pid"], one.get("name") or "", None if one.get("gi") is None else (one["gi"], one.get("ci")))
        for one in listed
        if one.get("pid") is not None
    )
