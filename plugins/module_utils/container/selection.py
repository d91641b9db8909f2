# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a request means. Pure: the host's GPUs, the holders and the topology are handed in."""

from __future__ import annotations

import fnmatch
import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import health as nvml_health

_INDEX = re.compile(r"^\d+$")
# Written with a leading zero or two digits after the colon it is a PCI address: no GPU has more than ten MIG devices.
_MIG_PAIR = re.compile(r"^(0|[1-9]\d*):(\d)$")
_PCI = re.compile(
    r"^(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})(?:\.(?P<function>[0-7]))?$",
    re.IGNORECASE,
)
_CDI_NAME = re.compile(r"^nvidia\.com/(?:gpu|mig)=")
_COUNT = re.compile(r"(-?\d+)(?:\.0+)?")
_NOTATIONS = "an index, a UUID or the beginning of one (GPU-…, MIG-…), a PCI address, or gpu:mig"
# Sets to compare one by one; above that the set grows greedily from each GPU.
_EXHAUSTIVE_LIMIT = 20000
_PCIE_CLOSENESS = {"internal": 6, "pix": 5, "pxb": 4, "phb": 3, "node": 2, "sys": 1}
_NVLINK_WEIGHT = 100
_SAME_NUMA_WEIGHT = 1


class SelectionError(Exception):
    """A request that this host cannot satisfy, or that cannot be understood."""


@dataclass(frozen=True)
class Gpu:
    """One GPU of the host."""

    index: int
    minor: int | None
    uuid: str
    name: str = ""
    pci_bus_id: str | None = None
    memory_total_mib: int | None = None
    numa_node: int | None = None
    compute_capability: str | None = None
    brand: str | None = None
    mig_enabled: bool = False
    health_state: str = "ok"
    health_reasons: tuple[str, ...] = ()
    compute_mode: str | None = None
    recovery_action: str | None = None

    @property
    def lost(self) -> bool:
        return self.health_state == "lost"

    @property
    def unusable(self) -> str | None:
        """Say why a count never takes this GPU, None when it may."""
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
    """What a container can be given: a whole GPU, or one MIG device of a GPU that has MIG on."""

    uuid: str
    gpu: Gpu
    mig_index: int | None = None
    gi: int | None = None
    ci: int | None = None
    profile: str | None = None
    memory_total_mib: int | None = None

    @property
    def is_mig(self) -> bool:
        return self.mig_index is not None

    @property
    def index(self) -> str:
        """The short name that nvidia-smi and the toolkit use: "2", or "2:0" for a MIG device."""
        return f"{self.gpu.index}:{self.mig_index}" if self.is_mig else str(self.gpu.index)

    @property
    def order(self) -> tuple[int, int]:
        return (self.gpu.index, -1 if self.mig_index is None else self.mig_index)

    def __str__(self) -> str:
        return f"MIG {self.index} ({self.uuid}, {self.profile})" if self.is_mig else str(self.gpu)


@dataclass(frozen=True)
class Inventory:
    """The GPUs of a host and what containers can be given of them."""

    gpus: tuple[Gpu, ...] = ()
    units: tuple[Unit, ...] = ()

    def by_uuid(self) -> dict[str, Unit]:
        return {unit.uuid: unit for unit in self.units}

    def slices(self, gpu: Gpu) -> list[Unit]:
        return [unit for unit in self.units if unit.is_mig and unit.gpu.uuid == gpu.uuid]

    def describe(self, with_numa: bool = False) -> str:
        """List what there is, for an error message."""
        if not self.gpus:
            return "no GPU"
        return ", ".join(self._described(gpu, with_numa) for gpu in self.gpus)

    def _described(self, gpu: Gpu, with_numa: bool) -> str:
        facts = [gpu.uuid, gpu.name, _mebibytes(gpu.memory_total_mib)]
        if with_numa:
            facts.append("NUMA node unknown" if gpu.numa_node is None else f"NUMA node {gpu.numa_node}")
        if gpu.lost:
            facts.append("lost")
        if gpu.mig_enabled:
            slices = ", ".join(
                " ".join(filter(None, (unit.index, unit.uuid, unit.profile, _mebibytes(unit.memory_total_mib))))
                for unit in self.slices(gpu)
            )
            facts.append(f"MIG on: {slices or 'no MIG device'}")
        return f"GPU {gpu.index} ({', '.join(filter(None, facts))})"


@dataclass(frozen=True)
class Request:
    """`gpus` as it was meant: none, all, a count, or named ones."""

    kind: str
    count: int = 0
    selectors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conditions:
    """What every chosen GPU must fulfil."""

    memory_min_mib: int | None = None
    model: str | None = None
    numa_node: int | None = None
    mig_profile: str | None = None

    def objection(self, unit: Unit) -> str | None:
        """Say why a unit does not fit, None when it does."""
        if self.mig_profile is not None and (unit.profile or "").lower() != self.mig_profile.lower():
            have = f"has MIG profile {unit.profile}" if unit.is_mig else "is a whole GPU"
            return f"{have}, not MIG profile {self.mig_profile}"
        memory = unit.memory_total_mib if unit.is_mig else unit.gpu.memory_total_mib
        if self.memory_min_mib is not None and (memory is None or memory < self.memory_min_mib):
            return f"has {memory} MiB of memory, less than {self.memory_min_mib}"
        if self.model is not None and not _is_model(unit.gpu.name, self.model):
            return f"is model {unit.gpu.name!r}, not {self.model!r}"
        if self.numa_node is not None and unit.gpu.numa_node != self.numa_node:
            return f"is on NUMA node {unit.gpu.numa_node}, not {self.numa_node}"
        return None

    def __str__(self) -> str:
        words = {
            "memory_min_mib": "at least {} MiB of memory",
            "model": "model {}",
            "numa_node": "NUMA node {}",
            "mig_profile": "MIG profile {}",
        }
        given = [text.format(value) for key, text in words.items() if (value := getattr(self, key)) is not None]
        return ", ".join(given)


@dataclass(frozen=True)
class Holder:
    """A container that holds GPUs, or a run in progress that has reserved them for one."""

    name: str
    engine: str
    uuids: frozenset[str]
    exclusive: bool = False
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.engine} container {self.name}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class Topology:
    """How close GPUs are to each other, by UUID of the whole GPU."""

    uuids: tuple[str, ...] = ()
    nvlinks: tuple[tuple[int, ...], ...] = ()
    pcie: tuple[tuple[str, ...], ...] = ()
    _places: dict[str, int] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        self._places.update({uuid: place for place, uuid in enumerate(self.uuids)})

    def closeness(self, one: Gpu, other: Gpu) -> int:
        """Score a pair: NVLinks first, then the PCIe path, then the NUMA node."""
        if one.uuid == other.uuid:
            return 2 * _NVLINK_WEIGHT
        score = _SAME_NUMA_WEIGHT if one.numa_node is not None and one.numa_node == other.numa_node else 0
        here, there = self._places.get(one.uuid), self._places.get(other.uuid)
        if here is None or there is None:
            return score
        if self.nvlinks:
            score += _NVLINK_WEIGHT * (self.nvlinks[here][there] or 0)
        if self.pcie:
            score += 2 * _PCIE_CLOSENESS.get(self.pcie[here][there] or "", 0)
        return score


def inventory_from_facts(gpus: Sequence[Mapping[str, Any]]) -> Inventory:
    """Read the items of the fact `nvidia_gpus`."""
    found: list[Gpu] = []
    units: list[Unit] = []
    for item in gpus:
        mig = item.get("mig") or {}
        health = item.get("health") or {}
        gpu = Gpu(
            index=item["index"],
            minor=item.get("minor"),
            uuid=item.get("uuid") or f"GPU-unknown-{item['index']}",
            name=item.get("name") or "",
            pci_bus_id=item.get("pci_bus_id"),
            memory_total_mib=item.get("memory_total_mib"),
            numa_node=item.get("numa_node"),
            compute_capability=item.get("compute_capability"),
            brand=item.get("brand"),
            mig_enabled=bool(mig.get("enabled")),
            health_state=health.get("state") or "ok",
            health_reasons=tuple(health.get("reasons") or ()),
            compute_mode=item.get("compute_mode"),
            recovery_action=item.get("recovery_action"),
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
            )
            for device in mig.get("devices") or ()
            if device.get("uuid")
        )
    return Inventory(gpus=tuple(found), units=tuple(units))


def topology_from_facts(topology: Mapping[str, Any] | None) -> Topology:
    """Read the fact `nvidia_topology`."""
    if not topology:
        return Topology()
    return Topology(
        uuids=tuple(topology.get("gpus") or ()),
        nvlinks=tuple(tuple(row) for row in topology.get("nvlinks") or ()),
        pcie=tuple(tuple(row) for row in topology.get("pcie") or ()),
    )


def parse(value: Any) -> Request:
    """Understand `gpus` as users write it."""
    if isinstance(value, bool):
        raise SelectionError(f'gpus={value} is a truth value. Write gpus: "all" or gpus: "none".')
    if isinstance(value, float):
        if not value.is_integer():
            raise SelectionError(f"gpus={value}: a count is a whole number.")
        return _count(int(value))
    if isinstance(value, int):
        return _count(value)
    if isinstance(value, (list, tuple)):
        return _listed(value)
    if not isinstance(value, str):
        raise SelectionError(f'gpus={value!r} is not understood. Write "all", "none", a count or a list.')
    text = value.strip()
    if not text:
        raise SelectionError('gpus is empty. Write "all", "none", a count or a list.')
    if text.lower() in ("all", "none"):
        return Request(kind=text.lower())
    if text.startswith("["):
        return _listed(_from_text(text))
    count = _COUNT.fullmatch(text)
    if count and not int(count.group(1)):
        raise SelectionError(f'gpus="{text}" could mean no GPU or GPU 0. Write gpus: none, or gpus: [0].')
    if count:
        return _count(int(count.group(1)))
    return _listed([part for part in text.split(",") if part.strip()])


def parse_visible(value: str) -> Request:
    """Understand NVIDIA_VISIBLE_DEVICES, which names GPUs and never counts them."""
    names = [_CDI_NAME.sub("", part.strip()) for part in value.split(",") if part.strip()]
    return Request(kind="all") if "all" in names else _listed(names)


def resolve(
    request: Request,
    inventory: Inventory,
    conditions: Conditions = Conditions(),
    *,
    exclusive: bool = False,
    holders: Collection[Holder] = (),
    current: Collection[str] = (),
    topology: Topology = Topology(),
) -> list[Unit]:
    """Turn a request into the units that it means here.

    `holders` are the other containers; `current` is what the container itself has: a count is filled from that first.
    """
    if request.kind == "none":
        return []
    if not inventory.gpus:
        raise SelectionError("GPUs are asked for, and this host has no GPU that its driver serves.")
    if request.kind == "count":
        free, load = _candidates(request.count, inventory, conditions, holders, exclusive)
        return _best(free, request.count, frozenset(current), load, topology)
    units = _all(inventory, conditions) if request.kind == "all" else _named(request, inventory, conditions)
    if exclusive:
        _refuse_held(units, holders)
    return units


def left_out(inventory: Inventory) -> str:
    """Name the GPUs that a count never takes, each with its reason."""
    return "; ".join(f"{gpu}: {gpu.unusable}" for gpu in inventory.gpus if gpu.unusable)


def holders_of(unit: Unit, holders: Collection[Holder], inventory: Inventory | None = None) -> list[Holder]:
    """Name who holds a unit. Holding a GPU means holding its MIG devices, and the other way round."""
    related = {unit.uuid, unit.gpu.uuid}
    if inventory is not None and not unit.is_mig:
        related.update(other.uuid for other in inventory.slices(unit.gpu))
    return [holder for holder in holders if holder.uuids & related]


def merged(holders: Iterable[Holder]) -> list[Holder]:
    """Bring together what is known of one container from several places: it holds all that any of them says."""
    found: dict[tuple[str, str], Holder] = {}
    for holder in holders:
        key = (holder.engine, holder.name)
        known = found.get(key, holder)
        found[key] = replace(
            known,
            uuids=known.uuids | holder.uuids,
            exclusive=known.exclusive or holder.exclusive,
            detail="; ".join(dict.fromkeys(detail for detail in (known.detail, holder.detail) if detail)),
        )
    return list(found.values())


def _from_text(text: str) -> list[Any]:
    """Read a list that came as text, as `-e gpus=[0,1]` brings it."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if not text.endswith("]"):
        raise SelectionError(f"gpus={text!r} begins like a list and does not end like one. Write [0, 1].")
    return [part.strip().strip("'\"") for part in text[1:-1].split(",") if part.strip()]


def _count(count: int) -> Request:
    if count < 0:
        raise SelectionError(f"gpus={count}: a count cannot be negative.")
    return Request(kind="count", count=count) if count else Request(kind="none")


def _listed(values: Sequence[Any]) -> Request:
    selectors = []
    for value in values:
        if isinstance(value, (bool, float, dict, list)) or value is None:
            raise SelectionError(f"gpus: {value!r} is no GPU. Use {_NOTATIONS}.")
        text = str(value).strip()
        if text.lower() in ("all", "none"):
            if len(values) > 1:
                raise SelectionError(f'gpus: "{text}" stands alone; it cannot be combined with other GPUs.')
            return Request(kind=text.lower())
        selectors.append(text)
    return Request(kind="list", selectors=tuple(selectors)) if selectors else Request(kind="none")


def _mebibytes(memory: int | None) -> str | None:
    return None if memory is None else f"{memory} MiB"


def _there(inventory: Inventory, conditions: Conditions = Conditions()) -> str:
    """Say what the host has, with what the conditions look at."""
    return f"This host has {inventory.describe(with_numa=conditions.numa_node is not None)}."


def _is_model(name: str, model: str) -> bool:
    name, model = name.lower(), model.lower()
    return fnmatch.fnmatchcase(name, model) if any(sign in model for sign in "*?[") else model in name


def _all(inventory: Inventory, conditions: Conditions) -> list[Unit]:
    units = [unit for unit in inventory.units if conditions.objection(unit) is None]
    if not units:
        raise SelectionError(
            f"No GPU of this host fulfils the conditions ({conditions}). {_there(inventory, conditions)} Change "
            "conditions."
            if str(conditions)
            else f"This host has no GPU that a container could be given. {_there(inventory)}"
        )
    for unit in units:
        _refuse_lost(unit.gpu)
    return units


def _named(request: Request, inventory: Inventory, conditions: Conditions) -> list[Unit]:
    units: dict[str, Unit] = {}
    for selector in request.selectors:
        unit = _find(selector, inventory)
        _refuse_lost(unit.gpu)
        objection = conditions.objection(unit)
        if objection:
            raise SelectionError(f"{unit} is asked for but {objection}.")
        units[unit.uuid] = unit
    return sorted(units.values(), key=lambda unit: unit.order)


def _find(selector: str, inventory: Inventory) -> Unit:
    pair = _MIG_PAIR.match(selector)
    if pair:
        return _find_slice(selector, int(pair.group(1)), int(pair.group(2)), inventory)
    if _INDEX.match(selector):
        for gpu in inventory.gpus:
            if gpu.index == int(selector):
                return _whole(gpu, inventory)
        hint = ' (YAML reads an unquoted 1:0 as the number 60: write "1:0".)' if int(selector) >= 60 else ""
        raise SelectionError(f"There is no GPU {selector}. This host has {inventory.describe()}.{hint}")
    lower = selector.lower()
    if lower.startswith("mig-"):
        return _find_mig_uuid(selector, inventory)
    if lower.startswith("gpu-"):
        return _find_uuid(selector, inventory)
    if _PCI.match(selector):
        return _find_pci(selector, inventory)
    raise SelectionError(f"gpus: {selector!r} is no GPU. Use {_NOTATIONS}.")


def _find_uuid(selector: str, inventory: Inventory) -> Unit:
    matches = [gpu for gpu in inventory.gpus if gpu.uuid.lower().startswith(selector.lower())]
    exact = [gpu for gpu in matches if gpu.uuid.lower() == selector.lower()]
    matches = exact or matches
    if not matches:
        raise SelectionError(f"There is no GPU with UUID {selector}. This host has {inventory.describe()}.")
    if len(matches) > 1:
        names = ", ".join(str(gpu) for gpu in matches)
        raise SelectionError(f"UUID prefix {selector} is ambiguous: it fits {names}. Write more of it.")
    return _whole(matches[0], inventory)


def _find_mig_uuid(selector: str, inventory: Inventory) -> Unit:
    wanted = selector.lower()
    slices = [unit for unit in inventory.units if unit.is_mig]
    matches = [
        unit
        for unit in slices
        if unit.uuid.lower().startswith(wanted) or f"mig-{unit.gpu.uuid}/{unit.gi}/{unit.ci}".lower() == wanted
    ]
    matches = [unit for unit in matches if unit.uuid.lower() == wanted] or matches
    if not matches:
        there = ", ".join(f"{unit.index} {unit.uuid} {unit.profile}" for unit in slices)
        raise SelectionError(
            f"There is no MIG device {selector}. "
            + (f"This host has the MIG devices {there}." if there else "No GPU of this host has MIG devices: ")
            + ("" if there else f"it has {inventory.describe()}.")
        )
    if len(matches) > 1:
        names = ", ".join(str(unit) for unit in matches)
        raise SelectionError(f"MIG UUID prefix {selector} is ambiguous: it fits {names}. Write more of it.")
    return matches[0]


def _find_slice(selector: str, index: int, mig_index: int, inventory: Inventory) -> Unit:
    gpu = next((gpu for gpu in inventory.gpus if gpu.index == index), None)
    if gpu is None:
        raise SelectionError(
            f"There is no GPU {index}, which MIG device {selector} would be on. This host has {inventory.describe()}."
        )
    if not gpu.mig_enabled:
        raise SelectionError(
            f"MIG device {selector} is asked for, but MIG is off on {gpu}. Ask for GPU {index} as a whole, "
            "or turn MIG on and make MIG devices first."
        )
    for unit in inventory.slices(gpu):
        if unit.mig_index == mig_index:
            return unit
    there = ", ".join(f"{unit.index} {unit.uuid} {unit.profile}" for unit in inventory.slices(gpu)) or "none"
    raise SelectionError(f"There is no MIG device {selector} on {gpu}. Its MIG devices: {there}.")


def _find_pci(selector: str, inventory: Inventory) -> Unit:
    wanted = _pci_key(selector)
    for gpu in inventory.gpus:
        if gpu.pci_bus_id and _pci_key(gpu.pci_bus_id) == wanted:
            return _whole(gpu, inventory)
    there = ", ".join(f"{gpu.pci_bus_id} (GPU {gpu.index})" for gpu in inventory.gpus)
    pair = re.fullmatch(r"0*(\d+):0*(\d)", selector)
    hint = f" (The MIG device is written {pair.group(1)}:{pair.group(2)}.)" if pair else ""
    raise SelectionError(f"There is no GPU at PCI address {selector}. This host has {there}.{hint}")


def same_pci_address(one: str | None, other: str) -> bool:
    """Tell whether two notations mean one PCI address."""
    key = _pci_key(other)
    return one is not None and key is not None and _pci_key(one) == key


def _pci_key(address: str) -> tuple[int, ...] | None:
    match = _PCI.match(address)
    if match is None:
        return None
    return tuple(int(match.group(part) or "0", 16) for part in ("domain", "bus", "device", "function"))


def _whole(gpu: Gpu, inventory: Inventory) -> Unit:
    _refuse_lost(gpu)
    if gpu.mig_enabled:
        slices = ", ".join(f"{unit.index} {unit.uuid} {unit.profile}" for unit in inventory.slices(gpu))
        raise SelectionError(
            f"{gpu} is asked for as a whole, but MIG is on there. "
            + (f"Ask for its MIG devices ({slices})" if slices else "It has no MIG device: make some")
            + ", or turn MIG off."
        )
    return Unit(uuid=gpu.uuid, gpu=gpu)


def _refuse_lost(gpu: Gpu) -> None:
    if gpu.lost:
        why = "; ".join(gpu.health_reasons)
        raise SelectionError(
            f"{gpu} is lost{': ' + why if why else ''}. Leave it out of gpus, or reset or replace it first."
        )


def _refuse_held(units: Sequence[Unit], holders: Collection[Holder]) -> None:
    held = [f"{unit} is held by {holder}" for unit in units for holder in holders_of(unit, holders)]
    if held:
        raise SelectionError(
            f"exclusive: {'; '.join(held)}. Stop what holds it, ask for other GPUs, or leave exclusive out."
        )


def _candidates(
    count: int, inventory: Inventory, conditions: Conditions, holders: Collection[Holder], exclusive: bool
) -> tuple[list[Unit], dict[str, int]]:
    """List the units that a count can be filled from, and how many containers hold each."""
    whole = conditions.mig_profile is None
    fitting = [
        unit
        for unit in inventory.units
        if unit.is_mig is not whole and not unit.gpu.unusable and conditions.objection(unit) is None
    ]
    unusable = left_out(inventory)
    not_usable = f"Not usable: {unusable}. " if unusable else ""
    way_out = "Make GPUs usable again, or ask for fewer" if unusable else "Ask for fewer"
    what = f"{count} {'GPU' if whole else 'MIG device'}{'s' if count != 1 else ''}"
    wanted = f"{what}{' with ' + str(conditions) if str(conditions) else ''} asked for"
    if len(fitting) < count:
        raise SelectionError(
            f"{wanted}, but this host has {len(fitting) or 'none'} that can be given. {not_usable}"
            f"{_there(inventory, conditions)} {way_out}{', or change conditions' if str(conditions) else ''}."
        )
    who = {unit.uuid: holders_of(unit, holders, inventory) for unit in fitting}
    # What a container has for itself alone is not handed to another one by a mere count.
    barring = {uuid: [one for one in held if exclusive or one.exclusive] for uuid, held in who.items()}
    free = [unit for unit in fitting if not barring[unit.uuid]]
    if len(free) < count:
        held = "; ".join(
            f"{unit} by {', '.join(map(str, barring[unit.uuid]))}" for unit in fitting if barring[unit.uuid]
        )
        raise SelectionError(
            f"{'exclusive: ' if exclusive else ''}{wanted}, but only {len(free)} of {len(fitting)} "
            f"{'is' if len(free) == 1 else 'are'} free. Held: {held}. Free: {', '.join(map(str, free)) or 'none'}. "
            f"{not_usable}"
            f"Stop a holder or ask for fewer{', or leave exclusive out' if exclusive else ''}."
        )
    return free, {uuid: len(held) for uuid, held in who.items()}


def _best(
    free: Sequence[Unit], count: int, current: frozenset[str], load: Mapping[str, int], topology: Topology
) -> list[Unit]:
    """Choose the set to give: what the container has, then healthy ones, then what nobody uses, then near ones, then
    low indexes. A degraded GPU stays with its container: signs such as heat come and go, and each would recreate it.
    """
    places = range(len(free))
    near = [[topology.closeness(one.gpu, other.gpu) if one is not other else 0 for other in free] for one in free]
    total = [sum(row) for row in near]

    def rank(chosen: Sequence[int]) -> tuple:
        inside = sum(near[one][other] for one, other in itertools.combinations(chosen, 2))
        # Links to GPUs that stay behind: a set that cuts few of them leaves better sets for the next container.
        cut = sum(total[one] for one in chosen) - 2 * inside
        kept = sum(free[one].uuid in current for one in chosen)
        added = [free[one] for one in chosen if free[one].uuid not in current]
        degraded = sum(unit.gpu.health_state != "ok" for unit in added)
        used = sum(load.get(unit.uuid, 0) for unit in added)
        return (-kept, degraded, used, -inside, cut, [free[one].order for one in chosen])

    if math.comb(len(free), count) <= _EXHAUSTIVE_LIMIT:
        best = min(itertools.combinations(places, count), key=rank)
        return [free[place] for place in best]
    grown = []
    for seed in places:
        chosen = [seed]
        while len(chosen) < count:
            chosen = min((sorted([*chosen, place]) for place in places if place not in chosen), key=rank)
        grown.append(chosen)
    return [free[place] for place in min(grown, key=rank)]
