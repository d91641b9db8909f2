# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values that amdgpu shows of one GPU: identity, memory, sensors, firmware and errors.

All paths are attributes of the PCI function. Sources: Linux, Documentation/gpu/amdgpu, drivers/gpu/drm/amd/amdgpu
(amdgpu_pm.c, amdgpu_ras.c, amdgpu_vram_mgr.c); ROCm/amdsmi (0ceca28).
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema, sysfs_refusals
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import untrusted_text

_UNIQUE_ID = r"[0-9a-f]{16}"
_COMPUTE_MODE = r"[A-Z]{3}"
_VERSION = r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}"
_MOST_VRAM = 1 << 50
_MOST_MICROWATTS = 100_000 * 1_000_000
_MIB = 1 << 20
# The sensor that limits the GPU comes first.
_TEMPERATURES = ("junction", "edge")
_POWERS = ("power1_average", "power1_input")
_CLEARS = "reading the counters clears the status in the hardware of MI200. Set read_ras: true"


def unique_id(attributes: sysfs_refusals.SysfsAttributes) -> str | None:
    found = attributes.matching("stable_id", "unique_id", _UNIQUE_ID)
    return found if found and int(found, 16) else None


def compute_mode(attributes: sysfs_refusals.SysfsAttributes) -> str | None:
    """Return the partition mode: SPX for a whole GPU, or DPX, TPX, QPX or CPX. None without partitions."""
    return attributes.matching("partition", "current_compute_partition", _COMPUTE_MODE)


def is_integrated(attributes: sysfs_refusals.SysfsAttributes) -> bool:
    """Return whether the GPU is part of a CPU: only such GPUs have the sensor of the north bridge's voltage.

    Source: hwmon_attributes_visible in amdgpu_pm.c. Recent kernels except MI300A, which is an accelerator.
    """
    directory = _sensors(attributes, "kind")
    return directory is not None and attributes.tree.exists(f"{attributes.directory}/{directory}/in1_label")


def memory(attributes: sysfs_refusals.SysfsAttributes) -> dict[str, int | None]:
    """Return the memory of a whole GPU."""
    values = {}
    for key, name in (("memory_total_mib", "mem_info_vram_total"), ("memory_used_mib", "mem_info_vram_used")):
        value = attributes.number(key, name, most=_MOST_VRAM)
        values[key] = None if value is None else value // _MIB
    if values["memory_total_mib"] == 0:
        for key in values:
            attributes.refuse(key, "mem_info_vram_total: 0")
        values = dict.fromkeys(values)
    return values


def temperature(attributes: sysfs_refusals.SysfsAttributes) -> int | None:
    directory = _sensors(attributes, "temperature_c")
    if directory is None:
        return None
    labels = {}
    for name in attributes.tree.names(f"{attributes.directory}/{directory}", r"temp[0-9]{1,2}_label"):
        label = attributes.raw("temperature_c", f"{directory}/{name}")
        labels.setdefault(label, name.replace("_label", "_input"))
    for label in _TEMPERATURES:
        if label in labels:
            value = attributes.number("temperature_c", f"{directory}/{labels[label]}", least=-100_000, most=250_000)
            if value is not None:
                return round(value / 1000)
    return None


def power(attributes: sysfs_refusals.SysfsAttributes) -> float | None:
    directory = _sensors(attributes, "power_w")
    for name in _POWERS if directory else ():
        value = attributes.number("power_w", f"{directory}/{name}", most=_MOST_MICROWATTS)
        if value is not None:
            attributes.unread.pop("power_w", None)
            return round(value / 1_000_000, 1)
    return None


def utilization(attributes: sysfs_refusals.SysfsAttributes) -> int | None:
    return attributes.number("utilization_percent", "gpu_busy_percent", most=100)


def firmware(attributes: sysfs_refusals.SysfsAttributes) -> dict[str, str] | None:
    names = attributes.tree.names(f"{attributes.directory}/fw_version", r"[a-z0-9_]{1,32}_fw_version")
    paths = {name[: -len("_fw_version")]: f"fw_version/{name}" for name in names}
    paths["vbios"] = "vbios_version"
    found = {key: attributes.matching("firmware", path, _VERSION) for key, path in paths.items()}
    return {key: value for key, value in found.items() if value is not None} or None


def errors(
    attributes: sysfs_refusals.SysfsAttributes, may_read_counters: bool
) -> tuple[schema.AcceleratorErrors, list[str]]:
    """Return the errors, and why they degrade the GPU. A sum with an unread part is null, but a known error counts."""
    counts = _counters(attributes, may_read_counters)
    pending, failed = _bad_pages(attributes)
    reasons = []
    if counts["ue"]:
        reasons.append(
            "the GPU had uncorrected errors. Check the kernel log for amdgpu RAS messages, and reset the GPU"
        )
    if pending:
        reasons.append("memory pages are pending retirement. Reset the GPU or reboot the host")
    if failed:
        reasons.append("the driver could not retire memory pages. Replace the GPU if this persists after a reboot")
    corrected, uncorrected = (None if _is_unread(attributes) else counts[name] for name in ("ce", "ue"))
    return schema.errors(corrected, uncorrected, pending), reasons


def _is_unread(attributes: sysfs_refusals.SysfsAttributes) -> bool:
    return "errors" in attributes.unread


def _counters(attributes: sysfs_refusals.SysfsAttributes, may_read: bool) -> dict[str, int | None]:
    names = attributes.tree.names(f"{attributes.directory}/ras", r"[a-z0-9_]{1,32}_err_count")
    kinds = ("ue", "ce")
    sums: dict[str, int | None] = dict.fromkeys(kinds)
    if names and not may_read:
        attributes.refuse("errors", _CLEARS)
        return sums
    for name in names:
        text = attributes.raw("errors", f"ras/{name}") or ""
        for kind in kinds:
            match = re.search(rf"^{kind}: ([0-9]{{1,18}})\s*$", text, re.MULTILINE | re.ASCII)
            if match:
                sums[kind] = (sums[kind] or 0) + int(match[1])
            else:
                attributes.refuse("errors", f"ras/{name}: unexpected content {untrusted_text.shown(text)}")
    return sums


def _bad_pages(attributes: sysfs_refusals.SysfsAttributes) -> tuple[bool | None, bool | None]:
    """Return whether pages are pending retirement, and whether a retirement failed."""
    path = f"{attributes.directory}/ras/gpu_vram_bad_pages"
    if not attributes.tree.exists(path):
        return None, None
    reading = attributes.tree.read(path)
    if reading.refusal:
        attributes.refuse("errors.pending", f"ras/gpu_vram_bad_pages: {reading.refusal}")
        return None, None
    flags = re.findall(r"^0x[0-9a-f]+ : 0x[0-9a-f]+ : ([RPF])\s*$", reading.text or "", re.MULTILINE | re.ASCII)
    return "P" in flags, "F" in flags


def _sensors(attributes: sysfs_refusals.SysfsAttributes, key: str) -> str | None:
    """Return the directory of the GPU's own sensors. `key`: what is null if that cannot be read."""
    for name in attributes.tree.names(f"{attributes.directory}/hwmon", r"hwmon[0-9]{1,6}"):
        if attributes.raw(key, f"hwmon/{name}/name") == "amdgpu":
            return f"hwmon/{name}"
    return None
