# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs and MIG devices of a host."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.host_text import UUID, is_like
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import device_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import health as nvml_health

_PCI = re.compile(
    r"^(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})(?:\.(?P<function>[0-7]))?$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a GPU, as NVML lists it. `gi` and `ci` name its MIG device."""

    pid: int
    name: str = ""
    gi: int | None = None
    ci: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU of the host. `processes` is None if they were not read or if the driver does not list them."""

    index: int
    minor: int | None
    uuid: str
    name: str = ""
    pci_bus_id: str | None = None
    memory_total_mib: int | None = None
    memory_free_mib: int | None = None
    numa_node: int | None = None
    compute_capability: str | None = None
    brand: str | None = None
    mig_enabled: bool = False
    health_state: str = "ok"
    health_reasons: tuple[str, ...] = ()
    compute_mode: str | None = None
    recovery_action: str | None = None
    processes: tuple[GpuProcess, ...] | None = None

    @property
    def lost(self) -> bool:
        return self.health_state == "lost"

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

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.uuid})"


@dataclass(frozen=True)
class Unit:
    """A device that can be assigned to a container: a whole GPU, or one MIG device of a GPU in MIG mode."""

    uuid: str
    gpu: Gpu
    mig_index: int | None = None
    gi: int | None = None
    ci: int | None = None
    profile: str | None = None
    memory_total_mib: int | None = None
    memory_free_mib: int | None = None

    @property
    def is_mig(self) -> bool:
        return self.mig_index is not None

    @property
    def index(self) -> str:
        """Return the index that nvidia-smi and the toolkit use: "2", or "2:0" for a MIG device."""
        return f"{self.gpu.index}:{self.mig_index}" if self.is_mig else str(self.gpu.index)

    @property
    def mig_keys(self) -> tuple[str, str]:
        """Return the names of the capability nodes of a MIG device in the driver's list of minor numbers."""
        return device_nodes.mig_keys(self.gpu.minor, self.gi, self.ci)

    def runs(self, process: GpuProcess) -> bool:
        """Return whether a process of the GPU uses this unit."""
        return not self.is_mig or process.gi is None or (process.gi, process.ci) == (self.gi, self.ci)

    @property
    def order(self) -> tuple[int, int]:
        return (self.gpu.index, -1 if self.mig_index is None else self.mig_index)

    def __str__(self) -> str:
        return f"MIG {self.index} ({self.uuid}, {self.profile})" if self.is_mig else str(self.gpu)


@dataclass(frozen=True)
class Inventory:
    """The GPUs of a host and the units that can be assigned to containers."""

    gpus: tuple[Gpu, ...] = ()
    units: tuple[Unit, ...] = ()

    def by_uuid(self) -> dict[str, Unit]:
        return {unit.uuid: unit for unit in self.units}

    def mig_devices(self, gpu: Gpu) -> list[Unit]:
        return [unit for unit in self.units if unit.is_mig and unit.gpu.uuid == gpu.uuid]

    def named(self, name: str) -> list[Unit]:
        """Return the units with a UUID or an index, or the MIG devices of the GPU with this UUID or index."""
        return [
            unit for unit in self.units if name in (unit.uuid, unit.index, unit.gpu.uuid) or name == str(unit.gpu.index)
        ]

    def by_nodes(
        self, minors: Collection[int], capability_minors: Collection[int], mig_minors: Mapping[str, int]
    ) -> list[Unit]:
        """Return the units to which device nodes give access. `mig_minors` are those of all capability nodes."""
        return [
            unit
            for unit in self.units
            if unit.gpu.minor in minors
            and (not unit.is_mig or all(mig_minors.get(key) in capability_minors for key in unit.mig_keys))
        ]

    def describe(self, with_numa: bool = False) -> str:
        """Describe all GPUs for an error message."""
        if not self.gpus:
            return "no GPU"
        return ", ".join(self._describe_gpu(gpu, with_numa) for gpu in self.gpus)

    def _describe_gpu(self, gpu: Gpu, with_numa: bool) -> str:
        facts = [gpu.uuid, gpu.name, _format_memory(gpu.memory_total_mib)]
        if with_numa:
            facts.append("NUMA node unknown" if gpu.numa_node is None else f"NUMA node {gpu.numa_node}")
        if gpu.lost:
            facts.append("lost")
        if gpu.mig_enabled:
            devices = ", ".join(
                " ".join(filter(None, (unit.index, unit.uuid, unit.profile, _format_memory(unit.memory_total_mib))))
                for unit in self.mig_devices(gpu)
            )
            facts.append(f"MIG enabled: {devices or 'no MIG device'}")
        return f"GPU {gpu.index} ({', '.join(filter(None, facts))})"


def inventory_from_facts(gpus: Sequence[Mapping[str, Any]]) -> Inventory:
    """Convert the fact `nvidia_gpus`."""
    found: list[Gpu] = []
    units: list[Unit] = []
    for item in gpus:
        mig = item.get("mig") or {}
        health = item.get("health") or {}
        gpu = Gpu(
            index=item["index"],
            minor=item.get("minor"),
            uuid=item["uuid"] if is_like(UUID, item.get("uuid")) else f"GPU-unknown-{item['index']}",
            name=item.get("name") or "",
            pci_bus_id=item.get("pci_bus_id"),
            memory_total_mib=item.get("memory_total_mib"),
            memory_free_mib=item.get("memory_free_mib"),
            numa_node=item.get("numa_node"),
            compute_capability=item.get("compute_capability"),
            brand=item.get("brand"),
            mig_enabled=bool(mig.get("enabled")),
            health_state=health.get("state") or "ok",
            health_reasons=tuple(health.get("reasons") or ()),
            compute_mode=item.get("compute_mode"),
            recovery_action=item.get("recovery_action"),
            processes=_processes(item.get("processes")),
        )
        found.append(gpu)
        if not gpu.mig_enabled:
            units.append(Unit(uuid=gpu.uuid, gpu=gpu))
            continue
        units.extend(
            Unit(
                uuid=device["uuid"],
                gpu=gpu,
                mig_index=device["index"],
                gi=device.get("gi"),
                ci=device.get("ci"),
                profile=device.get("profile"),
                memory_total_mib=device.get("memory_total_mib"),
                memory_free_mib=device.get("memory_free_mib"),
            )
            for device in mig.get("devices") or ()
            if is_like(UUID, device.get("uuid"))
        )
    return Inventory(gpus=tuple(found), units=tuple(units))


def parse_pci_address(address: str) -> tuple[int, ...] | None:
    """Return domain, bus, device and function. Return None for text that is not a PCI address."""
    match = _PCI.match(address)
    if match is None:
        return None
    return tuple(int(match.group(part) or "0", 16) for part in ("domain", "bus", "device", "function"))


def same_pci_address(first: str | None, second: str) -> bool:
    """Return whether two notations name the same PCI address."""
    address = parse_pci_address(second)
    return first is not None and address is not None and parse_pci_address(first) == address


def _processes(listed: Sequence[Mapping[str, Any]] | None) -> tuple[GpuProcess, ...] | None:
    if listed is None:
        return None
    return tuple(
        GpuProcess(pid=one["pid"], name=one.get("name") or "", gi=one.get("gi"), ci=one.get("ci"))
        for one in listed
        if one.get("pid") is not None
    )


def _format_memory(memory: int | None) -> str | None:
    return None if memory is None else f"{memory} MiB"
