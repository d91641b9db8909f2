# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs and accelerators of all vendors, found by PCI ID, and the kernel modules of vendors other than NVIDIA."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import exists, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations

_VENDORS = {
    "0x10de": "nvidia",
    "0x1002": "amd",
    "0x1da3": "habana",
    "0x1d0f": "neuron",
    "0x8086": "intel",
}
# AWS's accelerators have the class "system peripheral". Only the device ID identifies them.
_NEURON = {
    **dict.fromkeys(("0x7064", "0x7065", "0x7066", "0x7067"), "Inferentia"),
    "0x7164": "Trainium",
    "0x7264": "Inferentia2",
    "0x7364": "Trainium2",
    **dict.fromkeys(("0x7564", "0x7565"), "Trainium3"),
}
# Device 1030 is Gaudi2 in some of the vendor's sources and Gaudi3 in others, so its generation is unknown.
_HABANA = {
    "0x0001": "Goya",
    **dict.fromkeys(("0x1000", "0x1010"), "Gaudi"),
    **dict.fromkeys(("0x1020", "0x1021"), "Gaudi2"),
    **dict.fromkeys(("0x1060", "0x1063"), "Gaudi3"),
}
_MODULES = {"neuron": "neuron", "habana": "habanalabs", "amd": "amdgpu"}
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380")
_ACCELERATOR_CLASS = "0x1200"


def pick(functions: list[dict]) -> list[dict]:
    """Return the GPUs and accelerators in bus order, with `vendor`, `kind` and `generation`."""
    found = []
    for function in functions:
        vendor = _VENDORS.get(function["vendor_id"])
        kind = _kind(vendor, function)
        if vendor and kind:
            found.append(
                {**function, "vendor": vendor, "kind": kind, "generation": _generation(vendor, function["device_id"])}
            )
    return found


def drivers(root: str, found: list[dict], kernels: list[str]) -> dict[str, dict]:
    """Return the kernel modules for the accelerators that were found, except NVIDIA's.

    For each module: whether it is `loaded`, its `version`, and the `kernels` that it is installed for.
    """
    vendors = {item["vendor"] for item in found}
    return {
        name: {
            "loaded": exists(root, f"/sys/module/{name}"),
            "version": (read_text(root, f"/sys/module/{name}/version") or "").strip() or None,
            "kernels": [kernel for kernel in kernels if has_module(root, kernel, name)],
        }
        for vendor, name in _MODULES.items()
        if vendor in vendors
    }


def has_module(root: str, kernel: str, name: str) -> bool:
    """Return whether modules.dep of a kernel lists a module. Hyphens and underscores in the name are equal."""
    listed = read_text(root, f"/lib/modules/{kernel}/modules.dep") or ""
    return re.search(rf"/{name.replace('_', '[-_]')}\.ko", listed) is not None


def _kind(vendor: str | None, function: dict) -> str | None:
    class_id, device = function["class_id"] or "", function["device_id"]
    if vendor == "nvidia":
        return "gpu" if function["kind"] == "gpu" else None
    if vendor == "neuron":
        return "accelerator" if device in _NEURON else None
    if vendor and class_id.startswith(_ACCELERATOR_CLASS):
        return "accelerator"
    # Servers have display adapters that do not compute. Count AMD's GPUs, and Intel's GPUs without a display.
    if vendor == "amd" and class_id.startswith(_DISPLAY_CLASSES):
        return "gpu"
    if vendor == "intel" and class_id.startswith("0x0380"):
        return "gpu"
    return None


def _generation(vendor: str, device: str | None) -> str | None:
    if vendor == "nvidia" and device:
        return generations.of(device).name
    return {"neuron": _NEURON, "habana": _HABANA}.get(vendor, {}).get(device or "")
