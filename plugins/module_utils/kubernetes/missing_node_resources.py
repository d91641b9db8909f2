# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the nodes of a cluster offer the devices that their hosts have. Pure functions."""

from __future__ import annotations

import fractions
import math
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_labels import parent

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
    whole = [one for one in devices if not parent(one)]
    partitions = [one for one in devices if parent(one)]
    factor = replicas if vendor == "nvidia" else 1
    if vendor == "nvidia" and partitions:
        # Strategy single offers MIG devices as GPUs, mixed as resources of their own, and none only whole GPUs.
        parents = {parent(one) for one in partitions}
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
