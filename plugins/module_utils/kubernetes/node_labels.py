# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels of nodes from the facts of hosts, and whether nodes offer the devices that hosts have. Pure functions."""

from __future__ import annotations

import fractions
import json
import math
import re
import typing as t

PREFIX = "gpufleet.github.io/"
# The annotation with the names of the labels that this collection has set.
OWNED = PREFIX + "labels"
# With this label, NVIDIA's device plugin runs on a node without node feature discovery.
PRESENT = "nvidia.com/gpu.present"
_LONGEST = 63
# The resources of the device plugins, by vendor. The first of which a node has devices counts.
_RESOURCES = {
    "nvidia": ("nvidia.com/gpu", "nvidia.com/gpu.shared"),
    "amd": ("amd.com/gpu",),
    "neuron": ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice"),
    "gaudi": ("habana.ai/gaudi",),
}
_MIG = "nvidia.com/mig-"
# ROCm/k8s-device-plugin, cmd/k8s-device-plugin/main.go (ed76468).
_AMD = re.compile(r"amd\.com/(gpu|[a-z]+_nps\d+)")
# kubernetes/kubernetes, apimachinery/pkg/api/resource/suffix.go (1402b859).
_QUANTITY = re.compile(r"(\+?[0-9]{1,20}(?:\.[0-9]{0,20})?)(?:([numkMGTPE]?|[KMGTPE]i)|[eE]\+?([0-9]{1,2}))")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = "KMGTPE"


def label_value(value: t.Any) -> str:
    """Return a text as the value of a label: at most 63 letters, digits, dots, dashes and underscores."""
    text = re.sub(r"[^A-Za-z0-9_.-]+", "-", str(value))[:_LONGEST]
    return text.strip("-_.")


def labels(accelerators: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, str]:
    """Return the labels of a node with these accelerators, as module accelerator_facts returns them."""
    found: dict[str, str] = {}
    for vendor in dict.fromkeys(str(one["vendor"]) for one in accelerators):
        everything = [one for one in accelerators if one["vendor"] == vendor]
        devices = [one for one in everything if not _parent(one)]
        models = sorted({label_value(one["model"]) for one in devices or everything if one.get("model")})
        # AMD's GPUs with partitions are no devices themselves.
        hidden = {_parent(one) for one in everything} - {None, *(one.get("stable_id") for one in devices)}
        found[f"{PREFIX}{vendor}.count"] = str(len(devices) + (len(hidden) if vendor == "amd" else 0))
        if models:
            found[f"{PREFIX}{vendor}.model"] = models[0] if len(models) == 1 else "mixed"
        memory = {one.get("memory_total_mib") for one in devices}
        if len(memory) == 1 and None not in memory and not (vendor == "amd" and hidden):
            found[f"{PREFIX}{vendor}.memory-mib"] = str(memory.pop())
        if vendor == "nvidia":
            found[PRESENT] = "true"
    return found


def patches(
    nodes: t.Iterable[t.Mapping[str, t.Any]], hosts: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]] | None]
) -> dict[str, t.Any]:
    """Return the patches of nodes by `name`, and `missing`: the names of hosts that are no nodes.

    `hosts`: the accelerators by the name of the node; None removes all labels. A label of somebody else stays, and a
    label that this collection has set and that no longer applies is removed.
    """
    known = {node["metadata"]["name"]: node["metadata"] for node in nodes}
    result = []
    for name, accelerators in hosts.items():
        metadata = known.get(name)
        if metadata is None:
            continue
        now, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        owned = _owned(annotations.get(OWNED))
        wanted = {} if accelerators is None else labels(accelerators)
        wanted = {
            key: value for key, value in wanted.items() if key not in now or key in owned or key.startswith(PREFIX)
        }
        changed: dict[str, str | None] = {key: value for key, value in wanted.items() if now.get(key) != value}
        changed |= {key: None for key in sorted(owned - set(wanted)) if key in now}
        record = json.dumps(sorted(wanted)) if wanted else None
        if changed or annotations.get(OWNED) != record:
            result.append({"name": name, "labels": changed, "annotations": {OWNED: record}})
    return {"patches": result, "missing": sorted(set(hosts) - set(known))}


def _parent(device: t.Mapping[str, t.Any]) -> str | None:
    """Return the GPU that a partition belongs to, None for a whole device."""
    return (device.get("partition") or {}).get("parent")


def _owned(text: str | None) -> set[str]:
    try:
        names = json.loads(text or "[]")
    except ValueError:
        return set()
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def shortages(
    nodes: t.Iterable[t.Mapping[str, t.Any]],
    hosts: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]],
    vendors: t.Collection[str],
    replicas: int = 1,
) -> list[str]:
    """Compare what nodes offer with what hosts have, and return a sentence for each difference.

    `vendors`: those whose plugin runs in the cluster. `replicas`: how many pods share a GPU of NVIDIA.
    """
    known = {node["metadata"]["name"]: node for node in nodes}
    found = []
    for name, accelerators in hosts.items():
        node = known.get(name)
        if node is None:
            found.append(f"{name} is no node of the cluster. Set gpu_kubernetes_node_name of the host to its name.")
            continue
        offered = (node.get("status") or {}).get("allocatable") or {}
        for vendor in vendors:
            devices = [one for one in accelerators if one["vendor"] == vendor]
            text = _difference(vendor, devices, offered, replicas)
            found += [f"{name}: {text}"] if text else []
    return found


def _difference(
    vendor: str, devices: t.Sequence[t.Mapping[str, t.Any]], offered: t.Mapping[str, t.Any], replicas: int
) -> str | None:
    # A resource that a plugin no longer offers stays with 0.
    known = [one for one in _RESOURCES[vendor] if one in offered] or [_RESOURCES[vendor][0]]
    resource = next((one for one in known if quantity(offered.get(one))), known[0])
    number = quantity(offered.get(resource))
    whole = [one for one in devices if not _parent(one)]
    partitions = [one for one in devices if _parent(one)]
    factor = replicas if vendor == "nvidia" else 1
    if vendor == "nvidia" and partitions:
        # Strategy single offers MIG devices as GPUs, mixed as resources of their own, and none only whole GPUs.
        parents = {_parent(one) for one in partitions}
        unpartitioned = [one for one in whole if one["stable_id"] not in parents]
        number += sum(quantity(value) for key, value in offered.items() if key.startswith(_MIG))
        if number in (factor * (len(unpartitioned) + len(partitions)), factor * len(whole)):
            return None
        return f"the host has {len(whole)} GPUs with {len(partitions)} MIG devices, but the node offers {number}."
    if vendor == "amd":
        # Each partition is a device. With strategy mixed, its mode is the name of the resource.
        number = sum(quantity(value) for key, value in offered.items() if _AMD.fullmatch(key))
        whole = list(devices)
    expected = len(whole) * factor
    if number == expected:
        return None
    hint = "Read the log of the plugin's pod on this node" if resource in offered else "No plugin registered it"
    return (
        f"the host has {len(whole)} devices of {vendor}, but the node offers {number} of {resource}, not {expected}. "
        f"{hint}."
    )


def quantity(value: t.Any) -> int:
    """Return a quantity of Kubernetes (8, 1k, 2Ki, 1e3), rounded up, and 0 for what is none."""
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        return 0
    number, suffix, exponent = match.groups()
    if suffix and suffix.endswith("i"):
        return math.ceil(fractions.Fraction(number) * 1024 ** (_BINARY.index(suffix[0]) + 1))
    power = int(exponent) if exponent else _DECIMAL[suffix]
    return math.ceil(fractions.Fraction(number) * fractions.Fraction(10) ** power)
