# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PCI functions of a host, read from sysfs. No driver is required."""

from __future__ import annotations

import os
import re

NVIDIA_VENDOR_ID = "0x10de"
MELLANOX_VENDOR_ID = "0x15b3"

_GPU_CLASSES = ("0x0300", "0x0302")
_NVSWITCH_CLASS = "0x0680"
_ADDRESS = re.compile(r"^([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])\Z")
# Drivers that reserve a function for virtual machines.
_GUEST_DRIVERS = ("vfio-pci", "nvgrace-gpu-vfio-pci", "pci-stub", "pciback", "xen-pciback")
_DRIVER_NAMES = {"nova-core": "nova_core", "NovaCore": "nova_core"}


def scan(root: str = "/") -> list[dict]:
    """Return NVIDIA's functions in bus order: GPUs, NVSwitches, and other functions of a board (audio, USB)."""
    return _scan(root, NVIDIA_VENDOR_ID)


def scan_all(root: str = "/") -> list[dict]:
    """Return the functions of all vendors in bus order. The `kind` is "other" for all vendors except NVIDIA."""
    return _scan(root, None)


def is_for_guests(function: dict) -> bool:
    """Return whether a function is reserved for virtual machines."""
    return function["kernel_driver"] in _GUEST_DRIVERS


def guest_reason(function: dict) -> str:
    """Return why a function that is reserved for virtual machines is not used on this host."""
    return f"reserved for virtual machines (kernel driver {function['kernel_driver']})"


def of_guests(functions: list[dict]) -> list[dict]:
    """Return the functions that are reserved for virtual machines, as facts list what they skip."""
    guests = [one for one in functions if is_for_guests(one)]
    return [{"pci_address": one["address"], "reason": guest_reason(one)} for one in guests]


def kernel_address(address: str | None) -> str | None:
    """Return an address in the kernel's format: lower case, with a domain of at least four digits.

    NVML uses eight upper-case digits for the domain; /proc/driver/nvidia uses four digits.
    """
    match = _ADDRESS.match((address or "").strip())
    if match is None:
        return None
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def sort_key(address: str) -> tuple[int, ...]:
    """Sort addresses as numbers: domain 10000 comes after ffff."""
    match = _ADDRESS.match(address)
    return tuple(int(part, 16) for part in match.groups()) if match else ()


def _scan(root: str, vendor_id: str | None) -> list[dict]:
    base = os.path.join(root, "sys/bus/pci/devices")
    try:
        addresses = [name for name in os.listdir(base) if _ADDRESS.match(name)]
    except OSError:
        return []
    functions = []
    for address in sorted(addresses, key=sort_key):
        directory = os.path.join(base, address)
        vendor = _hexadecimal(directory, "vendor", 4)
        if vendor is None or vendor_id not in (None, vendor):
            continue
        functions.append(_function(directory, address, vendor))
    return functions


def _function(directory: str, address: str, vendor: str) -> dict:
    class_id = _hexadecimal(directory, "class", 6)
    return {
        "address": kernel_address(address),
        "vendor_id": vendor,
        "device_id": _hexadecimal(directory, "device", 4),
        "class_id": class_id,
        "subsystem_vendor_id": _hexadecimal(directory, "subsystem_vendor", 4),
        "subsystem_device_id": _hexadecimal(directory, "subsystem_device", 4),
        "numa_node": _numa_node(directory),
        "kernel_driver": _kernel_driver(directory),
        "kind": _kind(vendor, class_id, is_virtual=os.path.lexists(os.path.join(directory, "physfn"))),
    }


def _kind(vendor: str, class_id: str | None, is_virtual: bool) -> str:
    """Return the kind of a function. SR-IOV virtual functions belong to guests and are "other"."""
    if vendor != NVIDIA_VENDOR_ID or class_id is None or is_virtual:
        return "other"
    if class_id.startswith(_GPU_CLASSES):
        return "gpu"
    return "nvswitch" if class_id.startswith(_NVSWITCH_CLASS) else "other"


def _kernel_driver(directory: str) -> str | None:
    try:
        name = os.path.basename(os.readlink(os.path.join(directory, "driver")))
    except OSError:
        return None
    return _DRIVER_NAMES.get(name, name) or None


def _numa_node(directory: str) -> int | None:
    try:
        node = int(_text(directory, "numa_node") or "-1")
    except ValueError:
        return None
    return node if node >= 0 else None


def _hexadecimal(directory: str, name: str, digits: int) -> str | None:
    try:
        return f"0x{int(_text(directory, name) or '', 16):0{digits}x}"
    except ValueError:
        return None


def _text(directory: str, name: str) -> str | None:
    try:
        with open(os.path.join(directory, name), encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None
