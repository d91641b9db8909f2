# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs, vGPUs, MIG instances and NVSwitches of NVIDIA a host has, and which GPUs belong to virtual machines."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_bytes
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import (
    accelerator_pci_ids,
    excluded_gpus,
    pci_functions,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vgpu as hardware_vgpu
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import lxc_guest
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import installed_nvidia_driver


def nvidia(root: str, functions: list[dict], host: dict) -> dict:
    """Return NVIDIA's devices, driver and kernel module. `host`: the observation with its platform and its kernels."""
    loaded = installed_nvidia_driver.read(root, host["kernel"])
    module = {
        "name": "nvidia",
        "loaded": loaded["loaded"] is not None,
        "version": loaded["loaded"],
        "kernels": [entry["release"] for entry in host["kernel"]["kernels"] if entry["nvidia_module"]],
    }
    found = [item for item in accelerator_pci_ids.pick(functions) if item["vendor"] == "nvidia"]
    hardware = _hardware(root, functions, host["os"]["variant"])
    return {"devices": found, "driver": loaded, "module": module, **hardware}


def _hardware(root: str, functions: list[dict], variant: str | None) -> dict:
    devices = [function for function in functions if function["vendor_id"] == pci_functions.NVIDIA_VENDOR_ID]
    own = [function for function in devices if not pci_functions.is_for_guests(function)]
    guests = [function for function in devices if pci_functions.is_for_guests(function)]
    found = [function["address"] for function in own if function["kind"] == "gpu"]
    if variant == lxc_guest.VARIANT:
        found = lxc_guest.own_gpus(root, found)
        own = [function for function in own if function["kind"] != "gpu" or function["address"] in found]
    excluded = excluded_gpus.of_loaded_module(root, found)
    gpus = [function for function in own if function["kind"] == "gpu" and function["address"] not in excluded]
    switches = [function["address"] for function in own if function["kind"] == "nvswitch"]
    return {
        "pci_devices": devices,
        "gpus": [gpu["address"] for gpu in gpus],
        "device_ids": sorted({gpu["device_id"] for gpu in gpus}),
        "vgpus": list(filter(None, (hardware_vgpu.read(root, gpu) for gpu in gpus))),
        "gpus_of_guests": [function["address"] for function in guests if function["kind"] == "gpu"],
        "gpus_excluded": excluded,
        "mig_instances": _mig_instances(root),
        "nvswitches": switches or listing(root, "/proc/driver/nvidia-nvswitch/devices"),
        "nvlink5_switches": _nvlink5_switches(root, functions) if own else [],
    }


def _mig_instances(root: str) -> list[str]:
    """Return the MIG instances that the kernel module shows, by the minor number of their GPU: gpu0/gi1."""
    base = "/proc/driver/nvidia/capabilities"
    gpus = [name for name in listing(root, base) if name.startswith("gpu")]
    return [f"{gpu}/{name}" for gpu in gpus for name in listing(root, f"{base}/{gpu}/mig") if name.startswith("gi")]


def _nvlink5_switches(root: str, functions: list[dict]) -> list[str]:
    """Return the devices that manage an NVLink 5 switch according to their product data.

    They are listed by InfiniBand name, or by PCI address while no driver has created an InfiniBand device.
    """
    adapters = [function for function in functions if function["vendor_id"] == pci_functions.MELLANOX_VENDOR_ID]
    places = {name: f"/sys/class/infiniband/{name}/device/vpd" for name in listing(root, "/sys/class/infiniband")}
    for function in adapters:
        base = f"/sys/bus/pci/devices/{function['address']}"
        if not pci_functions.is_for_guests(function) and not listing(root, f"{base}/infiniband"):
            places[function["address"]] = f"{base}/vpd"
    return [name for name, path in places.items() if b"SW_MNG" in (read_bytes(root, path, 4096) or b"")]
