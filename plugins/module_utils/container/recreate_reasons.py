# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container that exists before the run: its GPUs, and how they differ from the assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import (
    device_node_groups,
    engine_module_options,
    gpus_of_container,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_assignment import Assignment, describe_unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpus_of_container import AssignedGpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import (
    CDI,
    NONE,
    RUNTIME,
    VOLUME,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import ContainerVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    Docker,
    Image,
    Podman,
    environment,
)

# Podman turns its word for the groups of the user into this annotation of crun.
_KEPT_GROUPS = "run.oci.keep_original_groups"


class ExistingContainer:
    """The container of the requested name, which may not exist."""

    def __init__(
        self,
        inspected: Mapping[str, Any] | None,
        engine: Docker | Podman,
        accelerator: ContainerVendor,
        user_options: Mapping[str, Any],
    ) -> None:
        self.exists = inspected is not None
        self._inspected: Mapping[str, Any] = inspected or {}
        self._engine = engine
        self._accelerator = accelerator
        self._user_options = user_options
        # The labels of the container's image, if known.
        self.image_labels: Mapping[str, str] | None = None

    @property
    def identifier(self) -> str | None:
        return self._inspected.get("Id")

    @property
    def is_running(self) -> bool:
        return self.exists and gpus_of_container.is_running(self._inspected)

    @property
    def stop_timeout(self) -> Any:
        return (self._inspected.get("Config") or {}).get("StopTimeout")

    @property
    def device_requests(self) -> list[dict[str, Any]]:
        return gpus_of_container.described_requests(self._assigned_gpus().requests)

    @property
    def gpufleet_labels(self) -> dict[str, str]:
        """Return the labels that this module sets, as the container has them."""
        labels = gpus_of_container.labels_of(self._inspected)
        return {key: labels[key] for key in gpus_of_container.LABELS if key in labels}

    def summary(self) -> dict[str, Any]:
        """Describe the container for the diff."""
        if not self.exists:
            return {
                "exists": False,
                "running": False,
                "gpus": [],
                "isolation": NONE,
                "exclusive": False,
                "recreate": [],
            }
        uuids = self.uuids()
        return {
            "exists": True,
            "running": gpus_of_container.is_running(self._inspected),
            "gpus": sorted(describe_unit(uuid, self._accelerator.inventory) for uuid in uuids),
            "isolation": self._assigned_gpus().isolation,
            "exclusive": bool(uuids) and self._is_exclusive(),
            "recreate": [],
        }

    def uuids(self) -> frozenset[str]:
        """Return the UUIDs of the container's GPUs."""
        uuids = self._assigned_gpus().uuids
        if uuids and not self._accelerator.inventory.gpus:
            # Without the inventory, device nodes cannot be mapped to UUIDs. The label contains the UUIDs.
            return self._labeled_gpus() or uuids
        return uuids

    def current_gpus(self) -> AssignedGpus:
        """Return the GPUs that a count should keep."""
        if not self.exists:
            return AssignedGpus()
        found = self._assigned_gpus()
        ours = found.uuids & self._labeled_gpus()
        # GPUs that come from the user's own devices do not fill the count.
        return replace(found, uuids=ours) if ours and self._user_devices() else found

    def uses_image(self, image: Image | None) -> bool:
        """Return whether the container was created from an image. Podman omits the algorithm from identifiers."""
        created_from = str(self._inspected.get("Image") or "").rpartition(":")[2]
        return image is not None and created_from == image.id.rpartition(":")[2]

    def recreate_reasons(self, assignment: Assignment, image: Image | None) -> list[str]:
        """List the reasons to recreate the container that the engine's module does not detect."""
        if not self.exists:
            return []
        requested_nodes = self._nodes(assignment.access.devices)
        extra_devices = {
            device
            for device in self._user_devices()
            if requested_nodes.keys().isdisjoint(self._accelerator.nodes(device))
        }
        assigned = self._assigned_gpus(extra_devices)
        reasons = []
        if self._engine.name == "podman" and image is not None and not self.uses_image(image):
            # Podman's module compares only the name of the image.
            reasons.append(f"image: {_short_id(self._inspected.get('Image'))} → {_short_id(image.id)}")
        features = self._labels().get(gpus_of_container.LABEL_FEATURES, "")
        if features != assignment.features:
            # The engine's module does not remove the device nodes of a feature.
            reasons.append(f"features: {features or 'none'} → {assignment.features or 'none'}")
        removed, added = assigned.uuids - set(assignment.uuids), set(assignment.uuids) - assigned.uuids
        inventory = self._accelerator.inventory
        reasons += [f"GPU removed: {describe_unit(uuid, inventory)}" for uuid in sorted(removed)]
        reasons += [f"GPU added: {describe_unit(uuid, inventory)}" for uuid in sorted(added)]
        if removed or added or not assignment.units:
            return reasons
        if assigned.isolation != assignment.isolation:
            return [*reasons, f"isolation: {assigned.isolation} → {assignment.isolation}"]
        exclusive = self._is_exclusive()
        if exclusive != assignment.exclusive:
            reasons.append(f"exclusive: {str(exclusive).lower()} → {str(assignment.exclusive).lower()}")
        capabilities = self._capabilities(assigned)
        if None not in (capabilities, assignment.capabilities) and set(capabilities) != set(assignment.capabilities):
            reasons.append(f"capabilities: {_join(capabilities)} → {_join(assignment.capabilities)}")
        reasons += self._missing_mounts(assignment.access)
        # Docker's module ignores variables that are no longer requested.
        reasons += [
            f"{engine_module_options.LIBRARY_PATH}: {directory} is no longer required"
            for directory, is_needed in assignment.access.search_first.items()
            if not is_needed and self._has_our_directory(directory, image)
        ]
        if requested_nodes:
            reasons += self._node_differences(requested_nodes, extra_devices)
        return reasons

    def keep_notation(self, access: Access) -> Access:
        """Write the access in the notation that created the container.

        The engine's module compares options literally and would recreate the container for another notation.
        """
        present = environment((self._inspected.get("Config") or {}).get("Env"))
        # The container gets no more GPUs without these variables, else it would be recreated.
        guards = {name: present.get(name) for name in access.guards}
        env = {name: guards.get(name, value) for name, value in access.env.items()}
        access = replace(access, env={name: value for name, value in env.items() if value is not None})
        devices = tuple(
            gpus_of_container.gpu_devices_as_written(self._inspected, self._accelerator.nodes, self._user_devices())
        )
        if access.isolation == CDI:
            return replace(access, cdi_devices=devices if self._engine.name == "podman" else access.cdi_devices)
        if access.isolation == VOLUME and self._is_from_other_tool():
            # The other tool has its own way to make the loader find the libraries of the volume. The engine's module
            # may recreate the container for another option, and it must still find them then.
            files = gpus_of_container.present_files(self._inspected, access.file_mounts)
            env = {**access.env, **self._library_variables(access)}
            access = replace(access, file_mounts=files, search_last={}, env=env)
        elif access.isolation == VOLUME:
            # A container without the option `capabilities` keeps the files of its earlier capabilities.
            access = replace(access, file_mounts=gpus_of_container.kept_files(self._inspected, access.file_mounts))
        if access.isolation == RUNTIME:
            return replace(access, env={name: present.get(name) or value for name, value in access.env.items()})
        return replace(access, devices=devices) if access.devices else access

    def module_arguments(
        self, assignment: Assignment, params: Mapping[str, Any], image: Image | None, *, recreate: bool
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the options of the engine's module, and the complete options if these lack labels or variables.

        Engines cannot change labels and variables, so an unchanged container keeps its own. If the engine's module
        finds another difference, it has to recreate the container with the complete options.
        """

        def options(access: Access, labels: Mapping[str, str]) -> dict[str, Any]:
            return engine_module_options.module_arguments(
                self._engine.name,
                self._user_options,
                access,
                name=params["name"],
                image=params["image"],
                state=params["state"],
                labels=labels,
                image_env=image.env if image else {},
                kept_requests=() if recreate else self.device_requests,
            )

        labels, kept = assignment.labels(params["name"]), self.gpufleet_labels
        complete = options(assignment.access, labels)
        if recreate or not self.uses_image(image):
            return complete, None
        arguments = self.keep_groups(options(self.keep_notation(assignment.access), kept), assignment.access)
        return arguments, complete if kept != labels or self._lacks_guards(assignment.access) else None

    def _lacks_guards(self, access: Access) -> bool:
        """Return whether the container lacks variables that keep other GPUs away from it."""
        present = environment((self._inspected.get("Config") or {}).get("Env"))
        return any(present.get(name) != access.env[name] for name in access.guards)

    def keep_groups(self, options: dict[str, Any], access: Access) -> dict[str, Any]:
        """Return the options of the engine's module, which then does not recreate the container for missing groups.

        The container perhaps opens its nodes in another way. Its next recreation adds the groups. Podman's module
        cannot ignore a difference, so it gets no groups.
        """
        host = self._inspected.get("HostConfig") or {}
        present = {str(group) for group in host.get("GroupAdd") or ()}
        # Podman does not list its word for the groups of the user among the groups.
        annotations = {
            **((self._inspected.get("Config") or {}).get("Annotations") or {}),
            **(host.get("Annotations") or {}),
        }
        if annotations.get(_KEPT_GROUPS) == "1":
            present.add(device_node_groups.KEEP_GROUPS)
        missing = {str(gid) for gid in access.groups} - present
        if not missing:
            return options
        if self._engine.name == "docker":
            return {**options, "comparisons": {**(options.get("comparisons") or {}), "groups": "ignore"}}
        given = self._user_options.get("group_add") or ()
        groups = [group for group in options["group_add"] if group in given or group not in missing]
        return {**options, "group_add": groups} if groups else {k: v for k, v in options.items() if k != "group_add"}

    def _library_variables(self, access: Access) -> dict[str, str]:
        """Return the variables of the container that name directories of the driver volume and that nobody replaces."""
        env = environment((self._inspected.get("Config") or {}).get("Env"))
        given = self._user_options.get("env") or {}
        targets = [volume.split(":")[1] for volume in access.volumes]
        return {
            name: env[name]
            for name in (engine_module_options.LIBRARY_PATH, "PATH")
            if name not in given and any(target in env.get(name, "") for target in targets)
        }

    def _has_our_directory(self, directory: str, image: Image | None) -> bool:
        """Return whether this module put a directory of the image into the container's LD_LIBRARY_PATH."""
        name = engine_module_options.LIBRARY_PATH
        present = environment((self._inspected.get("Config") or {}).get("Env")).get(name, "").split(":")
        given = {**(image.env if image else {}), **(self._user_options.get("env") or {})}.get(name, "").split(":")
        return not self._is_from_other_tool() and directory in present and directory not in given

    def _missing_mounts(self, access: Access) -> list[str]:
        volumes = [mount for mount in access.volumes if not gpus_of_container.has_mount(self._inspected, mount)]
        if volumes or self._is_from_other_tool():
            return [f"driver volume: {mount} is not mounted" for mount in volumes]
        files = gpus_of_container.missing_files(self._inspected, access.file_mounts)
        return [f"driver volume: {len(files)} of its files are not mounted, such as {files[0]}"] if files else []

    def _labels(self) -> dict[str, str]:
        return gpus_of_container.own_labels(self._inspected, self.image_labels)

    def _is_exclusive(self) -> bool:
        return self._labels().get(gpus_of_container.LABEL_EXCLUSIVE) == "true"

    def _labeled_gpus(self) -> frozenset[str]:
        return frozenset(filter(None, self._labels().get(gpus_of_container.LABEL_GPUS, "").split(",")))

    def _is_from_other_tool(self) -> bool:
        return gpus_of_container.LABEL_ISOLATION not in self._labels()

    def _assigned_gpus(self, exclude: set[str] | None = None) -> AssignedGpus:
        return self._accelerator.assigned_gpus(self._inspected, self._engine.state(), exclude or ())

    def _user_devices(self) -> set[str]:
        """Return the devices that the user passes in addition to `gpus`, as written and as the path on the host."""
        devices = self._user_options.get(engine_module_options.NAMES[self._engine.name]["devices"]) or ()
        return {form for device in devices for form in (str(device), gpus_of_container.host_path(str(device)))}

    def _nodes(self, paths: Any) -> dict[str, str | None]:
        return {node: gives for path in paths for node, gives in self._accelerator.nodes(path).items()}

    def _node_differences(self, requested: Mapping[str, str | None], extra_devices: set[str]) -> list[str]:
        differences = []
        if self._engine.name == "docker":
            # Docker's module splits device options at colons, so it cannot express these paths.
            host = self._inspected.get("HostConfig") or {}
            paths = [device.get("PathOnHost") or "" for device in host.get("Devices") or ()]
            differences += [f"device node with an alias path: {path}" for path in paths if ":" in path]
        extra = self._nodes(extra_devices)
        present = gpus_of_container.gpu_nodes(self._inspected, self._accelerator.nodes)
        required = {node for node, gives in requested.items() if gives != gpus_of_container.OPTIONAL}
        missing = required - present.keys() - extra.keys()
        unexpected = {
            node
            for node, gives in present.items()
            if gives == gpus_of_container.ACCESS and node not in requested and node not in extra
        }
        differences += [f"device node missing: {node}" for node in sorted(missing)]
        return differences + [f"unexpected device node: {node}" for node in sorted(unexpected)]

    def _capabilities(self, assigned: AssignedGpus) -> list[str] | None:
        """Return the container's capabilities, or None if the vendor or the isolation has none."""
        label = self._labels().get(gpus_of_container.LABEL_CAPABILITIES)
        if assigned.isolation == VOLUME and label:
            return [name for name in label.split(",") if name]
        return None if assigned.capabilities is None else list(assigned.capabilities)


def _join(names: Any) -> str:
    return ", ".join(sorted(names)) or "none"


def _short_id(image_id: Any) -> str:
    return str(image_id or "none").rpartition(":")[2][:12]
