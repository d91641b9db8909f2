# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the accelerators of each vendor except NVIDIA, for the controller to interpret.

The record is small, and only hosts with such accelerators have one. So hosts of other vendors get no reader of sysfs.
accelerators/recorded_sysfs.py reads the record.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, amd_compute_gpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import disabled_kernel_modules
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe.amd_gaudi_neuron import (
    failures_in_kernel_log,
    open_device_nodes,
    recorded_sysfs_and_device_nodes,
    render_and_video_groups,
)

Run = Callable[["list[str]"], "tuple[int, str, str]"]


def read(root: str, functions: Iterable[dict], run: Run) -> dict[str, dict[str, Any]]:
    """Return the record of each vendor. `functions`: the accelerators of hardware/accelerator_pci_ids.py."""
    found = {}
    functions = list(functions)
    for vendor, files in recorded_sysfs_and_device_nodes.FILES.items():
        own = [one for one in functions if one["vendor"] == vendor]
        if own:
            found[vendor] = recorded_sysfs_and_device_nodes.record(root, files, _addresses(root, vendor, own))
            module = accelerator_pci_ids.MODULES[vendor]
            found[vendor]["blacklisted_by"] = [
                *disabled_kernel_modules.blacklisted_by(root, module),
                *disabled_kernel_modules.otherwise_disabled_by(root, module),
            ]
            is_bound = all(one["kernel_driver"] for one in own)
            loaded = os.path.lexists(os.path.join(root, f"sys/module/{module}"))
            found[vendor]["log"] = failures_in_kernel_log.read(module, run) if loaded and not is_bound else []
            found[vendor]["groups"] = render_and_video_groups.members(root)
            held = open_device_nodes.that_count(vendor, found[vendor]["nodes"])
            found[vendor]["holders"] = open_device_nodes.holders(root, held) if held and loaded else []
    return found


def _addresses(root: str, vendor: str, functions: list[dict]) -> list[str]:
    """Return the PCI addresses to record: also those of graphics that KFD knows, which are no accelerators."""
    addresses = [one["address"] for one in functions]
    others = amd_compute_gpus.computing(root) if vendor == "amd" else ()
    return [*addresses, *(f"{one}.0" for one in others if f"{one}.0" not in addresses)]
