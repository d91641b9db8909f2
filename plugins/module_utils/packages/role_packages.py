# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the packages of a role: one version of all, the oldest usable one, their repository, holds. Pure functions.

The role decides which packages it needs and from which source, and whether it adopts installed packages.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role, role_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_MOST_NAMED_VERSIONS = 10


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
class VersionChoice:
    """The chosen build of each package, or why there is none.

    `suitable` and `usable`: the newest requested version, and the newest that can be installed.
    `lacking`: the packages that the source does not have in version `usable`.
    """

    builds: dict[str, str] = dataclasses.field(default_factory=dict)
    suitable: str | None = None
    usable: str | None = None
    lacking: list[str] = dataclasses.field(default_factory=list)


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
        return named((self.versions or {}).get(self.unit[0]) or [])


def found_on(host: Host, unit: Sequence[str]) -> dict[str, str]:
    """Return the installed packages with their versions, without epoch."""
    known = {name: installed_packages.versions(name, host["installed_packages"]) for name in unit}
    return {name: versions[-1].rpartition(":")[2] for name, versions in known.items() if versions}


def fits(version: str, requested: str) -> bool:
    """Return whether a version is the requested one. "1.23" and "1.23.0" request any build of 1.23.0-695."""
    parts, wanted = (re.split(r"[.+~-]", text.rpartition(":")[2]) for text in (version, requested))
    return not requested or parts[: len(wanted)] == wanted


def named(versions: Sequence[str]) -> str:
    """Return some versions for a message."""
    return ", ".join(versions[:_MOST_NAMED_VERSIONS])


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
    if not fits(version, case.requested):
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


def replaces(host: Host, work: RoleTransaction | None, is_driver: Callable[[str], bool]) -> bool:
    """Return whether a package of the driver gets another version. A transaction also names packages that stay."""
    items = [item.partition("=") for item in (work.install if work else ())]
    found = found_on(host, [name for name, _sign, _version in items])
    return any(is_driver(name) and not (name in found and fits(found[name], version)) for name, _sign, version in items)


def choose(
    available: Mapping[str, Sequence[str]],
    unit: Sequence[str],
    suits: Callable[[str], bool],
    refuse: Callable[[str], str | None] = lambda _version: None,
    key: Callable[[str], Any] = lambda version: version.rpartition(":")[2],
) -> VersionChoice:
    """Choose the newest suitable version that all packages have. `available` begins with the newest.

    `key` returns what is the same in all builds of one version. Epochs differ between packages, releases do not.
    """
    suitable = [version for version in available[unit[0]] if suits(version)]
    usable = [version for version in suitable if refuse(version) is None]
    newest = (suitable[0] if suitable else None, usable[0] if usable else None)
    lacking: list[str] = []
    for version in usable:
        builds = {name: next((item for item in available[name] if key(item) == key(version)), "") for name in unit}
        if all(builds.values()):
            return VersionChoice(builds, *newest, lacking=lacking)
        lacking = lacking or [name for name, build in builds.items() if not build]
    return VersionChoice({}, *newest, lacking=lacking)


def _install(
    case: RolePackagesCase, result: RolePackages, work: RoleTransaction, why: str, found: Mapping[str, str]
) -> None:
    recorded = record_of_role.read(case.host, case.record)["holds"]
    foreign = [name for name in found if name in case.host["held_packages"] and name not in recorded]
    if foreign:
        result.problems.append(
            f"{capitalized(why)}, but {', '.join(foreign)} {'is' if len(foreign) == 1 else 'are'} held, and not by "
            "this role. Release the hold, or remove the setting that requires other packages."
        )
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
    choice = choose(available, case.unit, lambda version: fits(version, case.requested), case.refuse)
    if not choice.builds:
        result.problems.append((case.explain or _explained)(case, choice))
        return
    result.version = choice.builds[case.unit[0]].rpartition(":")[2]
    if choice.lacking:
        result.reasons.append(f"{_incomplete(case, choice)}, so version {result.version} is used")
    work.install = [*(f"{name}={version}" for name, version in choice.builds.items()), *missing]


def _incomplete(case: RolePackagesCase, choice: VersionChoice) -> str:
    return f"{case.place} has {case.unit[0]} {choice.usable}, but not {', '.join(choice.lacking)} in this version"


def _explained(case: RolePackagesCase, choice: VersionChoice) -> str:
    main = case.unit[0]
    if not (case.versions or {})[main]:
        reason, remedy = f"{case.place} has no package {main}", "Check the URL, the suite and the package's name"
    elif choice.usable:
        reason = _incomplete(case, choice)
        remedy = f"Set {case.role}_version to a version that all packages have"
    elif choice.suitable:
        reason = f"{case.place} has {main} {choice.suitable}, which {case.refuse(choice.suitable)}"
        usable = [version for version in (case.versions or {})[main] if case.refuse(version) is None]
        some = named(usable)
        remedy = f"Set {case.role}_version to one of: {some}" if some else "It has no version that can be used"
    else:
        reason = f"{case.role}_version is {case.requested}, but {case.place} has no such version of {main}"
        remedy = f"Set it to one of: {case.some_versions}"
    return f"{capitalized(reason)}. {remedy}."
