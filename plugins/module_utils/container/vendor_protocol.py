# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner needs from a vendor of accelerators. Each vendor's package in this folder implements it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory, Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import (
    AssignedGpus,
    NodeRoles,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import GpuUse, Holder
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import Choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpu_distance import Topology
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import Request
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    Docker,
    EngineState,
    Image,
    Podman,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.optional_features import Extras


class RequirementError(Exception):
    """The driver or the devices do not meet the requirements of the image."""


@dataclass(frozen=True)
class ContainerTask:
    """The container that a vendor gives devices to.

    `params`: the options of gpu_container. `options`: the user's options of the engine's module.
    `image` is None if the engine does not have it. `env` combines the environments of the image and the user. It is
    None before the image is known.
    `current`: the isolation of the existing container.
    """

    params: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    image: Image | None = None
    env: Mapping[str, str] | None = None
    current: str | None = None


class ContainerVendor(Protocol):
    """The devices of one vendor on this host."""

    # The value of the option `accelerator`.
    name: str
    # Both are empty before `observe`. The topology can stay empty.
    inventory: Inventory
    topology: Topology

    def observe(self, needs: Collection[str] = ()) -> None:
        """Read the devices. Raise SelectionError if the host has none that can be used.

        `needs`: what must be read in addition: see request.NEEDS.
        """

    def extras(self, features: Collection[str], channels: Collection[int], env: Mapping[str, str]) -> Extras:
        """Return what a container needs for optional features. Raise FeatureError if the host lacks one."""

    def image_request(self, image: Image, env: Mapping[str, str]) -> tuple[Request, str] | None:
        """Return the devices that an image requests, and the origin of the request. None if it requests none."""

    def choose_isolation(self, engine: EngineState, units: Sequence[Unit], task: ContainerTask) -> Choice:
        """Choose the isolation. Raise IsolationError if the requested one is not available."""

    def access(self, isolation: str, engine: Docker | Podman, units: Sequence[Unit], task: ContainerTask) -> Access:
        """Return what the container is given, with warnings. Without units, prevent access to devices.

        Raise RequirementError if the driver or the units do not meet the requirements of the image.
        """

    def driver_volume(
        self, accesses: Sequence[tuple[Docker | Podman, Access]], task: ContainerTask
    ) -> dict[str, Any] | None:
        """Return the arguments of the module for driver volumes, or None if no engine lacks a driver volume."""

    def assigned_gpus(
        self, container: Mapping[str, Any], engine: EngineState, exclude: Collection[str] = ()
    ) -> AssignedGpus:
        """Return the devices that a container has. `exclude`: what the user passes in addition to `gpus`."""

    def nodes(self, device: str) -> NodeRoles:
        """Return what a device of a container stands for: the canonical names of its nodes, each with its role.

        `device`: a device node, a link to one, a directory of nodes, /dev/char/MAJOR:MINOR, or a CDI device.
        """

    def use(
        self,
        listed: Iterable[Holder],
        *,
        whole_host: bool,
        ignored: Collection[str] = (),
        own: tuple[str, str] | None = None,
    ) -> GpuUse:
        """Return how the devices are used. See gpu_holders.find_use.

        `whole_host`: whether other engines, other users, Kubernetes and processes outside containers count. This
        requires root.
        """
