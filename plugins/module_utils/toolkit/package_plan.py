# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the packages of NVIDIA's container toolkit: one version of all, their source, pin and holds. Pure functions.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.text import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import own_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import repository, vulnerabilities

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.request import ToolkitRequest

# The packages that NVIDIA builds and publishes together. The toolkit requires the exact versions of the base and of the
# tools since 1.18.0: NVIDIA/nvidia-container-toolkit, packaging/debian/control and packaging/rpm/SPECS (d34b304).
UNIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_MOST_NAMED_VERSIONS = 10
_ROLE = "nvidia_container_toolkit"


@dataclasses.dataclass
class ToolkitTransaction:
    """The options of module package_transaction that depend on the host."""

    install: list[str] = dataclasses.field(default_factory=list)
    purge: list[str] = dataclasses.field(default_factory=list)
    hold: list[str] = dataclasses.field(default_factory=list)
    release: list[str] = dataclasses.field(default_factory=list)
    repositories: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    files: list[dict[str, str]] = dataclasses.field(default_factory=list)
    # The driver, which dependencies must not change.
    keep: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class ToolkitPackages:
    """The plan of the packages. `transaction` and `query` are None if there is nothing to do or to ask."""

    # The source of the packages that this run installs, None if it installs none.
    source: str | None = None
    # The version before the role, and after it. None: not installed, and not known before the query.
    installed: str | None = None
    version: str | None = None
    transaction: ToolkitTransaction | None = None
    query: dict[str, t.Any] | None = None
    problems: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _Case:
    """What the plan of one host depends on."""

    host: Host
    request: ToolkitRequest
    # The data of the platform, None if the role cannot install the toolkit there.
    platform: dict[str, t.Any] | None
    found: dict[str, str]
    versions: t.Mapping[str, list[str]] | None

    @property
    def name(self) -> str:
        return self.host["os"]["name"]


def found_on(host: Host) -> dict[str, str]:
    """Return the installed packages of the toolkit with their versions."""
    known = {name: installed.versions(name, host["installed_packages"]) for name in UNIT}
    return {name: versions[-1] for name, versions in known.items() if versions}


def version_of(found: t.Mapping[str, str]) -> str | None:
    """Return the version of the installed toolkit. The base works without the other packages."""
    return next((found[name] for name in UNIT[:2] if name in found), None)


def plan(
    host: Host, request: ToolkitRequest, platforms: dict[str, t.Any], versions: t.Mapping[str, list[str]] | None
) -> ToolkitPackages:
    """Return the plan. `versions` has the available versions by package, or None before the query."""
    case = _Case(host, request, platforms.get(host["os"]["key"] or ""), found_on(host), versions)
    result, work = ToolkitPackages(), ToolkitTransaction()
    result.installed = result.version = version_of(case.found)
    # A newer 1.19.x may suit a request for 1.19.
    may_suit = not request.version or _fits(vulnerabilities.FLOOR, request.version)
    below = None if may_suit else _too_old(case, request.version)
    if below:
        result.problems.append(f"{_ROLE}_version={request.version} {below}")
        return result
    wrong = _wrong(case)
    if wrong and request.source == "preinstalled":
        result.problems.append(
            f"{_ROLE}_source=preinstalled, but {wrong}. Change the packages with the tool that installed them, or set "
            f"{_ROLE}_source=auto."
        )
    elif wrong:
        _install(case, result, work, wrong)
    elif not _own(host):
        result.reasons.append(f"the installed toolkit {result.version} is kept")
    if result.problems:
        return result
    if request.source != "preinstalled":
        if not wrong:
            _refresh_repository(case, work)
        _holds(case, work)
    if any(vars(work).values()) or packages_record.is_unfinished(host, owned.CONTAINER_TOOLKIT_RECORD):
        result.transaction = work
    if work.install:
        work.keep = list(driver_membership.SELECTORS)
    if request.accept_vulnerable and vulnerabilities.of(result.version) and result.version:
        known = ", ".join(vulnerabilities.of(result.version))
        result.reasons.append(f"{_ROLE}_accept_vulnerable is true: {result.version} has {known}")
    return result


# --- the installed packages -------------------------------------------------------------------------------------------


def _wrong(case: _Case) -> str | None:
    """Return why the installed packages cannot stay, or None."""
    found, request = case.found, case.request
    if not found:
        return "the toolkit is not installed"
    numbers = {version.rpartition(":")[2] for version in found.values()}
    if len(numbers) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
        return f"the packages have different versions: {listed}"
    missing = [name for name in UNIT if name not in found]
    if missing and request.source != "preinstalled":
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    version = version_of(found)
    if version is None:
        return f"{UNIT[0]} is not installed"
    if not _fits(version, request.version):
        return f"version {version} is installed, and {_ROLE}_version is {request.version}"
    old = _too_old(case, version)
    return f"the installed version {version} {old}" if old else None


def _too_old(case: _Case, version: str) -> str | None:
    known = vulnerabilities.of(version)
    if not known or case.request.accept_vulnerable:
        return None
    return (
        f"has known vulnerabilities: {', '.join(known)}. {vulnerabilities.FLOOR} is the first version without them. "
        f"Request a newer version, or set {_ROLE}_accept_vulnerable=true"
    )


def _fits(version: str, requested: str) -> bool:
    """Return whether a version is the requested one. "1.20" requests any 1.20.x."""
    exact = version_key(requested)
    return version_key(version)[: len(exact)] == exact


def _own(host: Host) -> bool:
    """Return whether this role has installed packages."""
    return bool(packages_record.read(host, owned.CONTAINER_TOOLKIT_RECORD)["requested"])


# --- the installation -------------------------------------------------------------------------------------------------


def _install(case: _Case, result: ToolkitPackages, work: ToolkitTransaction, wrong: str) -> None:
    host = case.host
    recorded = packages_record.read(host, owned.CONTAINER_TOOLKIT_RECORD)["holds"]
    foreign = [name for name in case.found if name in host["held_packages"] and name not in recorded]
    if foreign:
        result.problems.append(
            f"{capitalized(wrong)}, but {', '.join(foreign)} {'is' if len(foreign) == 1 else 'are'} held, "
            "and not by this role. Release the hold, or remove the setting that requires another version."
        )
        return
    _choose_source(case, result, work)
    if result.problems:
        return
    result.reasons.append(wrong)
    available = case.versions or {}
    if any(name not in available for name in UNIT):
        result.query = {"query": list(UNIT), "repositories": work.repositories}
        result.version = None
        work.install = list(UNIT)
        return
    chosen = _choose(case, result)
    if chosen:
        result.version = chosen[UNIT[0]]
        work.install = [f"{name}={version}" for name, version in chosen.items()]


def _choose_source(case: _Case, result: ToolkitPackages, work: ToolkitTransaction) -> None:
    """Choose the source, and plan its repository."""
    platform, request, host = case.platform, case.request, case.host
    definition = repository.define(host, request) if platform is not None else None
    if platform is None or definition is None:
        what = case.name if platform is None else f"{case.name} ({host['os']['arch']})"
        result.problems.append(
            f"This role cannot install NVIDIA's container toolkit on {what}. Install it yourself, then set "
            f"{_ROLE}_source=preinstalled, or set {_ROLE}_source=none."
        )
        return
    if request.source == "distribution":
        if "distribution" not in platform:
            result.problems.append(
                f"{_ROLE}_source=distribution is not available: {case.name} has no package {UNIT[0]}. Set "
                f"{_ROLE}_source=nvidia."
            )
        result.source = "distribution"
        return
    result.source = "nvidia"
    if repository.others(host):
        return
    if not own_repository.is_present(host, repository.NAME) or own_repository.is_outdated(host, definition):
        work.repositories = [definition]
    _pin(case, work, definition)


def _refresh_repository(case: _Case, work: ToolkitTransaction) -> None:
    """Plan changed settings of the role's own repository."""
    definition = repository.define(case.host, case.request) if case.platform is not None else None
    if definition and own_repository.is_present(case.host, repository.NAME):
        work.repositories = [definition] if own_repository.is_outdated(case.host, definition) else []
        _pin(case, work, definition)


def _pin(case: _Case, work: ToolkitTransaction, definition: dict[str, t.Any]) -> None:
    """Plan apt's preference. With dnf and zypper, the definition has a priority."""
    if case.host["apt"] is None:
        return
    path, content = owned.CONTAINER_TOOLKIT_APT_PREFERENCES, repository.preference(definition, UNIT)
    if observed_files.content(case.host, path) != content:
        work.files = [{"path": path, "state": "present", "content": content}]


def _choose(case: _Case, result: ToolkitPackages) -> dict[str, str] | None:
    """Return the versions to install: the newest suitable one that all packages have. Else add a problem."""
    available, request = case.versions or {}, case.request
    main = available[UNIT[0]]
    place = _place(case, result)
    if not main:
        hint = (
            ((case.platform or {}).get("distribution") or {}).get("hint") if result.source == "distribution" else None
        )
        result.problems.append(f"{place} has no {UNIT[0]}. {hint or 'Set another source or mirror.'}")
        return None
    suitable = [version for version in main if _fits(version, request.version)]
    secure = [version for version in suitable if not _too_old(case, version)]
    complete = [version for version in secure if all(_build(available[name], version) for name in UNIT)]
    if complete:
        return {name: t.cast("str", _build(available[name], complete[0])) for name in UNIT}
    some = ", ".join(main[:_MOST_NAMED_VERSIONS])
    if secure:
        lacking = [name for name in UNIT if not _build(available[name], secure[0])]
        reason = f"{place} has {UNIT[0]} {secure[0]}, but not {', '.join(lacking)} in this version"
    elif suitable:
        reason = (
            f"{place} has no version without known vulnerabilities ({vulnerabilities.FLOOR} or newer). It has {some}"
        )
    else:
        reason = f"{_ROLE}_version={request.version}, but {place} has no such version. It has {some}"
    remedy = "set another source or mirror" + (
        f", or {_ROLE}_accept_vulnerable=true" if suitable and not secure else ""
    )
    result.problems.append(f"{capitalized(reason)}. Request another version, or {remedy}.")
    return None


def _build(available: list[str], version: str) -> str | None:
    """Return the same build of another package. Epochs differ between packages, releases do not."""
    number = version.rpartition(":")[2]
    return next((item for item in available if item.rpartition(":")[2] == number), None)


def _place(case: _Case, result: ToolkitPackages) -> str:
    if result.source == "distribution":
        return case.name
    files = repository.others(case.host)
    if files:
        return f"the repository in {', '.join(files)}"
    definition = repository.define(case.host, case.request)
    return f"NVIDIA's repository {definition['url'] if definition else ''}"


# --- holds ------------------------------------------------------------------------------------------------------------


def _holds(case: _Case, work: ToolkitTransaction) -> None:
    host, held = case.host, case.host["held_packages"]
    if not case.request.hold:
        recorded = packages_record.read(host, owned.CONTAINER_TOOLKIT_RECORD)["holds"]
        work.release = sorted(name for name in recorded if name in held)
        return
    # The packages of another tool are its to hold.
    if not work.install and not _own(host):
        return
    members = [name for name in UNIT if work.install or name in case.found]
    if work.install or any(name not in held for name in members):
        work.hold = members
        plugin = (case.platform or {}).get("hold_needs")
        work.install += [plugin] if plugin and not installed.is_installed(host, plugin) else []
