# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the GPU or partition that a selector names."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Gpu,
    Inventory,
    Unit,
    parse_pci_address,
    same_pci_address,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError

# No UUID, index or address has more characters.
_LONGEST = 100
_INDEX = re.compile(r"^\d+$")
# A leading zero or two digits after the colon make a PCI address: no GPU has more than ten partitions.
_PAIR = re.compile(r"^(0|[1-9]\d*):(\d)$")


def find_unit(selector: str, inventory: Inventory) -> Unit:
    """Return the unit that a selector names. Raise SelectionError if there is none or more than one."""
    if len(selector) > _LONGEST:
        raise SelectionError(f"gpus: {selector[:_LONGEST]!r}... does not name a GPU. Use {inventory.words.selectors}.")
    pair = _PAIR.match(selector)
    if pair:
        return _find_partition(selector, whole_number(pair.group(1)), int(pair.group(2)), inventory)
    if _INDEX.match(selector):
        return _find_index(selector, inventory)
    exact = [unit for unit in inventory.units if unit.uuid.lower() == selector.lower()]
    if exact:
        refuse_lost(exact[0].gpu)
        return exact[0]
    if selector.lower().startswith(f"{inventory.words.prefix}-".lower()):
        return _find_partition_id(selector, inventory)
    if any(gpu.uuid.lower().startswith(selector.lower()) for gpu in inventory.gpus) or selector.lower().startswith(
        "gpu-"
    ):
        return _find_gpu_uuid(selector, inventory)
    if parse_pci_address(selector):
        return _find_pci_address(selector, inventory)
    raise SelectionError(f"gpus: {selector!r} does not name a GPU. Use {inventory.words.selectors}.")


def refuse_lost(gpu: Gpu) -> None:
    """Raise SelectionError for a lost GPU."""
    if gpu.lost:
        reasons = "; ".join(gpu.health_reasons)
        raise SelectionError(
            f"{gpu} is lost{': ' + reasons if reasons else ''}. Remove it from gpus, or reset or replace the GPU."
        )


def _find_index(selector: str, inventory: Inventory) -> Unit:
    for gpu in inventory.gpus:
        if gpu.index == whole_number(selector):
            return _whole_gpu(gpu, inventory)
    hint = ' (YAML reads an unquoted 1:0 as the number 60: write "1:0".)' if whole_number(selector) >= 60 else ""
    raise SelectionError(f"There is no GPU {selector}. This host has {inventory.describe()}.{hint}")


def _find_gpu_uuid(selector: str, inventory: Inventory) -> Unit:
    matches = [gpu for gpu in inventory.gpus if gpu.uuid.lower().startswith(selector.lower())]
    exact = [gpu for gpu in matches if gpu.uuid.lower() == selector.lower()]
    matches = exact or matches
    if not matches:
        raise SelectionError(f"There is no GPU with UUID {selector}. This host has {inventory.describe()}.")
    if len(matches) > 1:
        names = ", ".join(str(gpu) for gpu in matches)
        raise SelectionError(f"UUID prefix {selector} is ambiguous: it matches {names}. Use a longer prefix.")
    return _whole_gpu(matches[0], inventory)


def _find_partition_id(selector: str, inventory: Inventory) -> Unit:
    wanted, word = selector.lower(), inventory.words.partition
    devices = [unit for unit in inventory.units if unit.is_partition]
    matches = [
        unit
        for unit in devices
        if unit.uuid.lower().startswith(wanted) or wanted in (name.lower() for name in unit.aliases)
    ]
    if not matches:
        raise SelectionError(
            f"There is no {word} {selector}. "
            + (
                f"This host has the {word}s {_list_partitions(devices)}."
                if devices
                else f"No GPU on this host has {word}s: it has {inventory.describe()}."
            )
        )
    if len(matches) > 1:
        names = ", ".join(str(unit) for unit in matches)
        raise SelectionError(
            f"{inventory.words.prefix} UUID prefix {selector} is ambiguous: it matches {names}. Use a longer prefix."
        )
    return matches[0]


def _find_partition(selector: str, index: int, partition_index: int, inventory: Inventory) -> Unit:
    gpu = next((gpu for gpu in inventory.gpus if gpu.index == index), None)
    word = inventory.words.partition
    if gpu is None:
        raise SelectionError(
            f"There is no {word} {selector}, because there is no GPU {index}. This host has {inventory.describe()}."
        )
    if not gpu.is_partitioned:
        raise SelectionError(
            f"{word} {selector} is requested, but {gpu.words.mode} is disabled on {gpu}. Request GPU {index} as a "
            f"whole, or enable {gpu.words.mode} and create {word}s first."
        )
    devices = inventory.partitions(gpu)
    for unit in devices:
        if unit.partition_index == partition_index:
            return unit
    raise SelectionError(f"There is no {word} {selector} on {gpu}. Its {word}s: {_list_partitions(devices) or 'none'}.")


def _find_pci_address(selector: str, inventory: Inventory) -> Unit:
    for gpu in inventory.gpus:
        if same_pci_address(gpu.pci_bus_id, selector):
            return _whole_gpu(gpu, inventory)
    addresses = ", ".join(f"{gpu.pci_bus_id} (GPU {gpu.index})" for gpu in inventory.gpus)
    pair = re.fullmatch(r"0*(\d+):0*(\d)", selector)
    hint = f" (For the {inventory.words.partition}, write {pair.group(1)}:{pair.group(2)}.)" if pair else ""
    raise SelectionError(f"There is no GPU at PCI address {selector}. This host has {addresses}.{hint}")


def _whole_gpu(gpu: Gpu, inventory: Inventory) -> Unit:
    refuse_lost(gpu)
    if gpu.is_partitioned:
        mode, word = gpu.words.mode, gpu.words.partition
        devices = _list_partitions(inventory.partitions(gpu))
        raise SelectionError(
            f"{gpu} cannot be assigned as a whole because {mode} is enabled. "
            + (f"Request its {word}s ({devices})" if devices else f"It has no {word}: create {word}s")
            + f", or disable {mode}."
        )
    return inventory.by_uuid()[gpu.uuid]


def _list_partitions(units: list[Unit]) -> str:
    return ", ".join(f"{unit.index} {unit.uuid} {unit.profile}" for unit in units)
