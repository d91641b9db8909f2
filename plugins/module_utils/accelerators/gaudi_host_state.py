# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide the state of Gaudi's accelerators and its reason, which says what to do. Pure functions."""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators.gaudi_device_health import KERNEL_LOG

# The vendor's modules for the network of the accelerators. The driver in the kernel has none of them.
NETWORK_MODULES = ("habanalabs_cn", "habanalabs_en", "habanalabs_ib")
# The beginnings of what the reason of a working host says about its driver.
KERNEL_DRIVER, NOT_LOADED = "The loaded driver is the one in the kernel", "Not loaded:"


class AcceleratorsGaudiHost(NamedTuple):
    """The driver of a host. `bound`: the PCI functions that it drives. `loaded`: the loaded modules of the vendor."""

    is_loaded: bool
    is_installed: bool
    is_of_vendor: bool
    driver_version: str | None
    kernel: str | None
    bound: tuple[str, ...]
    loaded: tuple[str, ...]


def decide(devices: list[schema.AcceleratorDevice], host: AcceleratorsGaudiHost) -> tuple[str, str]:
    """Return the state and its reason."""
    if not devices:
        return schema.NO_HARDWARE, "The PCI bus has no Gaudi device."
    count = schema.plural(len(devices), "Gaudi accelerator")
    limits = _limits_of_kernel_driver(devices, host)
    if not host.is_loaded:
        if host.is_installed:
            return schema.DRIVER_NOT_LOADED, (
                f"The PCI bus has {count}. Kernel module habanalabs is installed for the running kernel {host.kernel}, "
                "but is not loaded. Run modprobe habanalabs."
            )
        return schema.NO_DRIVER, (
            f"The PCI bus has {count}, but the running kernel {host.kernel or ''} has no module habanalabs. Install "
            "the vendor's driver, for example with role gaudi_driver."
        )
    if not host.bound:
        return schema.DRIVER_NOT_LOADED, (
            f"Kernel module habanalabs is loaded, but drives none of the {count} on the PCI bus. {KERNEL_LOG}: missing "
            f"firmware is a usual cause.{limits}"
        )
    lost = [one for one in devices if one["health"]["state"] == schema.LOST]
    if len(lost) == len(devices):
        first = lost[0]
        return schema.ERROR, (
            f"None of the {count} is usable. {first['stable_id']}: {first['health']['reasons'][0]}.{limits}"
        )
    unhealthy = [str(one["stable_id"]) for one in devices if one["health"]["state"] != schema.OK]
    check = f" Check the health of {', '.join(unhealthy)}." if unhealthy else ""
    return schema.READY, f"Kernel module habanalabs shows {count}.{check}{limits}{_missing_network(devices, host)}"


def _limits_of_kernel_driver(devices: list[schema.AcceleratorDevice], host: AcceleratorsGaudiHost) -> str:
    """Name what the driver in the kernel lacks."""
    if host.is_of_vendor or not host.is_loaded:
        return ""
    text = (
        f" {KERNEL_DRIVER}, not the vendor's. It has no modules for the network of the "
        f"accelerators ({', '.join(NETWORK_MODULES)}), so they cannot work together across hosts"
    )
    unbound = [one for one in devices if one["pci_address"] not in host.bound]
    generations = sorted({one["generation"] or f"PCI ID {one['pci_id']}" for one in unbound})
    if generations:
        text += f", and it does not drive {', '.join(generations)} here"
    return f"{text}. Install the vendor's driver if you need that."


def _missing_network(devices: list[schema.AcceleratorDevice], host: AcceleratorsGaudiHost) -> str:
    """Name the vendor's network modules that are not loaded. First-generation accelerators need no habanalabs_ib."""
    if not host.is_of_vendor:
        return ""
    first_only = all(one["generation"] in ("Goya", "Gaudi") for one in devices)
    needed = NETWORK_MODULES[:2] if first_only else NETWORK_MODULES
    missing = [name for name in needed if name not in host.loaded]
    if not missing or all(one["generation"] == "Goya" for one in devices):
        return ""
    return f" {NOT_LOADED} {', '.join(missing)}, so the network of the accelerators does not work."
