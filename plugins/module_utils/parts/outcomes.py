# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a part tells the parts after it. They read nothing else of its plan, which is for the role alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part

_Outcome = TypeVar("_Outcome")


@dataclasses.dataclass(frozen=True)
class DriverOutcome:
    """What becomes of the driver. Without values: no part of this run changes it."""

    is_planned: bool = False
    # The version that is loaded after the part.
    next_loaded: str | None = None
    # Whether its files change, and the names of the packages that bring them.
    installs: bool = False
    packages: tuple[str, ...] = ()
    # Whether the role keeps a driver that somebody else has installed.
    adopts: bool = False
    # Whether the run reloads the loaded modules.
    reloads: bool = False
    # The sources whose repositories have no suitable version, with the reasons.
    rejected_sources: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def loaded_after(self, loaded: str | None) -> str | None:
        """Return the version that is loaded after the part. `loaded`: the one that is loaded now."""
        return self.next_loaded if self.is_planned else loaded

    def changes(self, loaded: str | None) -> bool:
        """Return whether the files or the loaded modules change."""
        return self.installs or self.loaded_after(loaded) != loaded


@dataclasses.dataclass(frozen=True)
class EngineOutcome:
    """What becomes of the container engine."""

    # The engine of the role, None if it manages none, and its version after the role, None if it is unknown.
    name: str | None = None
    version: str | None = None
    # Whether its packages change.
    installs: bool = False


@dataclasses.dataclass(frozen=True)
class PersistenceOutcome:
    """What becomes of the persistence daemon."""

    # Whether its packages change.
    installs: bool = False


@dataclasses.dataclass(frozen=True)
class ToolkitOutcome:
    """What becomes of NVIDIA's container toolkit."""

    # Whether its packages, its configuration or its runtime change, and whether a CDI specification does.
    changes: bool = False
    changes_cdi: bool = False
    # Whether files of containerd or CRI-O change, which another vendor's runtime shares.
    changes_cri: bool = False
    # Whether a toolkit stays whose packages do not change.
    keeps_packages: bool = False
    # Whether it removes what nvidia-docker left, and volumes of the driver among it.
    migrates: bool = False
    migrates_volumes: bool = False


def driver(parts: Mapping[str, Part]) -> DriverOutcome:
    """Return what becomes of NVIDIA's driver."""
    return _of(parts, "nvidia_driver", DriverOutcome)


def engine(parts: Mapping[str, Part]) -> EngineOutcome:
    """Return what becomes of the container engine."""
    return _of(parts, "container_engine", EngineOutcome)


def persistence(parts: Mapping[str, Part]) -> PersistenceOutcome:
    """Return what becomes of the persistence daemon."""
    return _of(parts, "nvidia_persistenced", PersistenceOutcome)


def toolkit(parts: Mapping[str, Part]) -> ToolkitOutcome:
    """Return what becomes of NVIDIA's container toolkit."""
    return _of(parts, "nvidia_container_toolkit", ToolkitOutcome)


def _of(parts: Mapping[str, Part], name: str, kind: type[_Outcome]) -> _Outcome:
    found = parts[name].outcome if name in parts else None
    return found if isinstance(found, kind) else kind()
