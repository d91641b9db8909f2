# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container that exists before the run: its GPUs, its labels and the devices that the user passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import engine_module_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import describe_unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import (
    container_labels,
    inspected_container,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import AssignedGpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import NONE
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import ContainerVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Docker, Image, Podman


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
        self.inspected: Mapping[str, Any] = inspected or {}
        self.engine = engine
        self.accelerator = accelerator
        self.user_options = user_options
        # The labels of the container's image, if known.
        self.image_labels: Mapping[str, str] | None = None

    @property
    def identifier(self) -> str | None:
        return self.inspected.get("Id")

    @property
    def is_running(self) -> bool:
        return self.exists and inspected_container.is_running(self.inspected)

    @property
    def stop_timeout(self) -> Any:
        return (self.inspected.get("Config") or {}).get("StopTimeout")

    @property
    def device_requests(self) -> list[dict[str, Any]]:
        return inspected_container.described_requests(self.assigned_gpus().requests)

    @property
    def gpufleet_labels(self) -> dict[str, str]:
        """Return the labels that this module sets, as the container has them."""
        labels = container_labels.labels_of(self.inspected)
        return {key: labels[key] for key in container_labels.LABELS if key in labels}

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
            "running": inspected_container.is_running(self.inspected),
            "gpus": sorted(describe_unit(uuid, self.accelerator.inventory) for uuid in uuids),
            "isolation": self.assigned_gpus().isolation,
            "exclusive": bool(uuids) and self.is_exclusive(),
            "recreate": [],
        }

    def uuids(self) -> frozenset[str]:
        """Return the UUIDs of the container's GPUs."""
        uuids = self.assigned_gpus().uuids
        if uuids and not self.accelerator.inventory.gpus:
            # Without the inventory, device nodes cannot be mapped to UUIDs. The label contains the UUIDs.
            return self.labeled_gpus() or uuids
        return uuids

    def uses_image(self, image: Image | None) -> bool:
        """Return whether the container was created from an image. Podman omits the algorithm from identifiers."""
        created_from = str(self.inspected.get("Image") or "").rpartition(":")[2]
        return image is not None and created_from == image.id.rpartition(":")[2]

    def labels(self) -> dict[str, str]:
        return container_labels.own_labels(self.inspected, self.image_labels)

    def is_exclusive(self) -> bool:
        return self.labels().get(container_labels.LABEL_EXCLUSIVE) == "true"

    def labeled_gpus(self) -> frozenset[str]:
        """Return the GPUs in the label of the container."""
        return frozenset(filter(None, self.labels().get(container_labels.LABEL_GPUS, "").split(",")))

    def is_from_other_tool(self) -> bool:
        return container_labels.LABEL_ISOLATION not in self.labels()

    def assigned_gpus(self, exclude: set[str] | None = None) -> AssignedGpus:
        return self.accelerator.assigned_gpus(self.inspected, self.engine.state(), exclude or ())

    def user_devices(self) -> set[str]:
        """Return the devices that the user passes in addition to `gpus`, as written and as the path on the host."""
        devices = self.user_options.get(engine_module_options.NAMES[self.engine.name]["devices"]) or ()
        return {form for device in devices for form in (str(device), inspected_container.host_path(str(device)))}
