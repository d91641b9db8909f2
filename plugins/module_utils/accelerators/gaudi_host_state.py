# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide the state of Gaudi's accelerators and its reason, which says what to do. Pure functions."""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import untrusted_text

# The vendor's modules for the network of the accelerators. The driver in the kernel has none of them.
NETWORK_MODULES = ("habanalabs_cn", "habanalabs_en", "habanalabs_ib")
# The beginnings of what the reason of a working host says about its driver.
KERNEL_DRIVER, NOT_LOADED = "The loaded driver is the one in the kernel", "Not loaded:"
KERNEL_LOG = "Check the kernel log for messages of habanalabs"
_USABLE = "Operational"
# Texts of attribute `status`: habanalabs_drv.c.
_TRANSIENT = {
    "In reset": "the driver is resetting the accelerator. Try again in a minute",
    "In reset after device release": (
        "the driver is resetting the accelerator because a process released it. Try again in a minute"
    ),
    "In device creation": "the driver is starting the accelerator. Try again in a minute",
}
_UNUSABLE = {
    "Disabled": (
        f"the driver disabled the accelerator (status Disabled). {KERNEL_LOG}, and power-cycle the host if a reboot "
        "does not help"
    ),
    "Malfunction": f"the accelerator has a malfunction. {KERNEL_LOG}, and power-cycle the host",
    "Needs reset": "the accelerator needs a reset (status Needs reset). Stop its users and reset it or reboot the host",
}


class AcceleratorsGaudiHost(NamedTuple):
    """The driver of a host. `bound`: the PCI functions that it drives. `loaded`: the loaded modules of the vendor."""

    is_loaded: bool
    is_installed: bool
    is_of_vendor: bool
    driver_version: str | None
    kernel: str | None
    bound: tuple[str, ...]
    loaded: tuple[str, ...]


def health(status: str | None) -> schema.AcceleratorHealth:
    """Return the health for the text of attribute `status`."""
    if status == _USABLE:
        return schema.health(schema.OK)
    if status in _TRANSIENT:
        return schema.health(schema.DEGRADED, _TRANSIENT[status])
    if status in _UNUSABLE:
        return schema.health(schema.LOST, _UNUSABLE[status])
    if status is None:
        return schema.health(schema.UNKNOWN, "the driver does not show a status")
    return schema.health(schema.UNKNOWN, f"the driver shows the unknown status {untrusted_text.shown(status)}")


def health_unbound(host: AcceleratorsGaudiHost) -> schema.AcceleratorHealth:
    if not host.is_loaded:
        return schema.health(schema.UNKNOWN, "the driver is not loaded")
    return schema.health(
        schema.LOST,
        f"kernel module habanalabs is loaded, but does not drive this accelerator. {KERNEL_LOG}",
    )


def health_without_node() -> schema.AcceleratorHealth:
    return schema.health(schema.LOST, f"the driver shows no device of this accelerator. {KERNEL_LOG}")


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
