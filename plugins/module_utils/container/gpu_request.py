# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options `gpus` and `conditions`: which GPUs a user requests."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import GpuWords, Unit

# The readings of a vendor that not every request needs. The free memory of whole devices is always read.
TOPOLOGY, PROCESSES, PARTITION_MEMORY = NEEDS = ("topology", "processes", "partition_memory")
_COUNT = re.compile(r"(-?[0-9]{1,18})(?:\.0+)?")


class SelectionError(Exception):
    """A request for GPUs that is not valid or that this host cannot satisfy."""


@dataclass(frozen=True)
class Request:
    """The parsed option `gpus`. `kind` is none, all, count or list."""

    kind: str
    count: int = 0
    selectors: tuple[str, ...] = ()


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
        """Return why a unit does not meet the conditions on its present state, or None. `busy`: see holders.GpuUse."""
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


def _memory(unit: Unit) -> int | None:
    return unit.memory_total_mib if unit.is_partition else unit.gpu.memory_total_mib


def required_readings(request: Request, conditions: Conditions, *, exclusive: bool) -> set[str]:
    """Return what the selection requires in addition to the readings of every request: see NEEDS."""
    needs = {TOPOLOGY} if request.kind == "count" else set()
    if request.kind == "count" or exclusive or conditions.idle:
        needs.add(PROCESSES)
    if conditions.memory_free_min_mib is not None:
        needs.add(PARTITION_MEMORY)
    return needs


def parse_request(value: Any) -> Request:
    """Parse the option `gpus`."""
    if isinstance(value, bool):
        raise SelectionError(f'gpus={value} is a boolean. Write gpus: "all" or gpus: "none".')
    if isinstance(value, float):
        if not value.is_integer():
            raise SelectionError(f"gpus={value}: a count must be a whole number.")
        return _count_request(int(value))
    if isinstance(value, int):
        return _count_request(value)
    if isinstance(value, (list, tuple)):
        return list_request(value)
    if not isinstance(value, str):
        raise SelectionError(f'gpus={value!r} is not valid. Write "all", "none", a count or a list.')
    text = value.strip()
    if not text:
        raise SelectionError('gpus is empty. Write "all", "none", a count or a list.')
    if text.lower() in ("all", "none"):
        return Request(kind=text.lower())
    if text.startswith("["):
        return list_request(_parse_list(text))
    count = _COUNT.fullmatch(text)
    if count and not count.group(1).strip("-0"):
        raise SelectionError(
            f'gpus="{text}" is ambiguous: it could mean no GPU or GPU 0. Write gpus: none, or gpus: [0].'
        )
    if count:
        return _count_request(int(count.group(1)))
    return list_request([part for part in text.split(",") if part.strip()])


def _parse_list(text: str) -> list[Any]:
    """Parse a list that Ansible passes as a string, as with `-e gpus=[0,1]`."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if not text.endswith("]"):
        raise SelectionError(f"gpus={text!r}: the list has no closing bracket. Write [0, 1].")
    return [part.strip().strip("'\"") for part in text[1:-1].split(",") if part.strip()]


def _count_request(count: int) -> Request:
    if count < 0:
        raise SelectionError(f"gpus={count}: a count cannot be negative.")
    return Request(kind="count", count=count) if count else Request(kind="none")


def list_request(values: Sequence[Any]) -> Request:
    """Return the request for named devices, where a number is always an index and never a count."""
    selectors = []
    for value in values:
        if isinstance(value, (bool, float, dict, list)) or value is None:
            hint = " Quote a PCI address: YAML reads 0000:01:00.0 as a number." if isinstance(value, float) else ""
            raise SelectionError(f"gpus: {value!r} does not name a GPU. Use {GpuWords().selectors}.{hint}")
        text = str(value).strip()
        if text.lower() in ("all", "none"):
            if len(values) > 1:
                raise SelectionError(f'gpus: "{text}" cannot be combined with other values.')
            return Request(kind=text.lower())
        selectors.append(text)
    return Request(kind="list", selectors=tuple(selectors)) if selectors else Request(kind="none")


def _matches_model(name: str, model: str) -> bool:
    name, model = name.lower(), model.lower()
    return fnmatch.fnmatchcase(name, model) if any(sign in model for sign in "*?[") else model in name
