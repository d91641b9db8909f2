# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of Intel as PCI shows them, with the kernel driver that is bound to each."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import INTEL

# The name for messages, and the kernel modules.
_VENDORS = {
    INTEL: ("Intel", ("xe", "i915")),
}
VENDORS = tuple(_VENDORS)


def read(
    vendor: str, root: str, functions: list[dict], kernel: str | None, loaded: frozenset[str]
) -> tuple[list[schema.AcceleratorDevice], schema.AcceleratorVendor]:
    """Return the devices of a vendor. `loaded`: the loaded kernel modules."""
    title, modules = _VENDORS[vendor]
    found = [one for one in accelerator_pci_ids.pick(functions) if one["vendor"] == vendor]
    usable = [one for one in found if not pci_functions.is_for_guests(one)]
    skipped = pci_functions.of_guests(found)
    devices = [_device(vendor, one) for one in usable]
    bound = [one["address"] for one in usable if _module(one) is not None]
    installed = [name for name in modules if kernel and accelerator_pci_ids.has_module(root, kernel, name)]
    running = [name for name in modules if name in loaded]
    name = " or ".join(modules)
    count = schema.plural(len(devices), f"{title} device")
    if not devices:
        state, reason = schema.NO_HARDWARE, f"The PCI bus has no {title} device."
    elif bound:
        drivers = ", ".join(sorted({_module(one) or "" for one in usable} - {""}))
        state, reason = (
            schema.READY,
            (
                f"The PCI bus has {count}. Kernel driver {drivers} drives {', '.join(bound)}. Only the "
                "values of PCI are read."
            ),
        )
    elif running:
        state, reason = (
            schema.DRIVER_NOT_LOADED,
            (
                f"Kernel module {running[0]} is loaded, but does not drive any of the {count} on the PCI bus. Check "
                f"the kernel log for messages of {running[0]}."
            ),
        )
    elif installed:
        state, reason = (
            schema.DRIVER_NOT_LOADED,
            (
                f"The PCI bus has {count}. Kernel module {installed[0]} is installed for the running kernel {kernel}, "
                f"but is not loaded. Run modprobe {installed[0]}."
            ),
        )
    else:
        state, reason = schema.NO_DRIVER, f"The PCI bus has {count}, but the running kernel has no module {name}."
    return devices, schema.vendor_state(state, reason, devices, skipped=skipped)


def _device(vendor: str, function: dict) -> schema.AcceleratorDevice:
    driver = _module(function)
    reason = "only PCI was read" if driver else "the driver is not bound to the device"
    return schema.device(
        vendor,
        kind=function["kind"],
        generation=function["generation"],
        pci_address=function["address"],
        pci_id=schema.pci_id(function["vendor_id"], function["device_id"]),
        stable_id=function["address"],
        stable_id_kind=schema.PCI_ADDRESS,
        numa_node=function["numa_node"],
        health=schema.health(schema.UNKNOWN, reason),
    )


def _module(function: dict) -> str | None:
    """Return the module of the vendor that drives a function."""
    known = {name for _title, names in _VENDORS.values() for name in names}
    driver = function["kernel_driver"]
    return driver if driver in known else None
