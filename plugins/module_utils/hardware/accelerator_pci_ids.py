# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs and accelerators of all vendors, found by PCI ID, and the kernel modules of vendors other than NVIDIA."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import amd_compute_gpus, nvidia_generations
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import (
    AMD,
    GAUDI,
    INTEL,
    NEURON,
    NVIDIA,
    VENDORS,
)

_VENDORS = {
    "0x10de": NVIDIA,
    amd_compute_gpus.VENDOR_ID: AMD,
    "0x1da3": GAUDI,
    "0x1d0f": NEURON,
    "0x8086": INTEL,
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
_GAUDI = {
    "0x0001": "Goya",
    # 1001 and 1011: HL-2000M. 1010 and 1011: with secured firmware.
    **dict.fromkeys(("0x1000", "0x1001", "0x1010", "0x1011"), "Gaudi"),
    **dict.fromkeys(("0x1020", "0x1021"), "Gaudi2"),
    **dict.fromkeys(("0x1060", "0x1061", "0x1062", "0x1063"), "Gaudi3"),
}
# The kernel modules.
MODULES = {NEURON: "neuron", GAUDI: "habanalabs", AMD: amd_compute_gpus.DRIVER}
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380")
_ACCELERATOR_CLASS = "0x1200"


def pick(functions: list[dict], root: str | None = None) -> list[dict]:
    """Return the GPUs and accelerators in bus order, with `vendor`, `kind` and `generation`.

    With the `root` of a host, AMD's display adapters that do not compute are left out. Without it, all are candidates.
    """
    found = []
    computing = None if root is None else amd_compute_gpus.computing(root)
    for function in functions:
        vendor = _VENDORS.get(function["vendor_id"])
        kind = _kind(vendor, function)
        if (
            vendor == AMD
            and kind == "gpu"
            and computing is not None
            and not amd_compute_gpus.computes(function, computing)
        ):
            continue
        if vendor and kind:
            found.append(
                {**function, "vendor": vendor, "kind": kind, "generation": _generation(vendor, function["device_id"])}
            )
    return found


def groups(
    root: str, found: list[dict], kernel: str, kernels: list[str], records: dict[str, dict]
) -> dict[str, dict | None]:
    """Return the accelerators by vendor, with the driver and the kernel module of each vendor except NVIDIA.

    `found`: from `pick`. `kernel`: the running one. `kernels`: all of the host. `records`: what else was read, by
    vendor. A vendor without devices is None.
    """
    result: dict[str, dict | None] = dict.fromkeys(VENDORS)
    for vendor in VENDORS:
        devices = [item for item in found if item["vendor"] == vendor]
        if devices and vendor != NVIDIA:
            group = _group(root, devices, MODULES.get(vendor), kernel, kernels)
            result[vendor] = {**group, "record": records.get(vendor)}
    return result


def _group(root: str, devices: list[dict], name: str | None, kernel: str, kernels: list[str]) -> dict:
    if name is None:
        return {"devices": devices, "driver": {"loaded": None}, "module": None}
    module = {
        "name": name,
        "loaded": exists(root, f"/sys/module/{name}"),
        "version": (read_text(root, f"/sys/module/{name}/version") or "").strip() or None,
        "kernels": [release for release in kernels if has_module(root, release, name)],
    }
    # A module of the kernel itself has no version of its own.
    version = module["version"] or kernel
    return {"devices": devices, "driver": {"loaded": version if module["loaded"] else None}, "module": module}


def has_module(root: str, kernel: str, name: str) -> bool:
    """Return whether modules.dep of a kernel lists a module. Hyphens and underscores in the name are equal."""
    listed = read_text(root, f"/lib/modules/{kernel}/modules.dep") or ""
    return re.search(rf"/{name.replace('_', '[-_]')}\.ko", listed) is not None


def _kind(vendor: str | None, function: dict) -> str | None:
    class_id, device = function["class_id"] or "", function["device_id"]
    if vendor == NVIDIA:
        return "gpu" if function["kind"] == "gpu" else None
    if vendor == NEURON:
        return "accelerator" if device in _NEURON else None
    if vendor and class_id.startswith(_ACCELERATOR_CLASS):
        return "accelerator"
    # Servers have display adapters that do not compute. Count AMD's GPUs, and Intel's GPUs without a display.
    if vendor == AMD and class_id.startswith(_DISPLAY_CLASSES):
        return "gpu"
    if vendor == INTEL and class_id.startswith("0x0380"):
        return "gpu"
    return None


def _generation(vendor: str, device: str | None) -> str | None:
    if vendor == NVIDIA and device:
        return nvidia_generations.of(device).name
    return {NEURON: _NEURON, GAUDI: _GAUDI}.get(vendor, {}).get(device or "")
