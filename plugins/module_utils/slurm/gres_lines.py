# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of gres.conf and the Gres of the node line, for the accelerators of a host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import untrusted_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import (
    AMD,
    INTEL,
    NVIDIA,
    VENDORS,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import gpu_types

# The role of the device nodes that belong to one device, and the flag for the environment variable that Slurm sets:
# gres.conf(5). Slurm knows no variable for the other vendors; their runtimes see what the cgroup allows.
_ROLES = {NVIDIA: "device", AMD: "render", INTEL: "render"}
_FLAGS = {NVIDIA: "nvidia_gpu_env", AMD: "amd_gpu_env", INTEL: "intel_gpu_env"}
_NO_VARIABLES = "no_gpu_env"
_NUMBERED = re.compile(r"(.*?)(\d+)")


@dataclass(frozen=True)
class SlurmGres:
    """One device that Slurm can give to a job. `files`: its device nodes; several only for a MIG device."""

    kind: str
    files: tuple[str, ...]
    flags: str
    stable_id: str = ""
    vendor: str = ""


@dataclass(frozen=True)
class SlurmSkipped:
    """A device that Slurm cannot give to a job, and why."""

    device: str
    reason: str


def select(
    devices: Sequence[Mapping[str, Any]], types: Mapping[str, str] | None = None
) -> tuple[list[SlurmGres], list[SlurmSkipped]]:
    """Return the devices in the order in which Slurm numbers them, by vendor and PCI address, and those left out.

    A GPU that is divided into partitions is represented by these.
    """
    parents = {one["partition"]["parent"] for one in devices} - {None}
    usable: list[tuple[tuple, SlurmGres]] = []
    skipped: list[SlurmSkipped] = []
    for number, device in enumerate(devices):
        if device["stable_id"] in parents and device["partition"]["parent"] is None:
            continue
        reason = _unusable(device)
        if reason:
            skipped.append(SlurmSkipped(str(device["stable_id"] or device["pci_address"] or device["model"]), reason))
            continue
        order = (VENDORS.index(device["vendor"]), device["pci_address"] or "", number)
        usable.append((order, _gres(device, types)))
    return [gres for _order, gres in sorted(usable, key=lambda one: one[0])], skipped


def _unusable(device: Mapping[str, Any]) -> str | None:
    health = device["health"]
    if health["state"] == schema.LOST:
        return "; ".join(health["reasons"]) or "the device is lost"
    if device["partition"]["mode"] == "mig" and device["partition"]["parent"] is None:
        return "MIG is enabled, but the GPU has no MIG devices"
    files = _files(device)
    if not files:
        return "no device node is known. The driver is not loaded, or it does not drive the device"
    wrong = [path for path in files if not untrusted_text.is_like(untrusted_text.PATH, path)]
    if wrong:
        return f"the name of device node {untrusted_text.shown(wrong[0])} has characters that gres.conf cannot contain"
    if device["vendor"] == NVIDIA and device["partition"]["parent"] is not None and len(files) < 2:
        return "the device nodes below /dev/nvidia-caps of this MIG device are not known"
    return None


def _files(device: Mapping[str, Any]) -> tuple[str, ...]:
    role = _ROLES.get(device["vendor"], "device")
    return tuple(node["path"] for node in device["nodes"] or () if node["role"] == role)


def _gres(device: Mapping[str, Any], types: Mapping[str, str] | None) -> SlurmGres:
    kind = gpu_types.of_device(device, types)
    flags = _FLAGS.get(device["vendor"], _NO_VARIABLES)
    return SlurmGres(kind, _files(device), flags, device["stable_id"] or "", device["vendor"])


def lines(node: str, devices: Sequence[SlurmGres], *, detection_off: bool = False) -> list[str]:
    """Return explicit lines. `detection_off`: another line turns AutoDetect on for all nodes."""
    start = f"NodeName={node} " + ("AutoDetect=off " if detection_off else "")
    return [
        f"{start}Name={gpu_types.NAME} Type={group[0].kind} {_file_option(group)} Flags={group[0].flags}"
        for group in _groups(devices)
    ]


def node_gres(devices: Iterable[SlurmGres]) -> str:
    """Return the value of Gres in the node line: gpu:h100:8,gpu:t4:1. Empty for a host without devices."""
    counts: dict[str, int] = {}
    for device in devices:
        counts[device.kind] = counts.get(device.kind, 0) + 1
    return ",".join(f"{gpu_types.NAME}:{kind}:{count}" for kind, count in counts.items())


def _groups(devices: Sequence[SlurmGres]) -> list[list[SlurmGres]]:
    """Return consecutive devices that one line can describe: one type, and nodes with consecutive numbers."""
    groups: list[list[SlurmGres]] = []
    for device in devices:
        last = groups[-1][-1] if groups else None
        if last and (last.kind, last.flags) == (device.kind, device.flags) and _follows(last, device):
            groups[-1].append(device)
        else:
            groups.append([device])
    return groups


def _follows(one: SlurmGres, other: SlurmGres) -> bool:
    if len(one.files) > 1 or len(other.files) > 1:
        return False
    first, second = _NUMBERED.fullmatch(one.files[0]), _NUMBERED.fullmatch(other.files[0])
    if not first or not second or first.group(1) != second.group(1):
        return False
    return int(second.group(2)) == int(first.group(2)) + 1


def _file_option(group: Sequence[SlurmGres]) -> str:
    if len(group[0].files) > 1:
        return f"MultipleFiles={','.join(group[0].files)}"
    path = group[0].files[0]
    if len(group) == 1:
        return f"File={path}"
    name = path.rstrip("0123456789")
    return f"File={name}[{path[len(name) :]}-{group[-1].files[0][len(name) :]}]"
