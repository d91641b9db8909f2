# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which labels this module sets on a container, with their values, and which labels of a container count as its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import name_of
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Assignment
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import NONE
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Docker, Podman
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError

LABEL_GPUS = "gpufleet.gpus"


LABEL_ISOLATION = "gpufleet.isolation"


LABEL_CAPABILITIES = "gpufleet.capabilities"


LABEL_EXCLUSIVE = "gpufleet.exclusive"


LABEL_FEATURES = "gpufleet.features"


# The name of the container. It proves that the labels are not those of an image made from another container.
LABEL_CONTAINER = "gpufleet.container"


_ACCESS_LABELS = (LABEL_GPUS, LABEL_ISOLATION, LABEL_CAPABILITIES, LABEL_EXCLUSIVE)


LABELS = (*_ACCESS_LABELS, LABEL_FEATURES, LABEL_CONTAINER)


# A key that this module adds to an inspection result: the labels of the container's image.
IMAGE_LABELS = "gpufleet_image_labels"


def labels_to_set(name: str, assignment: Assignment) -> dict[str, str]:
    """Return the labels of the container `name`. All are set, so that none of its image counts."""
    has_gpus = bool(assignment.units)
    return {
        LABEL_GPUS: ",".join(sorted(assignment.uuids)),
        LABEL_ISOLATION: assignment.isolation if has_gpus else NONE,
        LABEL_CAPABILITIES: ",".join(sorted(assignment.capabilities or ())) if has_gpus else "",
        LABEL_EXCLUSIVE: str(assignment.exclusive).lower(),
        LABEL_FEATURES: assignment.features,
        LABEL_CONTAINER: name,
    }


def labels_of(container: Mapping[str, Any]) -> Mapping[str, str]:
    return (container.get("Config") or {}).get("Labels") or {}


def are_labels_proven(container: Mapping[str, Any]) -> bool:
    """Return whether the container was created with all labels of this module, which replace those of its image."""
    return labels_of(container).get(LABEL_CONTAINER) == name_of(container)


def own_labels(container: Mapping[str, Any], image_labels: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the labels that this module set on the container.

    An engine shows the labels of the image as those of the container. A renamed container does not prove its labels, so
    a label that the image has, too, says nothing.
    """
    labels = {name: value for name, value in labels_of(container).items() if name in LABELS}
    if are_labels_proven(container):
        return labels
    inherited = image_labels or container.get(IMAGE_LABELS) or {}
    labels = {name: value for name, value in labels.items() if inherited.get(name) != value}
    if not {LABEL_GPUS, LABEL_ISOLATION} <= set(labels):
        # The module sets them together.
        labels = {name: value for name, value in labels.items() if name not in _ACCESS_LABELS}
    return labels


def labeled_gpus(container: Mapping[str, Any]) -> frozenset[str]:
    """Return the GPUs in the label that this module sets."""
    return frozenset(uuid for uuid in own_labels(container).get(LABEL_GPUS, "").split(",") if uuid)


def is_exclusive(container: Mapping[str, Any]) -> bool:
    """Return whether this module assigned the GPUs exclusively."""
    return own_labels(container).get(LABEL_EXCLUSIVE) == "true"


def with_image_labels(engine: Docker | Podman, container: dict) -> dict:
    """Return the container with the labels of its image, if it needs them to tell its own labels."""
    if are_labels_proven(container) or LABEL_EXCLUSIVE not in labels_of(container):
        return container
    try:
        image = engine.image(str(container.get("Image") or ""))
    except EngineError:
        image = None
    return {**container, IMAGE_LABELS: image.labels if image else {}}
