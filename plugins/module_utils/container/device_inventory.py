# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices of a host, and their partitions: which are usable, and how results and messages name them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

_PCI = re.compile(
    r"^(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})(?:\.(?P<function>[0-7]))?$",
    re.IGNORECASE,
)


class GpuWords(NamedTuple):
    """How messages name the partitions of a vendor's GPUs, and how a user names a device."""

    partition: str = "partition"
    # In front of an index: "partition 2:0".
    prefix: str = "partition"
    mode: str = "partitioning"
    selectors: str = "an index, a stable ID or its beginning, or a PCI address"


class RunRule(NamedTuple):
    """Containers get only devices with consecutive indexes. `why`: the reason, for messages.

    `aligned`: the numbers of devices for which a run at a multiple of the number is preferred.
    """

    why: str
    aligned: tuple[int, ...] = ()


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a GPU, as the driver lists it. `partition`: the IDs of its partition."""

    pid: int
    name: str = ""
    partition: tuple | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU of the host, or another vendor's accelerator.

    `uuid`: an ID that stays the same after a reboot. `nodes`: those that give access to this GPU and to no other.
    `processes` is None if they were not read or if the driver does not list them.
    """

    words: ClassVar[GpuWords] = GpuWords()

    index: int
    uuid: str
    name: str = ""
    pci_bus_id: str | None = None
    memory_total_mib: int | None = None
    memory_free_mib: int | None = None
    numa_node: int | None = None
    is_partitioned: bool = False
    health_state: str = "ok"
    health_reasons: tuple[str, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    nodes: frozenset[str] = frozenset()

    @property
    def lost(self) -> bool:
        return self.health_state == "lost"

    @property
    def unusable_reason(self) -> str | None:
        """Return why a count never selects this GPU, or None for a usable GPU."""
        return "; ".join(("lost", *self.health_reasons)) if self.lost else None

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.uuid})"


@dataclass(frozen=True)
class Unit:
    """A device that can be assigned to a container: a whole GPU, or one partition of a partitioned GPU.

    `partition`: the IDs of the partition, as in `GpuProcess`. `nodes`: those that give access to this unit and to no
    other. Empty if they are unknown.
    """

    uuid: str
    gpu: Gpu
    partition_index: int | None = None
    partition: tuple | None = None
    profile: str | None = None
    memory_total_mib: int | None = None
    memory_free_mib: int | None = None
    nodes: frozenset[str] = frozenset()
    # Other names of the unit that `gpus` accepts.
    aliases: tuple[str, ...] = ()

    @property
    def is_partition(self) -> bool:
        return self.partition_index is not None

    @property
    def index(self) -> str:
        """Return the index: "2", or "2:0" for a partition."""
        return f"{self.gpu.index}:{self.partition_index}" if self.is_partition else str(self.gpu.index)

    def runs(self, process: GpuProcess) -> bool:
        """Return whether a process of the GPU uses this unit."""
        return not self.is_partition or process.partition in (None, self.partition)

    @property
    def order(self) -> tuple[int, int]:
        return (self.gpu.index, -1 if self.partition_index is None else self.partition_index)

    def __str__(self) -> str:
        if not self.is_partition:
            return str(self.gpu)
        return f"{self.gpu.words.prefix} {self.index} ({', '.join(filter(None, (self.uuid, self.profile)))})"


@dataclass(frozen=True)
class Inventory:
    """The GPUs of a host and the units that can be assigned to containers.

    `runs` is None if a container can have any devices.
    `groups`: the sets of several units that can work together in one container, by their UUIDs. None: any set can.
    """

    gpus: tuple[Gpu, ...] = ()
    units: tuple[Unit, ...] = ()
    runs: RunRule | None = None
    groups: tuple[frozenset[str], ...] | None = None

    @property
    def words(self) -> GpuWords:
        return self.gpus[0].words if self.gpus else Gpu.words

    def by_uuid(self) -> dict[str, Unit]:
        return {unit.uuid: unit for unit in self.units}

    def partitions(self, gpu: Gpu) -> list[Unit]:
        return [unit for unit in self.units if unit.is_partition and unit.gpu.uuid == gpu.uuid]

    def named(self, name: str) -> list[Unit]:
        """Return the units with a UUID, an index or a PCI address, or the partitions of the GPU with it."""
        return [
            unit
            for unit in self.units
            if name in (unit.uuid, unit.index, unit.gpu.uuid, unit.gpu.pci_bus_id) or name == str(unit.gpu.index)
        ]

    def by_nodes(self, nodes: Collection[str]) -> list[Unit]:
        """Return the units to which device nodes give access."""
        return [unit for unit in self.units if unit.nodes and unit.nodes <= set(nodes)]

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
        if gpu.is_partitioned:
            devices = ", ".join(
                " ".join(filter(None, (unit.index, unit.uuid, unit.profile, _format_memory(unit.memory_total_mib))))
                for unit in self.partitions(gpu)
            )
            facts.append(f"{gpu.words.mode} enabled: {devices or 'no ' + gpu.words.partition}")
        return f"GPU {gpu.index} ({', '.join(filter(None, facts))})"


def unit_indexes(units: Sequence[Unit]) -> list[int | str]:
    """Return the index of each unit: a number for a GPU, "gpu:partition" for a partition."""
    return [unit.index if unit.is_partition else unit.gpu.index for unit in units]


def describe_unit(uuid: str, inventory: Inventory) -> str:
    """Describe a unit for the diff. The description is the UUID alone if the inventory does not contain the unit."""
    unit = inventory.by_uuid().get(uuid)
    if unit is None:
        return uuid
    word = unit.gpu.words.prefix if unit.is_partition else "GPU"
    return f"{uuid} ({word} {unit.index}, {unit.profile or unit.gpu.name})"


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


def _format_memory(memory: int | None) -> str | None:
    return None if memory is None else f"{memory} MiB"
