# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the packages of a role: what is installed, updated, held or released, and its repository. Pure functions.

The role decides which packages it needs and from which source, and whether it adopts installed packages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    packages_held_by_others,
    record_of_role,
    role_repository,
    role_version_choice,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_version_choice import VersionChoice
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


@dataclasses.dataclass
class RoleTransaction:
    """The options of module package_transaction that depend on the host."""

    install: list[str] = dataclasses.field(default_factory=list)
    remove: list[str] = dataclasses.field(default_factory=list)
    purge: list[str] = dataclasses.field(default_factory=list)
    hold: list[str] = dataclasses.field(default_factory=list)
    release: list[str] = dataclasses.field(default_factory=list)
    # What dependencies must not change, such as the driver.
    keep: list[str] = dataclasses.field(default_factory=list)
    repositories: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    # Repositories that stay until this role no longer needs them, even if another role added them.
    uses_repositories: list[str] = dataclasses.field(default_factory=list)
    # Files of package managers to write, and older ones to remove.
    files: list[dict[str, str]] = dataclasses.field(default_factory=list)

    def is_needed(self, host: Host, record: str) -> bool:
        """Return whether there is something to do, or an interrupted run to finish."""
        return any(vars(self).values()) or record_of_role.is_unfinished(host, record)

    def steps(self) -> list[Step]:
        """Return what the transaction does."""
        written, removed = (
            [file["path"] for file in self.files if file["state"] == state] for state in ("present", "absent")
        )
        found = [
            *steps.listed(steps.PACKAGES, "remove {}", self.remove),
            *steps.listed(steps.PACKAGES, "purge {}", self.purge),
            *steps.listed("repository", "add repository {}", [repository["url"] for repository in self.repositories]),
            *steps.listed(steps.FILE, "write {}", written, item=steps.FILE),
            *steps.listed(steps.FILE, "remove {}", removed),
            *steps.listed(steps.PACKAGES, "install {}", self.install, item=steps.PACKAGE),
            *steps.listed(steps.HOLD, "hold {}", self.hold, item=steps.HOLD),
            *steps.listed(steps.HOLD, "release {}", self.release),
        ]
        if found:
            return found
        if self.uses_repositories:
            return steps.listed("repository", "record that the role uses repository {}", self.uses_repositories)
        return [steps.own(steps.PACKAGES, "finish the interrupted installation of the packages")]

    def changes(self) -> list[str]:
        """Return the texts of the steps."""
        return steps.texts(self.steps())


@dataclasses.dataclass
class RolePackages:
    """The plan of the packages. `transaction` and `query` are None if there is nothing to do or to ask.

    `source`: the source of the packages. `version`: the version after the role, None if it is not known before the
    query. `installs`: the role installs or replaces the packages. `moves`: it changes the installed version.
    """

    source: str | None = None
    version: str | None = None
    transaction: RoleTransaction | None = None
    query: dict[str, Any] | None = None
    installs: bool = False
    moves: bool = False
    problems: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)

    @property
    def changes(self) -> list[str]:
        return self.transaction.changes() if self.transaction else []


@dataclasses.dataclass(frozen=True)
class RolePackagesCase:
    """What the plan of one host depends on.

    `unit`: the packages that must have the same version, the main one first. `others`: further packages, in any
    version. `title`: what the unit is, for messages. `requested`: a version or the start of one; empty for the newest.
    `refuse` returns why a version cannot be used. `definition`: the repository to add, or None if another file has it.
    `keep`: what dependencies must not change. `hold_needs`: the package that dnf needs for holds. `explain` returns
    the problem if no version can be chosen.
    """

    host: Host
    role: str
    unit: Sequence[str]
    others: Sequence[str]
    requested: str
    hold: bool
    definition: dict[str, Any] | None
    place: str
    versions: Mapping[str, list[str]] | None
    hold_needs: str | None = None
    refuse: Callable[[str], str | None] = lambda _version: None
    title: str = ""
    keep: Sequence[str] = ()
    explain: Callable[[RolePackagesCase, VersionChoice], str] | None = None

    @property
    def record(self) -> str:
        return f"{owned.STATE_DIRECTORY}/{self.role}.json"

    @property
    def some_versions(self) -> str:
        return role_version_choice.named((self.versions or {}).get(self.unit[0]) or [])


def found_on(host: Host, unit: Sequence[str]) -> dict[str, str]:
    """Return the installed packages with their versions, without epoch."""
    known = {name: installed_packages.versions(name, host["installed_packages"]) for name in unit}
    return {name: versions[-1].rpartition(":")[2] for name, versions in known.items() if versions}


def wrong(case: RolePackagesCase) -> str | None:
    """Return why the installed packages cannot stay as they are, or None."""
    found = found_on(case.host, case.unit)
    if case.title and not found:
        return f"{case.title} is not installed"
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
        return f"the packages have different versions: {listed}"
    missing = [name for name in (*case.unit, *case.others) if not installed_packages.is_installed(case.host, name)]
    if missing:
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    version = found[case.unit[0]]
    if not role_version_choice.fits(version, case.requested):
        return f"version {version} is installed, and {case.role}_version is {case.requested}"
    refused = case.refuse(version)
    return f"the installed version {version} {refused}" if refused else None


def plan(case: RolePackagesCase) -> RolePackages:
    """Return what installs, updates, holds or releases the packages."""
    result, work = RolePackages(), RoleTransaction()
    found = found_on(case.host, case.unit)
    result.version = found.get(case.unit[0])
    why = wrong(case)
    if why:
        _install(case, result, work, why, found)
    elif case.definition:
        plan_repository(case.host, case.definition, work, is_needed=False)
    if result.problems:
        return result
    known = record_of_role.read(case.host, case.record)
    # The packages of another tool are its to hold.
    members = list(case.unit if work.install else found if known["requested"] else ())
    plan_holds(case.host, case.record, work, members, hold=case.hold, needs=case.hold_needs)
    work.keep = list(case.keep) if work.install else []
    result.transaction = work if work.is_needed(case.host, case.record) else None
    return result


def plan_repository(host: Host, definition: dict[str, Any], work: RoleTransaction, *, is_needed: bool) -> None:
    """Plan the role's repository: a missing one that is needed, or changed settings of its own entry."""
    is_missing = is_needed and not role_repository.is_present(host, definition["name"])
    if is_missing or role_repository.is_outdated(host, definition):
        work.repositories = [definition]


def plan_holds(
    host: Host, record: str, work: RoleTransaction, members: Sequence[str], *, hold: bool, needs: str | None
) -> None:
    """Plan the holds of packages, or the release of those that the role holds. `needs`: dnf's package for holds."""
    held = host["held_packages"]
    if not hold:
        work.release = sorted(name for name in record_of_role.read(host, record)["holds"] if name in held)
        return
    coming = [item.partition("=")[0] for item in work.install]
    if any(name in coming or name not in held for name in members):
        work.hold = list(members)
        work.install += [needs] if needs and not installed_packages.is_installed(host, needs) else []


def _install(
    case: RolePackagesCase, result: RolePackages, work: RoleTransaction, why: str, found: Mapping[str, str]
) -> None:
    recorded = record_of_role.read(case.host, case.record)["holds"]
    problem = packages_held_by_others.problem(why, found, held=case.host["held_packages"], own_holds=recorded)
    if problem:
        result.problems.append(problem)
        return
    result.reasons.append(why)
    if case.definition:
        plan_repository(case.host, case.definition, work, is_needed=True)
    missing = [name for name in case.others if not installed_packages.is_installed(case.host, name)]
    available = case.versions or {}
    if any(name not in available for name in case.unit):
        result.query = {"query": list(case.unit), "repositories": work.repositories}
        result.version = None
        work.install = [*case.unit, *missing]
        return
    choice = role_version_choice.choose(
        available, case.unit, lambda version: role_version_choice.fits(version, case.requested), case.refuse
    )
    if not choice.builds:
        result.problems.append((case.explain or role_version_choice.explained)(case, choice))
        return
    result.version = choice.builds[case.unit[0]].rpartition(":")[2]
    if choice.lacking:
        result.reasons.append(f"{role_version_choice.incomplete(case, choice)}, so version {result.version} is used")
    work.install = [*(f"{name}={version}" for name, version in choice.builds.items()), *missing]
