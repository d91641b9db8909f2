# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a vendor's packages in one version, their repository and holds. Pure functions.

The role decides which packages it needs, and whether an installed driver is adopted.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.text import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import own_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

_MOST_NAMED_VERSIONS = 10


@dataclasses.dataclass(frozen=True)
class VendorPackageCase:
    """What the plan of one host depends on.

    `unit`: the packages that must have the same version, the driver first. `others`: further packages, in any version.
    `requested`: a version or the start of one; empty for the newest. `refuse` returns why a version cannot be used.
    `definition`: the repository to add, or None if another file has it. `hold_needs`: the package that dnf needs for
    holds.
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

    @property
    def record(self) -> str:
        return f"{owned.STATE_DIRECTORY}/{self.role}.json"


@dataclasses.dataclass
class VendorTransaction:
    """The options of module package_transaction that depend on the host."""

    install: list[str] = dataclasses.field(default_factory=list)
    hold: list[str] = dataclasses.field(default_factory=list)
    release: list[str] = dataclasses.field(default_factory=list)
    repositories: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class VendorPackages:
    """The plan of the packages. `transaction` and `query` are None if there is nothing to do or to ask.

    `version`: the version of the packages after the role; None if it is not known before the query.
    """

    version: str | None = None
    transaction: VendorTransaction | None = None
    query: dict[str, Any] | None = None
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


def found_on(host: Host, unit: Sequence[str]) -> dict[str, str]:
    """Return the installed packages with their versions, without epoch."""
    known = {name: installed.versions(name, host["installed_packages"]) for name in unit}
    return {name: versions[-1].rpartition(":")[2] for name, versions in known.items() if versions}


def fits(version: str, requested: str) -> bool:
    """Return whether a version is the requested one. "1.23" and "1.23.0" request any build of 1.23.0-695."""
    parts, wanted = (re.split(r"[.-]", text.rpartition(":")[2]) for text in (version, requested))
    return not requested or parts[: len(wanted)] == wanted


def wrong(case: VendorPackageCase) -> str | None:
    """Return why the installed packages cannot stay as they are, or None."""
    found = found_on(case.host, case.unit)
    missing = [name for name in (*case.unit, *case.others) if not installed.is_installed(case.host, name)]
    if missing:
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
        return f"the packages have different versions: {listed}"
    version = found[case.unit[0]]
    if not fits(version, case.requested):
        return f"version {version} is installed, and {case.role}_version is {case.requested}"
    refused = case.refuse(version)
    return f"the installed version {version} {refused}" if refused else None


def plan(case: VendorPackageCase) -> VendorPackages:
    """Return what installs, updates, holds or releases the packages."""
    result, work = VendorPackages(), VendorTransaction()
    found = found_on(case.host, case.unit)
    result.version = found.get(case.unit[0])
    why = wrong(case)
    if why:
        _install(case, result, work, why, found)
    elif case.definition and own_repository.is_outdated(case.host, case.definition):
        work.repositories = [case.definition]
    if result.problems:
        return result
    _holds(case, work)
    if any(vars(work).values()) or packages_record.is_unfinished(case.host, case.record):
        result.transaction = work
        result.changes = texts(work)
    return result


def _install(
    case: VendorPackageCase, result: VendorPackages, work: VendorTransaction, why: str, found: Mapping[str, str]
) -> None:
    recorded = packages_record.read(case.host, case.record)["holds"]
    foreign = [name for name in found if name in case.host["held_packages"] and name not in recorded]
    if foreign:
        result.problems.append(
            f"{capitalized(why)}, but {', '.join(foreign)} {'is' if len(foreign) == 1 else 'are'} held, and not by "
            "this role. Release the hold, or remove the setting that requires other packages."
        )
        return
    result.reasons.append(why)
    definition = case.definition
    if definition and (
        not own_repository.is_present(case.host, definition["name"])
        or own_repository.is_outdated(case.host, definition)
    ):
        work.repositories = [definition]
    missing = [name for name in case.others if not installed.is_installed(case.host, name)]
    available = case.versions or {}
    if any(name not in available for name in case.unit):
        result.query = {"query": list(case.unit), "repositories": work.repositories}
        result.version = None
        work.install = [*case.unit, *missing]
        return
    chosen = _choose(case, result, available)
    if chosen:
        result.version = chosen[case.unit[0]].rpartition(":")[2]
        work.install = [*(f"{name}={version}" for name, version in chosen.items()), *missing]


def _choose(
    case: VendorPackageCase, result: VendorPackages, available: Mapping[str, list[str]]
) -> dict[str, str] | None:
    """Return the versions to install: the newest suitable one that all packages have. Else add a problem."""
    main = available[case.unit[0]]
    suitable = [version for version in main if fits(version, case.requested)]
    usable = [version for version in suitable if case.refuse(version) is None]
    for version in usable:
        builds = {name: _build(available[name], version) for name in case.unit}
        if all(builds.values()):
            return {name: build or "" for name, build in builds.items()}
    some = ", ".join(main[:_MOST_NAMED_VERSIONS])
    if not main:
        reason, remedy = (
            f"{case.place} has no package {case.unit[0]}",
            "Check the URL, the suite and the package's name",
        )
    elif usable:
        lacking = [name for name in case.unit if not _build(available[name], usable[0])]
        reason = f"{case.place} has {case.unit[0]} {usable[0]}, but not {', '.join(lacking)} in this version"
        remedy = f"Set {case.role}_version to a version that all packages have"
    elif suitable:
        reason = f"{case.place} has {case.unit[0]} {suitable[0]}, which {case.refuse(suitable[0])}"
        remedy = f"Set {case.role}_version to one of: {some}"
    else:
        reason = f"{case.role}_version is {case.requested}, but {case.place} has no such version of {case.unit[0]}"
        remedy = f"Set it to one of: {some}"
    result.problems.append(f"{capitalized(reason)}. {remedy}.")
    return None


def _build(available: Sequence[str], version: str) -> str | None:
    """Return the same build of another package. Epochs differ between packages, releases do not."""
    number = version.rpartition(":")[2]
    return next((item for item in available if item.rpartition(":")[2] == number), None)


def _holds(case: VendorPackageCase, work: VendorTransaction) -> None:
    held = case.host["held_packages"]
    known = packages_record.read(case.host, case.record)
    if not case.hold:
        work.release = sorted(name for name in known["holds"] if name in held)
        return
    # The packages of another tool are its to hold.
    if work.install or (known["requested"] and any(name not in held for name in case.unit)):
        work.hold = list(case.unit)
        needs = case.hold_needs
        work.install += [needs] if needs and not installed.is_installed(case.host, needs) else []


def texts(work: VendorTransaction) -> list[str]:
    """Return the changes of a transaction as imperative texts."""
    parts = (
        ("add repository", [repository["url"] for repository in work.repositories]),
        ("install", work.install),
        ("hold", work.hold),
        ("release", work.release),
    )
    found = [f"{verb} {', '.join(names)}" for verb, names in parts if names]
    return found or ["finish the interrupted installation of the packages"]
