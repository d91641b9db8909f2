# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files in sysfs and device nodes of the drivers of AMD, Gaudi and Neuron are recorded on a host."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable
from typing import Any

_KFD = "/sys/class/kfd/kfd/topology/nodes"
_GAUDI_ATTRIBUTES = (
    *("pci_addr", "status", "module_id", "device_type"),
    *("fw_os_ver", "preboot_btl_ver", "uboot_ver", "cpucp_ver", "cpld_ver", "fuse_ver", "thermal_ver", "vrm_ver"),
)
# By vendor: the files whose text counts, the names that only have to exist, and the device nodes. `*` matches within
# one part of a path. {address} stands for each PCI function of the vendor, and {module} for its kernel module.
FILES: dict[str, dict[str, tuple[str, ...]]] = {
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
_LONGEST_TEXT = 64 * 1024
# Of an attribute with this name, only its start counts, which shows whether the device responds.
_CONFIG, _CONFIG_BYTES = "config", 4


def record(root: str, files: dict[str, tuple[str, ...]], addresses: list[str]) -> dict[str, Any]:
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
        handle = os.open(os.path.join(root, path.lstrip("/")), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
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
        status = os.stat(os.path.join(root, path.lstrip("/")))
    except OSError:
        return None
    return {"gid": status.st_gid, "mode": stat.S_IMODE(status.st_mode)}
