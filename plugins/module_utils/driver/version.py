# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses one of the available versions of the driver's branch."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source_change_advice
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import (
    UPGRADE_KERNEL,
    NoModule,
    NoVersion,
    Resolution,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def installed_version(host: Host) -> str | None:
    """Return the version of the installed driver's library, else of its modules on disk, else of its loaded module.

    In this order, because programs load the library, and the next boot loads the modules on disk.
    """
    return nvidia_driver(host)["library"] or nvidia_driver(host)["on_disk"] or nvidia_driver(host)["loaded"]


def version_in_use(host: Host) -> str | None:
    """Return the driver version that programs can use now: of the loaded module, else of the installed driver."""
    return nvidia_driver(host)["loaded"] or installed_version(host)


def older(host: Host, minimum: str) -> bool:
    """Return whether the installed driver is older than a version, or missing."""
    version = installed_version(host)
    return version is None or natural_key(version) < natural_key(upstream_version(minimum))


def satisfies(version: str, branch: str | None, request: DriverRequest, first_version: str = "") -> bool:
    """Return whether an upstream version satisfies the request and is not older than the first one for the GPUs."""
    if branch and version.partition(".")[0] != branch:
        return False
    if first_version and natural_key(version) < natural_key(first_version):
        return False
    exact, minimum = request.version, request.minimum_version
    if exact and version != upstream_version(str(exact)):
        return False
    return not (minimum and natural_key(version) < natural_key(upstream_version(str(minimum))))


def is_available(
    available: dict, names: list[str], branch: str | None, request: DriverRequest, first_version: str = ""
) -> bool:
    """Return whether any of the packages is available in a version of this branch that satisfies the request."""
    return any(
        satisfies(upstream_version(version), branch, request, first_version)
        for name in names
        for version in available.get(name, [])
    )


class Search(NamedTuple):
    """The version to look for, and words for messages about it."""

    request: DriverRequest
    branch: str | None
    # The repository, and what to check if it lacks packages.
    place: str
    remedy: str
    # Patterns that match the names of a driver package in all branches, if names contain the branch.
    name_patterns: list[str]
    # Packages that have the same name in all branches.
    common_packages: list[str]
    # For advice on other sources.
    result: Resolution
    # The first version that lists the GPUs as supported.
    first_version: str = ""
    # The driver versions of the prebuilt modules for the next kernel, or None without such modules; and that kernel.
    module_versions: Collection[str] | None = None
    kernel: str = ""
    # How to get other prebuilt modules, and whether DKMS can build the modules instead.
    prebuilt_hint: str = UPGRADE_KERNEL
    has_dkms: bool = True


def choose_version(available: dict, lockstep: list[str], search: Search, installed: set[str] | None = None) -> str:
    """Return a version in which every package of the set is available. Prefer an installed version."""
    offered = {name: {upstream_version(version) for version in available.get(name, [])} for name in lockstep}
    absent = sorted(name for name, versions in offered.items() if not versions)
    request = search.request
    if absent:
        remedy = _alternatives(_other_drivers(available, search), search)
        if not search.has_dkms:
            nvidia = source_change_advice.advice(search.result, "nvidia")
            remedy = (
                f"Enable a repository that has them, or {nvidia}, whose modules need an enrolled key with Secure Boot."
            )
        raise NoVersion(f"{_requested(search)}, but {search.place} has no package {', '.join(absent)}. {remedy}")
    common = set.intersection(*offered.values()) if offered else set()
    suitable = sorted((version for version in common if _suits(version, search)), key=natural_key)
    if not suitable:
        raise NoVersion(
            f"{_requested(search)}, but {search.place} has no such version{_lacking(offered, search)}. "
            + _alternatives(_other_drivers(available, search) or common, search)
        )
    without_module, suitable = suitable, [version for version in suitable if _has_module(version, search)]
    if not suitable:
        of_module = ", ".join(sorted(search.module_versions or (), key=natural_key))
        raise NoModule(
            f"the prebuilt module for kernel {search.kernel}, which boots next, is for driver {of_module}, but "
            f"{search.place} has only driver {', '.join(without_module)} for this request",
            search.prebuilt_hint,
            search.has_dkms,
        )
    explicit = bool(request.version)
    kept = [version for version in suitable if version in (installed or set())]
    if kept and not explicit:
        return kept[-1]
    satisfying = {version for version in installed or set() if _suits(version, search)}
    if satisfying and not explicit:
        old = ", ".join(sorted(satisfying))
        why = f"is installed but incomplete, and {search.place} provides only {', '.join(suitable)}"
        if search.module_versions is not None and satisfying.isdisjoint(search.module_versions):
            why = f"is installed, but the prebuilt module for kernel {search.kernel}, which boots next, is for driver "
            why += ", ".join(suitable)
        raise NoVersion(
            f"Driver {old} {why}. The role changes the driver's version only on request. Set nvidia_driver_version to "
            f"{suitable[-1]}."
        )
    return suitable[-1]


def _lacking(offered: dict[str, set[str]], search: Search) -> str:
    """Name the packages that lack a suitable version, or those that each of the newest versions lacks."""
    suitable = {
        name: {version for version in versions if _suits(version, search)} for name, versions in offered.items()
    }
    without = sorted(name for name, versions in suitable.items() if not versions)
    if without:
        return f" of {', '.join(without)}" if len(without) < len(offered) else ""
    newest = sorted(set().union(*suitable.values()), key=natural_key)[-3:]
    return " with all packages: " + "; ".join(
        f"{version} lacks {', '.join(sorted(name for name in suitable if version not in suitable[name]))}"
        for version in newest
    )


def _has_module(version: str, search: Search) -> bool:
    return search.module_versions is None or version in search.module_versions


def _requested(search: Search) -> str:
    request, node = search.request, search.result.node_version
    if node:
        return source_change_advice.needed_by_guest(node)
    names = ("version",) if request.version else ("branch", "minimum_version")
    parts = [f"nvidia_driver_{name} is {getattr(request, name)}" for name in names if getattr(request, name)]
    chosen = " and ".join(parts) or f"Branch {search.branch} was chosen"
    return f"{chosen}, and the GPUs need {search.first_version} or newer" if search.first_version else chosen


def _suits(version: str, search: Search) -> bool:
    return satisfies(version, search.branch, search.request, search.first_version)


def _other_drivers(available: dict, search: Search) -> set[str]:
    """Return the available driver versions that do not satisfy the request, of all branches.

    A version that satisfies it is available in part at most, and is therefore no alternative.
    """
    matching = [name for name in available if any(fnmatch.fnmatchcase(name, item) for item in search.name_patterns)]
    if matching:
        versions = {upstream_version(version) for name in matching for version in available[name]}
    else:
        offered = [{upstream_version(item) for item in available.get(name, [])} for name in search.common_packages]
        versions = set.intersection(*offered) if offered else set()
    return {version for version in versions if not _suits(version, search)}


def _alternatives(versions: set[str], search: Search) -> str:
    if search.result.node_version:
        found = f"Available drivers: {', '.join(sorted(versions, key=natural_key))}. " if versions else ""
        return f"{found}{source_change_advice.advice_for_guest(search.result.node_version)}"
    if not versions:
        return f"{capitalized(source_change_advice.advice(search.result))}, or check that {search.remedy}."
    available = ", ".join(sorted(versions, key=natural_key))
    other = source_change_advice.advice(search.result, *search.result.other_sources)
    return f"Available drivers: {available}. Request one of them or {other}."


def check_stream(wanted: str, streams: dict, place: str, other_source: str) -> None:
    """Refuse a module stream that the repository lacks, for example because a mirror has no module metadata.

    `other_source` says how to use another source.
    """
    module, _colon, stream = wanted.partition(":")
    available = streams.get(module, [])
    if stream not in available:
        hint = (
            f"Available streams: {', '.join(available)}. Request the branch and flavor of one of these streams"
            if available
            else f"The repository has no module {module}. If it is a mirror, add the module metadata to it"
        )
        raise NoVersion(
            f"The driver's packages are in the module stream {wanted}, but the repository {place} has no such stream. "
            f"{hint}, or {other_source}."
        )


def newest_build(available: dict, name: str, version: str) -> str | None:
    """Return the newest full version of a package with this upstream version, or None."""
    builds = [entry for entry in available.get(name, []) if upstream_version(entry) == version]
    return max(builds, key=natural_key, default=None)
