# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The neutral schema: one description of a GPU or accelerator and of a host's state, for every vendor.

What was not read is None, never 0. docs/accelerators.md describes each key, and what each vendor has no value for.
"""

from __future__ import annotations

from typing import Any, TypedDict

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import duplicate_stable_ids
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import VENDORS

READY = "ready"
NO_HARDWARE = "no_hardware"
NO_DRIVER = "no_driver"
DRIVER_NOT_LOADED = "driver_not_loaded"
VERSION_MISMATCH = "version_mismatch"
ERROR = "error"
STATES = (READY, NO_HARDWARE, NO_DRIVER, DRIVER_NOT_LOADED, VERSION_MISMATCH, ERROR)

OK, DEGRADED, LOST, UNKNOWN = ("ok", "degraded", "lost", "unknown")

# What `stable_id` is. Of an address or a module ID, another card in the same slot is the same device.
UUID, UNIQUE_ID, PCI_ADDRESS, MODULE_ID = ("uuid", "unique_id", "pci_address", "module_id")


class AcceleratorNode(TypedDict):
    """A device node. `role`: control (cannot compute), device, render, card or rdma. `gid` is the host's."""

    path: str
    role: str
    gid: int | None


class AcceleratorErrors(TypedDict):
    """Memory and other hardware errors since the driver was loaded. `pending`: memory is repaired by the next reset."""

    corrected: int | None
    uncorrected: int | None
    pending: bool | None


class AcceleratorPartition(TypedDict):
    """How a device is partitioned (`mode`). A partition has its number (`id`) and the stable ID of its `parent`."""

    mode: str | None
    id: int | None
    parent: str | None


class AcceleratorHealth(TypedDict):
    """The health of a device: ok, degraded, lost or unknown."""

    state: str
    reasons: list[str]


class AcceleratorDevice(TypedDict):
    """A GPU, a partition of a GPU, or an accelerator."""

    vendor: str
    kind: str
    generation: str | None
    model: str | None
    pci_address: str | None
    pci_id: str | None
    index: int | None
    stable_id: str | None
    stable_id_kind: str | None
    numa_node: int | None
    nodes: list[AcceleratorNode] | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    temperature_c: int | None
    power_w: float | None
    utilization_percent: int | None
    errors: AcceleratorErrors
    links: dict[str, Any] | None
    partition: AcceleratorPartition
    cores: int | None
    driver_version: str | None
    firmware: dict[str, str] | None
    health: AcceleratorHealth
    unread: dict[str, str]


class AcceleratorVendor(TypedDict):
    """The state of one vendor on a host. `skipped`: PCI functions of the vendor that are not counted, and why."""

    state: str
    reason: str
    driver_version: str | None
    devices: int
    skipped: list[dict[str, str]]


def device(vendor: str, **values: Any) -> AcceleratorDevice:
    """Return a device with every key of the schema. Keys that are not given are null."""
    unknown = sorted(set(values) - set(AcceleratorDevice.__annotations__))
    if unknown or vendor not in VENDORS:
        raise ValueError(f"not in the schema of devices: vendor {vendor}, keys {unknown}")
    made = dict.fromkeys(AcceleratorDevice.__annotations__)
    made.update(
        vendor=vendor,
        errors=errors(),
        partition=partition(),
        health=health(UNKNOWN),
        unread={},
    )
    made.update(values)
    return made  # type: ignore[return-value]


def errors(
    corrected: int | None = None, uncorrected: int | None = None, pending: bool | None = None
) -> AcceleratorErrors:
    return {"corrected": corrected, "uncorrected": uncorrected, "pending": pending}


def partition(mode: str | None = None, number: int | None = None, parent: str | None = None) -> AcceleratorPartition:
    return {"mode": mode, "id": number, "parent": parent}


def health(state: str, *reasons: str) -> AcceleratorHealth:
    return {"state": state, "reasons": list(reasons)}


def pci_id(vendor_id: str | None, device_id: str | None) -> str | None:
    """Return the PCI ID of a function: 0x1002, 0x74a1 → 1002:74a1."""
    if not vendor_id or not device_id:
        return None
    return f"{vendor_id[2:]}:{device_id[2:]}"


def vendor_state(
    state: str,
    reason: str,
    devices: list[AcceleratorDevice],
    driver_version: str | None = None,
    skipped: list[dict[str, str]] | None = None,
) -> AcceleratorVendor:
    """Return the state of one vendor. Devices with the same stable ID make it an error, whatever else was read."""
    duplicate = duplicate_stable_ids.reason(devices)
    if duplicate:
        state, reason = ERROR, duplicate
    return {
        "state": state,
        "reason": reason,
        "driver_version": driver_version,
        "devices": len(devices),
        "skipped": skipped or [],
    }


def plural(count: int, singular: str) -> str:
    return f"{count} {singular}" if count == 1 else f"{count} {singular}s"
