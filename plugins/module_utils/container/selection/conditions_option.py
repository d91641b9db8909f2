# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option `conditions`: which GPUs it excludes, and why. Pure functions."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import GpuWords, Inventory, Unit


@dataclass(frozen=True)
class Conditions:
    """Conditions that every selected GPU must meet.

    Free memory, health and processes are the present state of a GPU. A running container keeps its GPUs in any state.
    """

    memory_min_mib: int | None = None
    model: str | None = None
    numa_node: int | None = None
    mig_profile: str | None = None
    memory_free_min_mib: int | None = None
    health: str | None = None
    idle: bool | None = None

    def mismatch(self, unit: Unit) -> str | None:
        """Return why a unit does not meet the conditions, or None if it does."""
        if self.mig_profile is not None and (unit.profile or "").lower() != self.mig_profile.lower():
            word = f"{unit.gpu.words.prefix} profile"
            actual = f"has {word} {unit.profile}" if unit.is_partition else "is a whole GPU"
            return f"{actual}, not {word} {self.mig_profile}"
        unknown = self.unknown(unit)
        if unknown:
            return unknown
        if self.memory_min_mib is not None and (_memory(unit) or 0) < self.memory_min_mib:
            return f"has {_memory(unit)} MiB of memory, less than {self.memory_min_mib}"
        if self.model is not None and not _matches_model(unit.gpu.name, self.model):
            return f"is model {unit.gpu.name!r}, not {self.model!r}"
        if self.numa_node is not None and unit.gpu.numa_node != self.numa_node:
            return f"is on NUMA node {unit.gpu.numa_node}, not {self.numa_node}"
        return None

    def unknown(self, unit: Unit) -> str | None:
        """Return which property of a condition the driver does not report, or None."""
        if self.memory_min_mib is not None and _memory(unit) is None:
            return "does not report its memory, for example because the CPU shares it. Remove memory_min_mib"
        if self.numa_node is not None and unit.gpu.numa_node is None:
            return "does not report its NUMA node"
        return None

    def present_mismatch(self, unit: Unit, busy: Mapping[str, Sequence[str]]) -> str | None:
        """Return why a unit does not meet the conditions on its present state, or None. `busy`: see GpuUse."""
        free = unit.memory_free_mib if unit.is_partition else unit.gpu.memory_free_mib
        if self.memory_free_min_mib is not None and free is None:
            return "does not report its free memory"
        if self.memory_free_min_mib is not None and free < self.memory_free_min_mib:
            return f"has {free} MiB of free memory, less than {self.memory_free_min_mib}"
        if self.health == "ok" and unit.gpu.health_state != "ok":
            reasons = "; ".join(unit.gpu.health_reasons) or "no reason given"
            return f"is {unit.gpu.health_state}: {reasons}"
        if self.idle and unit.gpu.processes is None:
            return "may be in use: the driver does not list its processes"
        if self.idle and unit.uuid in busy:
            return f"is used by {', '.join(busy[unit.uuid])}"
        return None

    def described(self, words: GpuWords) -> str:
        """Return the conditions for a message, or an empty text. `words`: those of the vendor."""
        templates = {
            "memory_min_mib": "at least {} MiB of memory",
            "memory_free_min_mib": "at least {} MiB of free memory",
            "model": "model {}",
            "numa_node": "NUMA node {}",
            "mig_profile": words.prefix + " profile {}",
            "health": "health {}",
            "idle": "no process",
        }
        values = {key: getattr(self, key) for key in templates}
        # The values that set no condition.
        no_condition = {"health": "degraded", "idle": False}
        return ", ".join(
            text.format(values[key])
            for key, text in templates.items()
            if values[key] is not None and values[key] != no_condition.get(key)
        )


class ConditionsNow(NamedTuple):
    """The conditions, and what they are compared with. `kept` are the GPUs of the running container."""

    conditions: Conditions
    busy: Mapping[str, Sequence[str]]
    kept: frozenset[str]

    def mismatch(self, unit: Unit) -> str | None:
        """Return why a unit is rejected, or None."""
        return self.conditions.mismatch(unit) or self._present_mismatch(unit)

    def describe_host(self, inventory: Inventory) -> str:
        """Describe the GPUs of the host with the properties that the conditions need."""
        return f"This host has {inventory.describe(with_numa=self.conditions.numa_node is not None)}."

    def describe_rejected(self, units: Sequence[Unit]) -> str:
        """List the units that are rejected because of their present state, or because a property is unknown."""
        unknown = [(unit, reason) for unit in units if (reason := self.conditions.unknown(unit))]
        fitting = [unit for unit in units if self.conditions.mismatch(unit) is None]
        present = [(unit, reason) for unit in fitting if (reason := self._present_mismatch(unit))]
        rejected = "; ".join(f"{unit} {reason}" for unit, reason in (*unknown, *present))
        return f"Rejected: {rejected}. " if rejected else ""

    def _present_mismatch(self, unit: Unit) -> str | None:
        return None if unit.uuid in self.kept else self.conditions.present_mismatch(unit, self.busy)


def _memory(unit: Unit) -> int | None:
    return unit.memory_total_mib if unit.is_partition else unit.gpu.memory_total_mib


def _matches_model(name: str, model: str) -> bool:
    name, model = name.lower(), model.lower()
    return fnmatch.fnmatchcase(name, model) if any(sign in model for sign in "*?[") else model in name
