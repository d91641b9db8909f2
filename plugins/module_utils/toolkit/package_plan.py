# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the packages of NVIDIA's container toolkit: version, source, pin, holds, and a migration's. Pure functions."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    record_of_role,
    role_packages,
    role_repository,
    role_version_choice,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import (
    RolePackages,
    RolePackagesCase,
    RoleTransaction,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_version_choice import VersionChoice
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import repository, vulnerabilities

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.migration.planned_steps import Migration
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step
    from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.variables import ToolkitRequest

# The packages that NVIDIA builds and publishes together. The toolkit requires the exact versions of the base and of the
# tools since 1.18.0: NVIDIA/nvidia-container-toolkit, packaging/debian/control and packaging/rpm/SPECS (d34b304).
UNIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_ROLE = "nvidia_container_toolkit"


def found_on(host: Host) -> dict[str, str]:
    """Return the installed packages of the toolkit with their versions."""
    return role_packages.found_on(host, UNIT)


def version_of(found: t.Mapping[str, str]) -> str | None:
    """Return the version of the installed toolkit. The base works without the other packages."""
    return next((found[name] for name in UNIT[:2] if name in found), None)


def plan(
    host: Host, request: ToolkitRequest, platforms: dict[str, t.Any], versions: t.Mapping[str, list[str]] | None
) -> RolePackages:
    """Return the plan. `versions` has the available versions by package, or None before the query."""
    installed = version_of(found_on(host))
    # A newer 1.19.x may suit a request for 1.19.
    may_suit = not request.version or role_version_choice.fits(vulnerabilities.FLOOR, request.version)
    below = None if may_suit else _too_old(request, request.version)
    if below:
        return RolePackages(version=installed, problems=[f"{_ROLE}_version={request.version} {below}"])
    platform = platforms.get(host["os"]["key"] or "")
    case = _case(host, request, platform, versions)
    wrong = role_packages.wrong(case)
    problem = _no_source(case, request, platform, wrong) if wrong else None
    if problem:
        return RolePackages(version=installed, problems=[problem])
    if request.source == "preinstalled":
        is_unfinished = record_of_role.is_unfinished(host, case.record)
        result = RolePackages(version=installed, transaction=RoleTransaction() if is_unfinished else None)
    else:
        result = role_packages.plan(case)
        result.source = repository.source(request) if wrong else None
        if wrong or role_repository.is_present(host, repository.NAME):
            _pin(case, result)
    if not wrong and not record_of_role.read(host, case.record)["requested"]:
        result.reasons.append(f"the installed toolkit {result.version} is kept")
    if request.accept_vulnerable and result.version and vulnerabilities.of(result.version):
        known = ", ".join(vulnerabilities.of(result.version))
        result.reasons.append(f"{_ROLE}_accept_vulnerable is true: {result.version} has {known}")
    return result


def _case(
    host: Host, request: ToolkitRequest, platform: dict[str, t.Any] | None, versions: t.Mapping[str, list[str]] | None
) -> RolePackagesCase:
    found, unit = found_on(host), list(UNIT)
    if request.source == "preinstalled":
        # The base works without the other packages.
        unit = [name for name in UNIT if name in found] if version_of(found) else [UNIT[0]]
    wanted = repository.wanted(host, request) if platform is not None else None
    return RolePackagesCase(
        host=host,
        role=_ROLE,
        unit=unit,
        others=[],
        requested=request.version,
        hold=request.hold,
        definition=wanted,
        place=repository.place(host, request),
        versions=versions,
        hold_needs=(platform or {}).get("hold_needs"),
        refuse=functools.partial(_too_old, request),
        title="" if found else "the toolkit",
        keep=driver_membership.SELECTORS,
        explain=functools.partial(_explained, request, platform or {}),
    )


def _too_old(request: ToolkitRequest, version: str) -> str | None:
    known = vulnerabilities.of(version)
    if not known or request.accept_vulnerable:
        return None
    return (
        f"has known vulnerabilities: {', '.join(known)}. {vulnerabilities.FLOOR} is the first version without them. "
        f"Request a newer version, or set {_ROLE}_accept_vulnerable=true"
    )


def _no_source(
    case: RolePackagesCase, request: ToolkitRequest, platform: dict[str, t.Any] | None, wrong: str
) -> str | None:
    """Return why the role cannot change the packages, or None."""
    if request.source == "preinstalled":
        return (
            f"{_ROLE}_source=preinstalled, but {wrong}. Change the packages with the tool that installed them, or set "
            f"{_ROLE}_source=auto."
        )
    system = case.host["os"]
    if platform is None or repository.define(case.host, request) is None:
        what = system["name"] if platform is None else f"{system['name']} ({system['arch']})"
        return (
            f"This role cannot install NVIDIA's container toolkit on {what}. Install it yourself, then set "
            f"{_ROLE}_source=preinstalled, or set {_ROLE}_source=none."
        )
    if request.source == "distribution" and "distribution" not in platform:
        return (
            f"{_ROLE}_source=distribution is not available: {system['name']} has no package {UNIT[0]}. Set "
            f"{_ROLE}_source=nvidia."
        )
    return None


def _pin(case: RolePackagesCase, result: RolePackages) -> None:
    """Plan apt's preference. With dnf and zypper, the definition has a priority."""
    if case.host["apt"] is None or not case.definition or result.problems:
        return
    path, content = owned.CONTAINER_TOOLKIT_APT_PREFERENCES, repository.preference(case.definition, UNIT)
    if observed_files.content(case.host, path) != content:
        result.transaction = result.transaction or RoleTransaction()
        result.transaction.files = [{"path": path, "state": "present", "content": content}]


def _explained(
    request: ToolkitRequest, platform: dict[str, t.Any], case: RolePackagesCase, choice: VersionChoice
) -> str:
    """Return why no version can be installed, and what to do."""
    place, some = case.place, case.some_versions
    if not some:
        hint = platform["distribution"].get("hint") if request.source == "distribution" else None
        return f"{place} has no {UNIT[0]}. {hint or 'Set another source or mirror.'}"
    remedy = "set another source or mirror"
    if choice.usable:
        reason = f"{place} has {UNIT[0]} {choice.usable}, but not {', '.join(choice.lacking)} in this version"
    elif choice.suitable:
        reason = (
            f"{place} has no version without known vulnerabilities ({vulnerabilities.FLOOR} or newer). It has {some}"
        )
        remedy += f", or {_ROLE}_accept_vulnerable=true"
    else:
        reason = f"{_ROLE}_version={request.version}, but {place} has no such version. It has {some}"
    return f"{capitalized(reason)}. Request another version, or {remedy}."


def with_migration(packages: RolePackages, migration: Migration) -> RoleTransaction | None:
    """Add what the migration removes in the transaction. The query must not read old repositories, either."""
    files = [{"path": path, "state": "absent"} for path in migration.files]
    if packages.query and files:
        packages.query = {**packages.query, "files": files}
    work = packages.transaction
    if migration.purge or files:
        work = work or RoleTransaction(keep=list(driver_membership.SELECTORS))
        work.purge, work.files = list(migration.purge), [*work.files, *files]
    return work


def steps_beside_migration(transaction: RoleTransaction | None, migration: Migration) -> list[Step]:
    """Return the steps of a transaction. The migration itself names what it purges and removes in the transaction."""
    return [step for step in transaction.steps() if step.text not in migration.changes] if transaction else []
