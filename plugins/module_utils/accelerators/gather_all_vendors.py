# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the accelerators of all vendors of a host in one pass over the PCI bus."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    amd_devices,
    gaudi_devices,
    intel_gpus,
    neuron_devices,
    nvidia_devices,
    schema,
    sysfs_refusals,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import untrusted_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import (
    AMD,
    GAUDI,
    NEURON,
    NVIDIA,
    VENDORS,
)

_MODULES = "/sys/module"


def gather(
    nvidia_facts: Callable[[], Mapping[str, Any]],
    *,
    root: str = "/",
    vendors: Collection[str] = VENDORS,
    read_ras: bool = False,
) -> dict[str, Any]:
    """Return `accelerators`, the devices in the order of the vendors, and `accelerator_vendors`, their states.

    `nvidia_facts` returns the facts of facts/gather.py. It is not called on a host that has neither a GPU nor a driver
    of NVIDIA, so that such a host needs no pynvml.
    """
    tree = sysfs_refusals.SysfsTree(root)
    functions = pci_functions.scan_all(root)
    kernel = tree.read("/proc/sys/kernel/osrelease").text
    kernel = kernel if untrusted_text.is_like(untrusted_text.KERNEL_RELEASE, kernel) else None
    loaded = frozenset(tree.names(_MODULES, r"[A-Za-z0-9_]{1,64}"))
    devices: list[schema.AcceleratorDevice] = []
    states: dict[str, schema.AcceleratorVendor] = {}
    for vendor in VENDORS:
        if vendor not in vendors:
            continue
        if vendor == NVIDIA:
            found, state = _nvidia(nvidia_facts, functions, tree)
        elif vendor == AMD:
            found, state = amd_devices.read(tree, functions, kernel, read_ras)
        elif vendor == NEURON:
            found, state = neuron_devices.read(tree, functions, kernel)
        elif vendor == GAUDI:
            found, state = gaudi_devices.read(tree, functions, kernel)
        else:
            found, state = intel_gpus.read(vendor, root, functions, kernel, loaded)
        devices += found
        states[vendor] = state
    return {"accelerators": devices, "accelerator_vendors": states}


def _nvidia(
    nvidia_facts: Callable[[], Mapping[str, Any]], functions: list[dict], tree: sysfs_refusals.SysfsTree
) -> tuple[list[schema.AcceleratorDevice], schema.AcceleratorVendor]:
    has_gpu = any(one["vendor_id"] == pci_functions.NVIDIA_VENDOR_ID and one["kind"] == "gpu" for one in functions)
    if not has_gpu and not facts_gather.has_driver(tree.root):
        return [], schema.vendor_state(schema.NO_HARDWARE, nvidia_devices.NOTHING_ON_PCI, [])
    return nvidia_devices.convert(nvidia_facts(), tree)
