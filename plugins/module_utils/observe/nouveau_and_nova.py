# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other kernel drivers for NVIDIA's GPUs, nouveau and nova_core, on a host."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import (
    disabled_kernel_modules,
    loaded_kernel_modules,
)


def foreign_drivers(root: str, functions: list[dict], kernels: list[str]) -> dict:
    loaded = set(loaded_kernel_modules.modules_loaded(root))
    result: dict[str, dict] = {}
    for name in ("nouveau", "nova_core"):
        bound = [
            function["address"]
            for function in functions
            if function["vendor_id"] == pci_functions.NVIDIA_VENDOR_ID and function["kernel_driver"] == name
        ]
        result[name] = {
            "loaded": name in loaded or exists(root, f"/sys/module/{name}"),
            "bound": bound,
            "available": any(accelerator_pci_ids.has_module(root, kernel, name) for kernel in kernels),
            "blacklisted_by": disabled_kernel_modules.blacklisted_by(root, name),
        }
    return result
