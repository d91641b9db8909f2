# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name of a GPU model as a Slurm type, for example gpu:h100:2, and which types of the user are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import GAUDI

# Words that do not tell models apart: vendors, product lines, form factors, sizes of memory.
_DROPPED = re.compile(
    r"(?:nvidia|amd|intel|aws|habana|habanalabs|tesla|geforce|quadro|instinct|radeon|arc|data|center|gpu|graphics|device|ac"
    r"|sxm\d*|pcie|nvl|hbm\d*e?|oam|hpu|generation|edition|server|workstation|max-q|tm|r|\d+gb?|\d+c|\(.*\))",
)
# Generations that are part of a name only where an older model has the same number.
_GENERATIONS = ("ada", "blackwell")
_NOT_ALLOWED = re.compile(r"[^a-z0-9.-]+")
UNKNOWN = "unknown"
# The name of the generic resource in gres.conf and slurm.conf.
NAME = "gpu"


def of_device(device: Mapping[str, Any], given: Mapping[str, str] | None) -> str:
    """Return the type of a device or partition. `given`: the types that the user chose, by model or generation."""
    # Gaudi's model is the number of the card.
    names = ("generation", "model") if device["vendor"] == GAUDI else ("model", "generation")
    found = next((given[device[name]] for name in names if device[name] in given), None) if given else None
    found = found or type_of(device[names[0]] or device[names[1]])
    partition = device["partition"]
    if partition["parent"] is not None and partition["mode"]:
        return partition_type(found, partition["mode"])
    return found


def type_of(model: str | None) -> str:
    """Return the type of a model."""
    words = re.split(r"[\s/_]+|-(?=sxm|pcie|nvl|\d+gb|\d+c)", re.sub(r"\((?:r|tm)\)", "", (model or "").lower()))
    kept = [word for word in words if word and not _DROPPED.fullmatch(word)]
    # "RTX PRO 6000 Blackwell" needs no generation, "RTX 6000 Ada" does.
    if "pro" in kept:
        kept = [word for word in kept if word not in _GENERATIONS]
    return _NOT_ALLOWED.sub("_", "_".join(kept)).strip("_.-") or UNKNOWN


def partition_type(parent: str, profile: str) -> str:
    """Return the type of a MIG device or of another partition: h100, 1g.10gb+me → h100_1g.10gb_me."""
    return f"{parent}_{_NOT_ALLOWED.sub('_', profile.lower()).strip('_.-')}"


def unknown_models(devices: Iterable[Mapping[str, Any]], types: Mapping[str, str]) -> str:
    """Return which models no device has. Variables of a fleet may also name the models of other hosts.

    A host all of whose models are named needs none of the other names.
    """
    devices = list(devices)
    names = [{device["model"], device["generation"]} - {None} for device in devices]
    strange = sorted(set(types).difference(*names))
    if not strange or all(one & set(types) for one in names):
        return ""
    here = " and ".join(
        f"the {kind}s {', '.join(map(repr, found))}"
        for kind in ("model", "generation")
        if (found := sorted({device[kind] for device in devices} - {None}))
    )
    return (
        f"gpu_slurm_node_types names {', '.join(map(repr, strange))}, but this host has {here or 'unknown models'}. "
        "Correct the name, or also set the types of all devices of this host."
    )


def unfit_for_detection(detect: str, types: Mapping[str, str]) -> str:
    """Return which types do not fit. A detected device has its own name, of which the type must be a part."""
    wrong = [
        f"{kind} for {model!r}"
        for model, kind in types.items()
        if kind.lower() not in re.sub(r"\s+", "_", model.lower())
    ]
    if not wrong:
        return ""
    return (
        f"gpu_slurm_node_types has {', '.join(wrong)}. With gpu_slurm_node_detect={detect}, a type must be a "
        "part of the model's name in lower case, with '_' for spaces. Change the type, or set gpu_slurm_node_detect to "
        "off."
    )
