# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the options of the engine's module are written so that it does not recreate an unchanged container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import (
    access_as_engine_options,
    device_node_groups,
    engine_module_options,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import (
    container_labels,
    driver_volume_mounts,
    inspected_container,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.existing_container import (
    ExistingContainer,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access, Assignment
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import CDI, RUNTIME, VOLUME
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Image, environment

# Podman turns its word for the groups of the user into this annotation of crun.
_KEPT_GROUPS = "run.oci.keep_original_groups"


def module_arguments(
    existing: ExistingContainer,
    assignment: Assignment,
    params: Mapping[str, Any],
    image: Image | None,
    *,
    recreate: bool,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the options of the engine's module, and the complete options if these lack labels or variables.

    Engines cannot change labels and variables, so an unchanged container keeps its own. If the engine's module
    finds another difference, it has to recreate the container with the complete options.
    """

    def options(access: Access, labels: Mapping[str, str]) -> dict[str, Any]:
        return engine_module_options.module_arguments(
            existing.engine.name,
            existing.user_options,
            access,
            name=params["name"],
            image=params["image"],
            state=params["state"],
            labels=labels,
            image_env=image.env if image else {},
            kept_requests=() if recreate else existing.device_requests,
        )

    labels, kept = container_labels.labels_to_set(params["name"], assignment), existing.gpufleet_labels
    complete = options(assignment.access, labels)
    if recreate or not existing.uses_image(image):
        return complete, None
    arguments = keep_groups(existing, options(keep_notation(existing, assignment.access), kept), assignment.access)
    return arguments, complete if kept != labels or _lacks_guards(existing, assignment.access) else None


def keep_notation(existing: ExistingContainer, access: Access) -> Access:
    """Write the access in the notation that created the container.

    The engine's module compares options literally and would recreate the container for another notation.
    """
    present = environment((existing.inspected.get("Config") or {}).get("Env"))
    # The container gets no more GPUs without these variables, else it would be recreated.
    guards = {name: present.get(name) for name in access.guards}
    env = {name: guards.get(name, value) for name, value in access.env.items()}
    access = replace(access, env={name: value for name, value in env.items() if value is not None})
    devices = tuple(
        inspected_container.gpu_devices_as_written(
            existing.inspected, existing.accelerator.nodes, existing.user_devices()
        )
    )
    if access.isolation == CDI:
        return replace(access, cdi_devices=devices if existing.engine.name == "podman" else access.cdi_devices)
    if access.isolation == VOLUME and existing.is_from_other_tool():
        # The other tool has its own way to make the loader find the libraries of the volume. The engine's module
        # may recreate the container for another option, and it must still find them then.
        files = driver_volume_mounts.present_files(existing.inspected, access.file_mounts)
        env = {**access.env, **_library_variables(existing, access)}
        access = replace(access, file_mounts=files, search_last={}, env=env)
    elif access.isolation == VOLUME:
        # A container without the option `capabilities` keeps the files of its earlier capabilities.
        access = replace(access, file_mounts=driver_volume_mounts.kept_files(existing.inspected, access.file_mounts))
    if access.isolation == RUNTIME:
        return replace(access, env={name: present.get(name) or value for name, value in access.env.items()})
    return replace(access, devices=devices) if access.devices else access


def keep_groups(existing: ExistingContainer, options: dict[str, Any], access: Access) -> dict[str, Any]:
    """Return the options of the engine's module, which then does not recreate the container for missing groups.

    The container perhaps opens its nodes in another way. Its next recreation adds the groups. Podman's module
    cannot ignore a difference, so it gets no groups.
    """
    host = existing.inspected.get("HostConfig") or {}
    present = {str(group) for group in host.get("GroupAdd") or ()}
    # Podman does not list its word for the groups of the user among the groups.
    annotations = {
        **((existing.inspected.get("Config") or {}).get("Annotations") or {}),
        **(host.get("Annotations") or {}),
    }
    if annotations.get(_KEPT_GROUPS) == "1":
        present.add(device_node_groups.KEEP_GROUPS)
    missing = {str(gid) for gid in access.groups} - present
    if not missing:
        return options
    if existing.engine.name == "docker":
        return {**options, "comparisons": {**(options.get("comparisons") or {}), "groups": "ignore"}}
    given = existing.user_options.get("group_add") or ()
    groups = [group for group in options["group_add"] if group in given or group not in missing]
    return {**options, "group_add": groups} if groups else {k: v for k, v in options.items() if k != "group_add"}


def _lacks_guards(existing: ExistingContainer, access: Access) -> bool:
    """Return whether the container lacks variables that keep other GPUs away from it."""
    present = environment((existing.inspected.get("Config") or {}).get("Env"))
    return any(present.get(name) != access.env[name] for name in access.guards)


def _library_variables(existing: ExistingContainer, access: Access) -> dict[str, str]:
    """Return the variables of the container that name directories of the driver volume and that nobody replaces."""
    env = environment((existing.inspected.get("Config") or {}).get("Env"))
    given = existing.user_options.get("env") or {}
    targets = [volume.split(":")[1] for volume in access.volumes]
    return {
        name: env[name]
        for name in (access_as_engine_options.LIBRARY_PATH, "PATH")
        if name not in given and any(target in env.get(name, "") for target in targets)
    }
