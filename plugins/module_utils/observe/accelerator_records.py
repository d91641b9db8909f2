# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record the files that describe the accelerators of other vendors, for the controller to interpret.

The record is small, and only hosts with such accelerators have one. So hosts of other vendors get no reader of sysfs.
accelerators/recorded_sysfs.py reads the record.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from collections.abc import Iterable
from typing import Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories as cdi_directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import observed_specification_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, amd_compute_gpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import nvidia_devices

Run = Callable[["list[str]"], "tuple[int, str, str]"]

_KFD = "/sys/class/kfd/kfd/topology/nodes"
_GAUDI_ATTRIBUTES = (
    *("pci_addr", "status", "module_id", "device_type"),
    *("fw_os_ver", "preboot_btl_ver", "uboot_ver", "cpucp_ver", "cpld_ver", "fuse_ver", "thermal_ver", "vrm_ver"),
)
# By vendor: the files whose text counts, the names that only have to exist, and the device nodes. `*` matches within
# one part of a path. {address} stands for each PCI function of the vendor, and {module} for its kernel module.
_FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "amd": {
        "texts": (
            "/sys/module/amdgpu/version",
            f"{_KFD}/*/properties",
            *(
                f"/sys/bus/pci/devices/{{address}}/{name}"
                for name in ("unique_id", "current_compute_partition", "product_name", "config", "hwmon/hwmon*/name")
            ),
        ),
        "names": (
            "/sys/module/amdgpu",
            _KFD,
            "/sys/bus/pci/devices/{address}/physfn",
            "/sys/bus/pci/devices/{address}/hwmon/hwmon*/in1_label",
            "/sys/bus/pci/devices/{address}/drm/*",
            "/sys/devices/platform/amdgpu_xcp*/drm/*",
        ),
        "nodes": ("/dev/kfd", "/dev/dri/card*", "/dev/dri/renderD*"),
    },
    "neuron": {
        "texts": (
            "/sys/module/neuron/version",
            *(
                f"/sys/class/neuron_device/neuron*/{name}"
                for name in ("reset", "core_count", "info/serial_number", "info/architecture/device_name")
            ),
        ),
        "names": ("/sys/module/neuron", "/sys/class/neuron_device/neuron*"),
        "nodes": ("/dev/neuron*",),
    },
    "gaudi": {
        "texts": (
            "/sys/module/habanalabs/version",
            *(f"/sys/class/accel/accel*/device/{name}" for name in _GAUDI_ATTRIBUTES),
            # Kernels without DRM accel, and those before Linux 6.3.
            *(f"/sys/devices/virtual/accel/accel*/device/{name}" for name in _GAUDI_ATTRIBUTES),
            *(f"/sys/class/habanalabs/hl*/{name}" for name in _GAUDI_ATTRIBUTES),
            "/sys/bus/pci/devices/{address}/hwmon/hwmon*/name",
            # Where Podman searches for hooks.
            "/etc/containers/containers.conf",
            "/etc/containers/containers.conf.d/*.conf",
        ),
        "names": ("/sys/module/habanalabs*", "/sys/bus/pci/devices/{address}/infiniband_verbs/uverbs*"),
        "nodes": ("/dev/accel/accel*", "/dev/hl*", "/dev/infiniband/uverbs*"),
    },
}
# The vendors whose drivers are not replaced while a program uses a device, and the nodes that count. Monitoring opens
# Gaudi's control nodes.
_HELD = {"neuron": re.compile(r"/dev/neuron\d+"), "gaudi": re.compile(r"/dev/(?:accel/accel|hl)\d+")}
_LONGEST_TEXT = 64 * 1024
# Of an attribute with this name, only its start counts, which shows whether the device responds.
_CONFIG, _CONFIG_BYTES = "config", 4
_KIND = re.compile(r"""(?:^|[{,\s])["']?kind["']?\s*:\s*["']?([A-Za-z][\w.-]*/[A-Za-z][\w.-]*)""")
_LOG_LINES, _LONGEST_LINE = 20, 300


def read(root: str, functions: Iterable[dict], run: Run) -> dict[str, dict[str, Any]]:
    """Return the record of each vendor. `functions`: the accelerators of hardware/accelerator_pci_ids.py."""
    found = {}
    functions = list(functions)
    for vendor, files in _FILES.items():
        own = [one for one in functions if one["vendor"] == vendor]
        if own:
            found[vendor] = _record(root, files, _addresses(root, vendor, own))
            module = accelerator_pci_ids.MODULES[vendor]
            found[vendor]["blacklisted_by"] = [
                *nvidia_devices.blacklisted_by(root, module),
                *_disabled_by(root, module),
            ]
            is_bound = all(one["kernel_driver"] for one in own)
            loaded = os.path.lexists(_in(root, f"/sys/module/{module}"))
            found[vendor]["log"] = kernel_log(module, run) if loaded and not is_bound else []
            found[vendor]["groups"] = _groups(root)
            held = [path for path in found[vendor]["nodes"] if vendor in _HELD and _HELD[vendor].fullmatch(path)]
            found[vendor]["holders"] = _holders(root, held) if held and loaded else []
    return found


def _addresses(root: str, vendor: str, functions: list[dict]) -> list[str]:
    """Return the PCI addresses to record: also those of graphics that KFD knows, which are no accelerators."""
    addresses = [one["address"] for one in functions]
    others = amd_compute_gpus.computing(root) if vendor == "amd" else ()
    return [*addresses, *(f"{one}.0" for one in others if f"{one}.0" not in addresses)]


def former_groups(root: str, vendors: Iterable[str]) -> dict[str, list[str]]:
    """Return the members of the groups if a role added users for a vendor whose devices are gone."""
    others = [path for vendor, path in owned.ACCELERATOR_USERS.items() if vendor not in vendors]
    return _groups(root) if any(os.path.lexists(_in(root, path)) for path in others) else {}


def specifications(root: str, directories: Iterable[str]) -> list[dict[str, Any]]:
    """Return the CDI specifications of all kinds except NVIDIA's, with the device nodes of each device."""
    found: dict[str, dict] = {}
    for directory in directories:
        resolved = os.path.realpath(_in(root, directory))
        for name in listing(root, directory):
            path = f"{directory}/{name}"
            text = read_text(root, path) if name.endswith(cdi_directories.SUFFIXES) else None
            kind = _KIND.search((text or "").replace("\\/", "/"))
            if text and kind and kind[1] != "nvidia.com/gpu":
                found.setdefault(
                    os.path.join(resolved, name),
                    {
                        "path": path,
                        "kind": kind[1],
                        "ours": os.path.lexists(_in(root, cdi_directories.marker_path(path))),
                        "digest": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(),
                        "nodes": observed_specification_nodes.of_specification(root, path),
                    },
                )
    return list(found.values())


def kernel_log(module: str, run: Run) -> list[str]:
    """Return the last messages of the kernel in which a module reports a failure.

    The kernel keeps only its newest messages. The journal has those of the whole boot.
    """
    pattern = re.compile(rf"\b{re.escape(module)}\b.*(?:firmware|fail|error)", re.IGNORECASE)
    found: list[str] = []
    for command in (["dmesg"], ["journalctl", "--dmesg", "--no-pager", "--quiet", "--output=short-monotonic"]):
        _rc, out, _err = run(command)
        found = [line.strip()[:_LONGEST_LINE] for line in out.splitlines() if pattern.search(line)]
        if found:
            break
    return found[-_LOG_LINES:]


def _disabled_by(root: str, module: str) -> list[str]:
    """Return what else keeps a module from being loaded: commands of modprobe, and the kernel's command line."""
    name = module.replace("_", "[-_]")
    command = re.compile(rf"^\s*install\s+{name}\s+(?:/usr)?/bin/(?:true|false)\b", re.MULTILINE)
    found = [path for path in nvidia_devices.modprobe_files(root) if command.search(read_text(root, path) or "")]
    words = (read_text(root, "/proc/cmdline") or "").split()
    lists = [word.partition("=")[2] for word in words if re.match(r"(?:modprobe\.|module_)blacklist=", word)]
    names = {one.replace("-", "_") for text in lists for one in text.split(",")}
    return [*found, *(["/proc/cmdline"] if module in names else [])]


def _record(root: str, files: dict[str, tuple[str, ...]], addresses: list[str]) -> dict[str, Any]:
    texts: dict[str, str] = {}
    refused: dict[str, int] = {}
    for path in _matching(root, files["texts"], addresses):
        found = _text(root, path)
        if isinstance(found, str):
            texts[path] = found
        else:
            refused[path] = found
    return {
        "texts": texts,
        "refused": refused,
        "names": _matching(root, files["names"], addresses),
        "nodes": {path: node for path in _matching(root, files["nodes"], []) if (node := _node(root, path))},
    }


def _matching(root: str, patterns: Iterable[str], addresses: list[str]) -> list[str]:
    found: dict[str, None] = {}
    for pattern in patterns:
        for address in addresses if "{address}" in pattern else [""]:
            full = glob.escape(root) + "/" + pattern.replace("{address}", address).lstrip("/")
            found.update(dict.fromkeys(f"/{os.path.relpath(path, root)}" for path in sorted(glob.glob(full))))
    return list(found)


def _text(root: str, path: str) -> str | int:
    """Return the bytes of a file as text, or the number of the error.

    Each character stands for one byte, because the file may not be UTF-8.
    """
    limit = _CONFIG_BYTES if path.endswith(f"/{_CONFIG}") else _LONGEST_TEXT
    try:
        # Without O_NONBLOCK, a named pipe in the place of an attribute would block for ever.
        handle = os.open(_in(root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.errno or 0
    try:
        return os.read(handle, limit).decode("latin-1")
    except OSError as error:
        return error.errno or 0
    finally:
        os.close(handle)


def _node(root: str, path: str) -> dict[str, int] | None:
    try:
        status = os.stat(_in(root, path))
    except OSError:
        return None
    return {"gid": status.st_gid, "mode": stat.S_IMODE(status.st_mode)}


def _holders(root: str, nodes: Iterable[str]) -> list[dict[str, Any]]:
    """Return the processes that have a node open, and the containers that have one in their /dev."""
    wanted = list(nodes)
    table = gpu_processes.read(root, nodes=wanted)
    numbers = {gpu_processes.device_numbers(_in(root, path)): path for path in wanted}
    found = [
        {
            "pid": one.pid,
            "command": one.command,
            "container": _title(one.container) if one.container else None,
            "nodes": sorted(one.opened),
        }
        for one in table.processes.values()
        if one.opened
    ]
    for container in table.containers:
        given = sorted({numbers[number] for number in container.devices if number in numbers})
        # A privileged container has all nodes.
        if given and not container.privileged:
            found.append({"pid": None, "command": None, "container": _title(container), "nodes": given})
    return found


def _title(container: gpu_processes.Container) -> str:
    return container.name or (container.identifiers[-1][:12] if container.identifiers else container.engine)


def _groups(root: str) -> dict[str, list[str]]:
    """Return the members of the groups that device nodes belong to, by name."""
    lines = (line.split(":") for line in (read_text(root, "/etc/group") or "").splitlines())
    return {line[0]: [name for name in line[3].split(",") if name] for line in lines if line[0] in ("render", "video")}


def _in(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))
