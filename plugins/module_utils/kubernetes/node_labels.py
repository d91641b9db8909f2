# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels of nodes from the facts of hosts. Pure functions."""

from __future__ import annotations

import json
import re
import typing as t

PREFIX = "gpufleet.github.io/"
# The annotation with the names of the labels that this collection has set.
OWNED = PREFIX + "labels"
# With this label, NVIDIA's device plugin runs on a node without node feature discovery.
PRESENT = "nvidia.com/gpu.present"
_LONGEST = 63


def label_value(value: t.Any) -> str:
    """Return a text as the value of a label: at most 63 letters, digits, dots, dashes and underscores."""
    text = re.sub(r"[^A-Za-z0-9_.-]+", "-", str(value))[:_LONGEST]
    return text.strip("-_.")


def labels(accelerators: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, str]:
    """Return the labels of a node with these accelerators, as module accelerator_facts returns them."""
    found: dict[str, str] = {}
    for vendor in dict.fromkeys(str(one["vendor"]) for one in accelerators):
        everything = [one for one in accelerators if one["vendor"] == vendor]
        devices = [one for one in everything if not parent(one)]
        models = sorted({label_value(one["model"]) for one in devices or everything if one.get("model")})
        # AMD's GPUs with partitions are no devices themselves.
        hidden = {parent(one) for one in everything} - {None, *(one.get("stable_id") for one in devices)}
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


def parent(device: t.Mapping[str, t.Any]) -> str | None:
    """Return the GPU that a partition belongs to, None for a whole device."""
    return (device.get("partition") or {}).get("parent")


def _owned(text: str | None) -> set[str]:
    try:
        names = json.loads(text or "[]")
    except ValueError:
        return set()
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
