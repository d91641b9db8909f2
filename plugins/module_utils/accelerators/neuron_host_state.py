# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide the state of AWS Neuron's chips and its reason, which says what to do. Pure functions."""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    host_state_with_lost_devices,
    neuron_sysfs_values,
    schema,
)

_LAST_OF_INFERENTIA = (2, 24)


class AcceleratorsNeuronHost(NamedTuple):
    """The driver of a host. `chips_without_node`: chips in sysfs that this process cannot open."""

    is_loaded: bool
    is_installed: bool
    kernel: str | None
    version: str | None
    chips_without_node: list[int]


def decide(
    found: list[schema.AcceleratorDevice], unbound: list[schema.AcceleratorDevice], host: AcceleratorsNeuronHost
) -> tuple[str, str]:
    """Return the state and its reason. `found`: chips of the driver. `unbound`: devices that only PCI shows."""
    if found:
        rest = f" {_hardware(unbound)} has no chip in the driver. {neuron_sysfs_values.KERNEL_LOG}." if unbound else ""
        shown = f"The driver shows {schema.plural(len(found), 'chip')}"
        return host_state_with_lost_devices.state_of_shown(found, shown, "Chip", (schema.LOST, schema.DEGRADED), rest)
    if host.chips_without_node:
        missing = ", ".join(f"/dev/neuron{chip}" for chip in host.chips_without_node)
        return schema.ERROR, (
            f"The driver shows {schema.plural(len(host.chips_without_node), 'chip')}, but {missing} is not accessible. "
            "In a container, add the nodes of its chips. On a host, load the driver again."
        )
    if not unbound:
        return schema.NO_HARDWARE, "The PCI bus has no AWS Neuron device."
    hardware = _hardware(unbound)
    if host.is_loaded:
        return schema.DRIVER_NOT_LOADED, f"Kernel module neuron is loaded, but does not drive {hardware}. " + (
            f"Drivers newer than 2.24 do not support Inferentia, and this one is {host.version}. Install driver 2.24."
            if _is_too_new(unbound, host.version)
            else f"{neuron_sysfs_values.KERNEL_LOG}."
        )
    if host.is_installed:
        return schema.DRIVER_NOT_LOADED, (
            f"The PCI bus has {hardware}. Kernel module neuron is installed for the running kernel {host.kernel}, but "
            "is not loaded. Run modprobe neuron, and list the module in /etc/modules-load.d, because udev does not "
            "load it for most chips."
        )
    return schema.NO_DRIVER, (
        f"The PCI bus has {hardware}, but the running kernel {host.kernel or ''} has no module neuron. Install "
        "aws-neuronx-dkms and the headers of the kernel."
    )


def _is_too_new(unbound: list[schema.AcceleratorDevice], version: str | None) -> bool:
    match = re.match(r"(\d{1,6})\.(\d{1,6})", version or "", re.ASCII)
    return bool(
        match
        and (int(match[1]), int(match[2])) > _LAST_OF_INFERENTIA
        and any(one["generation"] == "Inferentia" for one in unbound)
    )


def _hardware(unbound: list[schema.AcceleratorDevice]) -> str:
    return ", ".join(f"{one['generation']} {one['pci_address']}" for one in unbound)
