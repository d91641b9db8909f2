# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a part declares about itself. Everything that is true for all parts is derived from these declarations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part

Planner = Callable[[Context, Mapping[str, Part]], Part]


@dataclasses.dataclass(frozen=True)
class Owns:
    """What a part installs, writes and starts on a host, or must know of it, as far as plans must observe it."""

    # Paths of files.
    files: tuple[str, ...] = ()
    # Units of systemd.
    units: tuple[str, ...] = ()
    # Regular expressions for names of packages, whose versions and holds the plan needs.
    packages: tuple[str, ...] = ()
    # Names of package repositories that the part adds, with their keys and logins.
    repositories: tuple[str, ...] = ()
    # Whether all files and units are there after every run, so that playbook `verify` reports missing ones.
    verified: bool = False


@dataclasses.dataclass(frozen=True)
class Declaration:
    """A part of a run: a role, or a step of playbook `site`."""

    # The name of the role, or of the step.
    name: str
    # Returns the plan of the part, with the plans of the parts before it.
    plan: Planner
    # The dataclass of the role's variables. None: the part is a step without variables of its own.
    request: type | None = None
    # Reads and checks the variables, if more than the types and choices of the dataclass must be checked.
    read: Callable[[Mapping[str, Any]], Any] | None = None
    # The vendor of the accelerators that the part is for, or None for every vendor.
    vendor: str | None = None
    # Other roles whose variables the plan depends on.
    reads: tuple[str, ...] = ()
    # The parts whose changes decide what this part changes. As long as theirs are unknown, so are those of this part.
    after: tuple[str, ...] = ()
    # Whether the plan depends on the GPU facts of a loaded driver.
    needs_facts: bool = False
    # The variable in roles/<name>/vars/platforms.yml with the data of all platforms.
    platforms: str | None = None
    # Whether the role sets the variable `<name>_report` for playbooks.
    reports: bool = False
    # Whether tasks of playbook `site` apply the plan, playbooks/tasks/parts/<name>.yml, instead of a role.
    is_step: bool = False
    # Whether only its role plans it, and playbook `site` does not contain it.
    is_alone: bool = False
    # Returns further paths that the plan must observe, which depend on the variables of the role.
    files: Callable[[Mapping[str, Any]], list[str]] | None = None
    # Whether the removal comes before those of all other parts.
    removed_first: bool = False
    owns: Owns = Owns()

    @property
    def needed_roles(self) -> tuple[str, ...]:
        """Return the roles whose variables the plan depends on."""
        return (*self.reads, *((self.name,) if self.request else ()))

    def read_request(self, values: Mapping[str, Any]) -> Any:
        """Return the checked variables of the role, from their values without its prefix."""
        if self.read:
            return self.read(values)
        if self.request is None:
            raise TypeError(f"part {self.name} has no variables")
        return variable_fields.read(self.request, self.name, values)


@dataclasses.dataclass(frozen=True)
class RoleDeclaration:
    """A role around the parts, which playbook `site` does not contain."""

    name: str
    request: type
    # Whether the role sets the variable `<name>_report` for playbooks.
    reports: bool = False
    owns: Owns = Owns()
