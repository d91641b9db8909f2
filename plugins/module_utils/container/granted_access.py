# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container gets in addition to the user's options: its devices, and the access to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit, unit_indexes
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import NONE


@dataclass(frozen=True)
class Access:
    """The options that the engine's module gets in addition to the user's options."""

    isolation: str = NONE
    devices: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    # The device request of Docker.
    device_ids: tuple[str, ...] = ()
    request_capabilities: tuple[str, ...] = ()
    runtime: str | None = None
    volumes: tuple[str, ...] = ()
    # Mounts of single files of the driver volume, in addition to `volumes`.
    file_mounts: tuple[str, ...] = ()
    driver_volume: str | None = None
    # Directories after those of the image, by variable: the libraries, and the programs.
    search_last: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Directories that come first in LD_LIBRARY_PATH (true), or that an earlier run put there (false).
    search_first: Mapping[str, bool] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    # The variables in `env` that only prevent the vendor's runtime from giving access to more devices.
    guards: tuple[str, ...] = ()
    # Groups of the host that the user of the container needs, or Podman's word for the groups of the user.
    groups: tuple[int | str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass
class Assignment:
    """The GPUs of a container and the access to them."""

    units: list[Unit] = field(default_factory=list)
    isolation: str = NONE
    reason: str = ""
    access: Access = field(default_factory=Access)
    capabilities: list[str] | None = None
    exclusive: bool = False
    # The optional features and IMEX channels, as in the label.
    features: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def uuids(self) -> list[str]:
        return [unit.uuid for unit in self.units]

    @property
    def indexes(self) -> list[int | str]:
        return unit_indexes(self.units)
