# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observe NVIDIA devices, the driver, other drivers for the same GPUs, and the loaded kernel modules."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import (
    exists,
    listing,
    read_bytes,
    read_text,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vgpu as hardware_vgpu
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.lxc_guest import VARIANT


def nvidia(root: str, functions: list[dict], host: dict) -> dict:
    """Return NVIDIA's devices, driver and kernel module. `host`: the observation with its platform and its kernels."""
    loaded = driver(root, host["kernel"])
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
    if variant == VARIANT:
        found = _gpus_of_guest(root, found)
        own = [function for function in own if function["kind"] != "gpu" or function["address"] in found]
    excluded = host_driver.excluded_gpus(root, found)
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


def _gpus_of_guest(root: str, addresses: list[str]) -> list[str]:
    """Return the GPUs that an LXC guest has device nodes for. It sees the PCI bus of its node with all GPUs.

    Without any node, for example while the node has loaded no driver, all GPUs are returned.
    """
    minors = (
        (address, re.search(r"^Device Minor:\s*(\d+)", _information(root, address), re.MULTILINE))
        for address in addresses
    )
    return [address for address, minor in minors if minor and exists(root, f"/dev/nvidia{minor[1]}")] or addresses


def _information(root: str, address: str) -> str:
    return read_text(root, f"/proc/driver/nvidia/gpus/{address}/information") or ""


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


def driver(root: str, kernel: dict) -> dict:
    modules = {entry["release"]: entry["nvidia_module"] for entry in kernel["kernels"]}
    running, upcoming = (modules.get(kernel[name]) or {} for name in ("running", "next_boot"))
    versions = host_driver.loaded_and_library(root)
    path = versions["library_path"]
    prefix = next((place for place in ("/usr/local/nvidia",) if path and path.startswith(f"{place}/")), None)
    return {
        **versions,
        "on_disk": running.get("version"),
        "on_disk_flavor": running.get("flavor"),
        "on_disk_next": upcoming.get("version"),
        "on_disk_next_flavor": upcoming.get("flavor"),
        "in_use": _uses(root),
        "runfile": exists(root, "/usr/bin/nvidia-uninstall") or exists(root, "/usr/local/bin/nvidia-uninstall"),
        "prefix": prefix,
    }


def _uses(root: str) -> int:
    """Count the uses of the driver's modules, except those by other modules. The kernel does not name the users."""
    rows = [line.split() for line in (read_text(root, "/proc/modules") or "").splitlines()]
    return sum(
        int(row[2]) - sum(bool(user.strip("-")) for user in row[3].split(","))
        for row in rows
        if len(row) > 3 and row[0].startswith("nvidia") and row[2].isdigit()
    )


def foreign_drivers(root: str, functions: list[dict], kernels: list[str]) -> dict:
    loaded = set(modules_loaded(root))
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
            "blacklisted_by": blacklisted_by(root, name),
        }
    return result


def blacklisted_by(root: str, name: str) -> list[str]:
    """Return the files of modprobe that keep a module from being loaded for its hardware."""
    # modprobe ignores further words in the line.
    line = re.compile(rf"^\s*blacklist\s+{name.replace('_', '[-_]')}(?:\s.*)?$", re.MULTILINE)
    return [path for path in modprobe_files(root) if line.search(read_text(root, path) or "")]


def modprobe_files(root: str) -> list[str]:
    return [
        f"{directory}/{file}"
        for directory in ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d")
        for file in listing(root, directory)
        if file.endswith(".conf")
    ]


def modules_loaded(root: str) -> list[str]:
    found = set(_modules(root))
    # ib_umad may be built into the kernel.
    return sorted(found | {"ib_umad"} if exists(root, "/sys/class/infiniband_mad") else found)


def module_users(root: str) -> dict[str, list[str]]:
    return {name: users for name, users in _modules(root).items() if users}


def _modules(root: str) -> dict[str, list[str]]:
    """Return the loaded modules for accelerators, each with the modules that use it."""
    found = {}
    names = "|".join(accelerator_pci_ids.MODULES.values())
    for line in (read_text(root, "/proc/modules") or "").splitlines():
        name, _size, _count, users = [*line.split(), "", "", "", ""][:4]
        if re.match(rf"nvidia|nouveau|nova|gdrdrv|ib_core|{names}", name):
            found[name] = sorted(user for user in users.split(",") if user not in ("", "-"))
    return found
