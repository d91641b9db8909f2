# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs that the kubelet gave to pods, from the checkpoint of its device manager.

The checkpoint: kubernetes/kubernetes, pkg/kubelet/cm/devicemanager/checkpoint. Until Kubernetes 1.19, the devices of a
container are a list. Later, they are a list for each NUMA node. The kubelet removes the entries of ended pods only when
it gives a device to another pod, so an entry is valid only while its pod runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text

# The directory does not depend on the option --root-dir of the kubelet.
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
# The directories are named NAMESPACE_POD_UID.
POD_LOGS = "/var/log/pods"
# GPUs, MIG devices with strategy mixed, and GPUs shared by time-slicing or MPS under another name.
NVIDIA_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-")
# The device plugin appends the number of the replica to a shared device (NVIDIA/k8s-device-plugin, internal/rm).
_REPLICA = "::"


@dataclass(frozen=True)
class PodDevices:
    """The GPUs of a pod. `devices` are UUIDs or indexes, `shared` are those that several pods can get."""

    uid: str
    name: str
    devices: frozenset[str]
    shared: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Kubelet:
    """The GPUs of pods, and the devices that the kubelet offers to pods."""

    pods: tuple[PodDevices, ...] = ()
    offered: frozenset[str] = field(default_factory=frozenset)


def read(root: str, resources: tuple[str, ...] = NVIDIA_RESOURCES) -> Kubelet:
    """Read the checkpoint. `resources`: the beginnings of the names of the vendor's resources.

    Without a kubelet or with an invalid file, there are no pods and no offered devices.
    """
    try:
        content = json.loads(read_text(root, CHECKPOINT) or "{}")
    except (ValueError, RecursionError):
        return Kubelet()
    data = content.get("Data") if isinstance(content, Mapping) else None
    if not isinstance(data, Mapping):
        return Kubelet()
    names = _pod_names(root)
    found: dict[str, list[str]] = {}
    for uid, device in _entries(data.get("PodDeviceEntries"), resources):
        found.setdefault(uid, []).append(device)
    registered = data.get("RegisteredDevices")
    return Kubelet(
        tuple(
            PodDevices(
                uid,
                names.get(uid, uid),
                frozenset(_without_replica(device) for device in devices),
                frozenset(_without_replica(device) for device in devices if _REPLICA in device),
            )
            for uid, devices in sorted(found.items())
        ),
        frozenset(
            _without_replica(device)
            for resource, devices in (registered.items() if isinstance(registered, Mapping) else ())
            if str(resource).startswith(resources)
            for device in _strings(devices)
        ),
    )


def _entries(entries: Any, resources: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or not str(entry.get("ResourceName")).startswith(resources):
            continue
        devices = entry.get("DeviceIDs")
        lists = devices.values() if isinstance(devices, Mapping) else [devices]
        for device in (device for one in lists for device in _strings(one)):
            yield str(entry.get("PodUID")), device


def _strings(values: Any) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list) else []


def _without_replica(device: str) -> str:
    return device.partition(_REPLICA)[0]


def _pod_names(root: str) -> dict[str, str]:
    """Return "namespace/name" by the UID of each pod."""
    parts = [name.split("_") for name in listing(root, POD_LOGS)]
    return {part[2]: f"{part[0]}/{part[1]}" for part in parts if len(part) == 3}
