# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods of a node must end before a disruption, and which of them may be evicted. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown

# `ignore`: the pod may stay. `evict`: the pod may be evicted. `wait`: the pod must end, and nobody may evict it.
IGNORE, EVICT, WAIT = "ignore", "evict", "wait"
# The resources of the device plugins of NVIDIA, AMD (with strategy mixed, the modes of its partitions), AWS and Intel.
_RESOURCES = re.compile(
    r"nvidia\.com/|amd\.com/(gpu|[a-z]+_nps\d)|aws\.amazon\.com/neuron|habana\.ai/gaudi|gpu\.intel\.com/"
)
_RUNTIME_CLASSES = {"nvidia", "nvidia-cdi", "nvidia-legacy", "amd", "habana"}
_DEVICES = re.compile(r"/dev(/(nvidia|dri|kfd|neuron|accel|hl|habana).*)?/?")
_NO_GPU = ("", "void", "none")
_MIRROR = "kubernetes.io/config.mirror"
_FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class EvictionRules:
    """What the user allows. `gpus_only`: only pods that hold accelerators must end.

    `ignore_daemonsets`: pods of DaemonSets may stay even if they hold accelerators.
    """

    delete_emptydir: bool = False
    delete_unmanaged: bool = False
    gpus_only: bool = False
    ignore_daemonsets: bool = False


@dataclass(frozen=True)
class PodVerdict:
    """What happens to a pod, and why it cannot be evicted."""

    action: str
    title: str
    why: str = ""

    def text(self) -> str:
        """Return the pod for a list of work."""
        return f"pod {self.title}" + (f" ({self.why})" if self.why else "")


def verdict(pod: Mapping[str, Any], rules: EvictionRules) -> PodVerdict:
    """Decide about one pod of the node."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    title = f"{shown(metadata['namespace'])}/{shown(metadata['name'])}"
    holds = holds_accelerators(pod)
    owner = _controller(metadata)
    if (pod.get("status") or {}).get("phase") in _FINISHED:
        return PodVerdict(IGNORE, title)
    if _MIRROR in (metadata.get("annotations") or {}):
        why = "a static pod with accelerators: remove its manifest from the node"
        return PodVerdict(WAIT if holds else IGNORE, title, why if holds else "")
    if owner.get("kind") == "DaemonSet":
        why = (
            f"DaemonSet {shown(str(owner.get('name')))} holds accelerators and would start the pod again: exclude the "
            "node with a label of the option labels, or set ignore_daemonsets if the node reboots"
        )
        is_work = holds and not rules.ignore_daemonsets
        return PodVerdict(WAIT if is_work else IGNORE, title, why if is_work else "")
    if rules.gpus_only and not holds:
        return PodVerdict(IGNORE, title)
    if metadata.get("deletionTimestamp"):
        return PodVerdict(WAIT, title, "ends")
    if not rules.delete_emptydir and any("emptyDir" in volume for volume in spec.get("volumes") or []):
        return PodVerdict(WAIT, title, "an eviction would delete its emptyDir data, and delete_emptydir is false")
    if not rules.delete_unmanaged and not owner:
        return PodVerdict(WAIT, title, "no controller would start it again, and delete_unmanaged is false")
    return PodVerdict(EVICT, title)


def holds_accelerators(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod can have an accelerator open: by a resource, a claim, its runtime, or the device nodes."""
    spec = pod.get("spec") or {}
    paths = [str((volume.get("hostPath") or {}).get("path") or "") for volume in spec.get("volumes") or []]
    return bool(
        spec.get("resourceClaims")
        or spec.get("runtimeClassName") in _RUNTIME_CLASSES
        or any(path and _DEVICES.fullmatch(path) for path in paths)
        or any(_has_accelerator(container) for container in _containers(spec))
    )


def _containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        yield from spec.get(kind) or []


def _has_accelerator(container: Mapping[str, Any]) -> bool:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    visible = next(
        (one.get("value") or "" for one in container.get("env") or [] if one.get("name") == "NVIDIA_VISIBLE_DEVICES"),
        "",
    )
    return visible not in _NO_GPU or any(
        _RESOURCES.match(name) and str(number) != "0" for name, number in asked.items()
    )


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((owner for owner in metadata.get("ownerReferences") or [] if owner.get("controller")), {})
