# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of one Neuron chip, read from sysfs (aws-neuron-driver 2.24.7.0 and the vendor's sysfs guide of SDK 2.32).

`reset` and the counters are only read: a write to `reset` resets the chip, and a write to a counter clears it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema, sysfs_refusals
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import untrusted_text

KERNEL_LOG = "Check the kernel log for messages of neuron"
_MIB = 1 << 20
_GIB_IN_MIB = 1024
# By PCI device ID. The memory of Trainium3 is not in the vendor's public sources.
_MEMORY_GIB = {
    **dict.fromkeys(("0x7064", "0x7065", "0x7066", "0x7067"), 8),
    "0x7164": 32,
    "0x7264": 32,
    "0x7364": 96,
}
_RESETTING, _READY, _INVALID = 0, 1, 2
_UNCORRECTED = ("sram_ecc_uncorrected", "mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected")
_CORRECTED = ("sram_ecc_corrected", "mem_ecc_corrected")
# The memory counter of drivers before repairable errors were counted separately.
_OPTIONAL = ("mem_ecc_repairable_uncorrected",)
_CORE_ERRORS = ("hw_error", "hw_hbm_ue_error", "hw_nc_ue_error", "hw_dma_abort_error")


class AcceleratorsNeuronReading(NamedTuple):
    """The values of a chip by key of the schema, without its links, and the numbers of the chips it is linked to."""

    values: dict
    peers: list[int] | None


def read(tree: sysfs_refusals.SysfsTree, directory: str) -> AcceleratorsNeuronReading:
    """Return the values of the chip whose attributes are in a directory."""
    attributes = sysfs_refusals.SysfsAttributes(tree, directory)
    cores = tree.names(directory, r"neuron_core[0-9]{1,3}")
    errors = schema.errors(_sum(attributes, _CORRECTED), _sum(attributes, _UNCORRECTED))
    values = {
        "model": attributes.text("model", "info/architecture/device_name"),
        "cores": attributes.number("cores", "core_count", least=1, most=1024),
        "memory_used_mib": _memory_used(attributes, cores),
        "errors": errors,
        "health": _health(attributes, cores, errors),
    }
    serial = _serial_number(attributes)
    if serial:
        values.update(stable_id=serial, stable_id_kind=schema.UNIQUE_ID)
    peers = _peers(attributes)
    return AcceleratorsNeuronReading({**values, "unread": attributes.unread}, peers)


def memory_total_mib(device_id: str | None) -> int | None:
    gib = _MEMORY_GIB.get(device_id or "")
    return None if gib is None else gib * _GIB_IN_MIB


def _serial_number(attributes: sysfs_refusals.SysfsAttributes) -> str | None:
    """Return the serial number, which Inferentia has not. The line is empty if the chip does not tell it."""
    serial = attributes.matching("stable_id", "info/serial_number", r"[0-9a-fA-F]{16}")
    # A number of all the same digits is a place holder, and several chips could have it.
    return serial.lower() if serial and re.fullmatch(r"(?:0{16}|f{16})", serial.lower()) is None else None


def _sum(attributes: sysfs_refusals.SysfsAttributes, names: tuple[str, ...]) -> int | None:
    """Return the sum of counters, or None if one of them is missing or cannot be read."""
    total = 0
    for name in names:
        path = f"stats/hardware/{name}"
        if name in _OPTIONAL and not attributes.tree.exists(f"{attributes.directory}/{path}"):
            continue
        value = attributes.number("errors", path)
        if value is None:
            return None
        total += value
    return total


def _memory_used(attributes: sysfs_refusals.SysfsAttributes, cores: list[str]) -> int | None:
    total = 0
    for core in cores:
        # This counter is the current use. `present` is the last change.
        value = attributes.number("memory_used_mib", f"{core}/stats/memory_usage/device_mem/total")
        if value is None:
            return None
        total += value
    return total // _MIB if cores else None


def _peers(attributes: sysfs_refusals.SysfsAttributes) -> list[int] | None:
    """Return the numbers of linked chips. The line is empty on instances without links between chips."""
    name = "connected_devices"
    reading = attributes.tree.read(f"{attributes.directory}/{name}")
    if reading.refusal:
        attributes.refuse("links", f"{name}: {reading.refusal}")
    if reading.text is None:
        return None
    if re.fullmatch(r"(?:[0-9]{1,3}(?:\s*,\s*[0-9]{1,3})*)?", reading.text, re.ASCII) is None:
        attributes.refuse("links", f"{name}: unexpected content {untrusted_text.shown(reading.text)}")
        return None
    return sorted({int(part) for part in reading.text.split(",") if part.strip()})


def _health(attributes: sysfs_refusals.SysfsAttributes, cores: list[str], errors: schema.AcceleratorErrors) -> dict:
    state = attributes.number("health", "reset", most=_INVALID)
    if state == _INVALID:
        return schema.health(schema.LOST, f"the driver reports the chip as invalid. {KERNEL_LOG}, and reboot the host")
    reasons = []
    if state == _RESETTING:
        reasons.append("the chip is being reset. Read the facts again when the reset is finished")
    if errors["uncorrected"]:
        reasons.append(
            f"{schema.plural(errors['uncorrected'], 'uncorrected memory error')}. {KERNEL_LOG}, and replace the "
            "instance if the number grows"
        )
    components = _unhealthy_components(attributes)
    if components:
        reasons.append(f"the firmware reports unhealthy components: {components}. Replace the instance")
    for core in cores:
        for name in _CORE_ERRORS:
            count = attributes.number("health", f"{core}/stats/status/{name}/total")
            if count:
                reasons.append(f"{core}: counter {name} is {count}. {KERNEL_LOG}")
    if reasons:
        return schema.health(schema.DEGRADED, *reasons)
    if state is None and "health" in attributes.unread:
        return schema.health(schema.UNKNOWN, attributes.unread["health"])
    return schema.health(schema.OK)


def _unhealthy_components(attributes: sysfs_refusals.SysfsAttributes) -> str | None:
    names = attributes.text("health", "stats/hardware/health_status/unhealthy_components")
    return names.replace(",", ", ") if names else None
