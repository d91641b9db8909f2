# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that NVML does not return: PCI address, UUID, minor, name and firmware mode, from the kernel."""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text

_UUID = re.compile(r"^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def add_missing_addresses(gpus: list[dict], functions: list[dict]) -> None:
    """Add the PCI addresses of GPUs that NVML returns without one.

    NVML lists GPUs in bus order. If the number of unassigned PCI functions equals the number of GPUs without an
    address, they belong together in this order.
    """
    without_address = [gpu for gpu in gpus if gpu["pci_bus_id"] is None]
    known = {gpu["pci_bus_id"] for gpu in gpus}
    unassigned = [one for one in functions if one["kind"] == "gpu" and one["address"] not in known]
    bound = [one for one in unassigned if one["kernel_driver"] == "nvidia"]
    for candidates in (bound, unassigned):
        if len(without_address) == len(candidates):
            for gpu, function in zip(without_address, candidates):
                gpu["pci_bus_id"] = function["address"]
                gpu["pci_device_id"] = function["device_id"]
            break


def add_missing_identity(gpus: list[dict], root: str) -> None:
    """Add UUID, minor number and name from the kernel module if NVML does not return them."""
    for gpu in gpus:
        if gpu["pci_bus_id"] and None in (gpu["uuid"], gpu["minor"], gpu["name"]):
            for key, value in _kernel_information(root, gpu["pci_bus_id"]).items():
                gpu[key] = value if gpu[key] is None else gpu[key]


def _kernel_information(root: str, address: str) -> dict:
    """Return the UUID, minor number and name of one GPU from the kernel module."""
    lines = (read_text(root, f"proc/driver/nvidia/gpus/{address}/information") or "").splitlines()
    information = {key.strip(): value.strip() for key, _colon, value in (line.partition(":") for line in lines)}
    uuid, minor = information.get("GPU UUID", ""), information.get("Device Minor", "")
    return {
        # The UUID consists of question marks until the first use of the GPU.
        "uuid": uuid if _UUID.match(uuid) else None,
        "minor": int(minor) if minor.isdigit() else None,
        "name": information.get("Model") or None,
    }


def firmware_mode(root: str, gpus: list[dict]) -> str | None:
    """Return whether the GPUs run the driver's firmware (gsp), from NVML or else from the kernel module."""
    enabled = [gpu["gsp_firmware_enabled"] for gpu in gpus if gpu.get("gsp_firmware_enabled") is not None]
    if not enabled:
        directory = os.path.join(root, "proc/driver/nvidia/gpus")
        try:
            addresses = sorted(os.listdir(directory))
        except OSError:
            return None
        for address in addresses:
            match = re.search(
                r"^GPU Firmware:\s*(\S+)", read_text(directory, f"{address}/information") or "", re.MULTILINE
            )
            if match:
                enabled.append(match.group(1) != "N/A")
    if not enabled:
        return None
    return "mixed" if len(set(enabled)) == 2 else "gsp" if enabled[0] else "none"
