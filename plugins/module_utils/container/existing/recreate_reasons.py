# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why an existing container must be recreated although the engine's module finds no difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import access_as_engine_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import describe_unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import (
    container_labels,
    driver_volume_mounts,
    inspected_container,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.existing_container import (
    ExistingContainer,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import AssignedGpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access, Assignment
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import VOLUME
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Image, environment


def recreate_reasons(existing: ExistingContainer, assignment: Assignment, image: Image | None) -> list[str]:
    """List the reasons to recreate the container that the engine's module does not detect."""
    if not existing.exists:
        return []
    requested_nodes = _nodes(existing, assignment.access.devices)
    extra_devices = {
        device
        for device in existing.user_devices()
        if requested_nodes.keys().isdisjoint(existing.accelerator.nodes(device))
    }
    assigned = existing.assigned_gpus(extra_devices)
    reasons = []
    if existing.engine.name == "podman" and image is not None and not existing.uses_image(image):
        # Podman's module compares only the name of the image.
        reasons.append(f"image: {_short_id(existing.inspected.get('Image'))} → {_short_id(image.id)}")
    features = existing.labels().get(container_labels.LABEL_FEATURES, "")
    if features != assignment.features:
        # The engine's module does not remove the device nodes of a feature.
        reasons.append(f"features: {features or 'none'} → {assignment.features or 'none'}")
    removed, added = assigned.uuids - set(assignment.uuids), set(assignment.uuids) - assigned.uuids
    inventory = existing.accelerator.inventory
    reasons += [f"GPU removed: {describe_unit(uuid, inventory)}" for uuid in sorted(removed)]
    reasons += [f"GPU added: {describe_unit(uuid, inventory)}" for uuid in sorted(added)]
    if removed or added or not assignment.units:
        return reasons
    if assigned.isolation != assignment.isolation:
        return [*reasons, f"isolation: {assigned.isolation} → {assignment.isolation}"]
    exclusive = existing.is_exclusive()
    if exclusive != assignment.exclusive:
        reasons.append(f"exclusive: {str(exclusive).lower()} → {str(assignment.exclusive).lower()}")
    capabilities = _capabilities(existing, assigned)
    if None not in (capabilities, assignment.capabilities) and set(capabilities) != set(assignment.capabilities):
        reasons.append(f"capabilities: {_join(capabilities)} → {_join(assignment.capabilities)}")
    reasons += _missing_mounts(existing, assignment.access)
    # Docker's module ignores variables that are no longer requested.
    reasons += [
        f"{access_as_engine_options.LIBRARY_PATH}: {directory} is no longer required"
        for directory, is_needed in assignment.access.search_first.items()
        if not is_needed and _has_our_directory(existing, directory, image)
    ]
    if requested_nodes:
        reasons += _node_differences(existing, requested_nodes, extra_devices)
    return reasons


def _missing_mounts(existing: ExistingContainer, access: Access) -> list[str]:
    volumes = [mount for mount in access.volumes if not driver_volume_mounts.has_mount(existing.inspected, mount)]
    if volumes or existing.is_from_other_tool():
        return [f"driver volume: {mount} is not mounted" for mount in volumes]
    files = driver_volume_mounts.missing_files(existing.inspected, access.file_mounts)
    return [f"driver volume: {len(files)} of its files are not mounted, such as {files[0]}"] if files else []


def _has_our_directory(existing: ExistingContainer, directory: str, image: Image | None) -> bool:
    """Return whether this module put a directory of the image into the container's LD_LIBRARY_PATH."""
    name = access_as_engine_options.LIBRARY_PATH
    present = environment((existing.inspected.get("Config") or {}).get("Env")).get(name, "").split(":")
    given = {**(image.env if image else {}), **(existing.user_options.get("env") or {})}.get(name, "").split(":")
    return not existing.is_from_other_tool() and directory in present and directory not in given


def _capabilities(existing: ExistingContainer, assigned: AssignedGpus) -> list[str] | None:
    """Return the container's capabilities, or None if the vendor or the isolation has none."""
    label = existing.labels().get(container_labels.LABEL_CAPABILITIES)
    if assigned.isolation == VOLUME and label:
        return [name for name in label.split(",") if name]
    return None if assigned.capabilities is None else list(assigned.capabilities)


def _node_differences(
    existing: ExistingContainer, requested: Mapping[str, str | None], extra_devices: set[str]
) -> list[str]:
    differences = []
    if existing.engine.name == "docker":
        # Docker's module splits device options at colons, so it cannot express these paths.
        host = existing.inspected.get("HostConfig") or {}
        paths = [device.get("PathOnHost") or "" for device in host.get("Devices") or ()]
        differences += [f"device node with an alias path: {path}" for path in paths if ":" in path]
    extra = _nodes(existing, extra_devices)
    present = inspected_container.gpu_nodes(existing.inspected, existing.accelerator.nodes)
    required = {node for node, gives in requested.items() if gives != inspected_container.OPTIONAL}
    missing = required - present.keys() - extra.keys()
    unexpected = {
        node
        for node, gives in present.items()
        if gives == inspected_container.ACCESS and node not in requested and node not in extra
    }
    differences += [f"device node missing: {node}" for node in sorted(missing)]
    return differences + [f"unexpected device node: {node}" for node in sorted(unexpected)]


def _nodes(existing: ExistingContainer, paths: Any) -> dict[str, str | None]:
    return {node: gives for path in paths for node, gives in existing.accelerator.nodes(path).items()}


def _join(names: Any) -> str:
    return ", ".join(sorted(names)) or "none"


def _short_id(image_id: Any) -> str:
    return str(image_id or "none").rpartition(":")[2][:12]
