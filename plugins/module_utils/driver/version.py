# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses the driver's branch, which must support all GPUs of the host, and one of its available versions."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.request import Request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.types import Case, NoVersion, Refused, Window
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations as hardware_generations
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.generations import Generation

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

# --- branch -------------------------------------------------------------------------------------------------------


def window(generations: dict[str, Generation]) -> Window:
    """Return the lowest and the highest branch that support all GPUs, and the GPUs that set these limits."""
    lowest = max(generations, key=lambda device: generations[device].first_branch)
    ends = [device for device in generations if generations[device].last_branch]
    highest = min(ends, key=lambda device: generations[device].last_branch or 0) if ends else None
    return Window(
        generations[lowest].first_branch,
        generations[highest].last_branch if highest else None,
        f"{lowest} ({generations[lowest].name})",
        f"{highest} ({generations[highest].name})" if highest else "",
    )


def supports_all(branch: str, window: Window) -> bool:
    """Return whether a branch supports all GPUs."""
    return int(branch) >= window.first and (window.last is None or int(branch) <= window.last)


def supporting_branches(data: dict, window: Window) -> list[str]:
    """Return the source's branches that support all GPUs, preferred one first."""
    return [branch for branch in data["branches"] if supports_all(branch, window)]


def check_window(case: Case) -> None:
    """Refuse a host whose GPUs have no branch in common."""
    first, last, new, old = case.window
    if last is not None and first > last:
        raise Refused(
            f"No driver branch supports all GPUs of this host: {old} needs branch {last} or older, and {new} needs "
            f"branch {first} or newer. Remove one kind of GPU. If only {old} remains and no other source provides "
            f"branch {last}, set nvidia_driver_source to runfile and nvidia_driver_version to a version of that branch."
        )


def requested_branch(request: Request) -> str | None:
    """Return the branch that the request names, directly or by a version."""
    return request.branch or (_branch_of(request.version) if request.version else None)


def candidates(case: Case, data: dict) -> list[str]:
    """Return the source's branches that support all GPUs and satisfy the request, preferred one first."""
    requested, minimum = requested_branch(case.request), case.request.minimum_version
    if requested:
        available = not data.get("fixed") or requested in data["branches"]
        return [requested] if available and supports_all(requested, case.window) else []
    branches = supporting_branches(data, case.window)
    return [name for name in branches if not minimum or int(name) >= int(_branch_of(minimum))]


def choose_branch(case: Case, data: dict, is_installed: bool) -> str:
    """Return the requested branch, else the installed one, else the source's first that supports all GPUs."""
    _check_agreement(case.request)
    requested = requested_branch(case.request)
    if requested is None:
        return _default_branch(case, data, is_installed)
    if not supports_all(requested, case.window):
        raise Refused(
            f"{_setting(case.request)}, but {_limit(requested, case.window)}. Request a branch in that range."
        )
    # With a version, the refusal comes after the query, so that it can list the available versions.
    if data.get("fixed") and requested not in data["branches"] and not case.request.version:
        raise Refused(
            f"{_setting(case.request)}, but source {case.result.source} provides only "
            f"{', '.join(data['branches'])}. Request that branch or set another nvidia_driver_source."
        )
    last = hardware_generations.LAST_PROPRIETARY_BRANCH
    if case.result.flavor == "proprietary" and int(requested) > last:
        raise Refused(
            f"{_setting(case.request)}, but branch {requested} has no proprietary kernel modules; {last} is the last "
            f"branch with them. Request branch {last}, or set nvidia_driver_flavor to auto."
        )
    case.result.reasons.append(f"branch {requested}: requested")
    return requested


def _default_branch(case: Case, data: dict, is_installed: bool) -> str:
    """Return the first suitable branch that was not rejected, and record the alternatives to it."""
    minimum, rejected = case.request.minimum_version, case.result.rejected_branches
    installed = _installed_branch(case.host) if is_installed else None
    installed = installed if installed and supports_all(installed, case.window) else None
    if installed and not (minimum and older(case.host, minimum)):
        case.result.reasons.append(f"branch {installed}: already installed")
        return installed
    suitable = candidates(case, data)
    # If the installed driver is older than the minimum, try a newer version of its branch before another branch.
    if installed and minimum and int(installed) >= int(_branch_of(minimum)):
        suitable = [installed, *(name for name in suitable if name != installed)]
    suitable = [name for name in suitable if name not in rejected]
    if not suitable:
        raise Refused(_no_branch(data, case.window, case.result.source, minimum))
    if rejected:
        why = f"the repositories have no version {minimum} or newer of branch {', '.join(rejected)}"
    elif suitable[0] == installed:
        why = "already installed"
    elif suitable[0] == data["branches"][0]:
        why = "the source's default"
    else:
        why = "the source's first branch that supports the GPUs"
    case.result.reasons.append(f"branch {suitable[0]}: {why}")
    if minimum:
        last = hardware_generations.LAST_PROPRIETARY_BRANCH if case.result.flavor == "proprietary" else None
        case.result.alternative_branches = [name for name in suitable[1:] if last is None or int(name) <= last]
    return suitable[0]


def _setting(request: Request) -> str:
    if request.version:
        return f"nvidia_driver_version is {request.version}"
    return f"nvidia_driver_branch is {request.branch}"


def _branch_of(version: str) -> str:
    return upstream_version(version).partition(".")[0]


def _check_agreement(request: Request) -> None:
    """Refuse settings that no single version can satisfy."""
    branch, version, minimum = request.branch, request.version, request.minimum_version
    if version and branch and _branch_of(version) != branch:
        raise Refused(f"nvidia_driver_version {version} is not in nvidia_driver_branch {branch}. Set only one of them.")
    if not minimum:
        return
    if version and natural_key(upstream_version(version)) < natural_key(upstream_version(minimum)):
        raise Refused(
            f"nvidia_driver_version {version} is older than nvidia_driver_minimum_version {minimum}. Set only one of "
            "them."
        )
    if branch and int(branch) < int(_branch_of(minimum)):
        raise Refused(
            f"nvidia_driver_branch {branch} is older than nvidia_driver_minimum_version {minimum}. Set only one of "
            "them."
        )


def _installed_version(host: Host) -> str | None:
    return host["driver"]["library"] or host["driver"]["on_disk"] or host["driver"]["loaded"]


def _installed_branch(host: Host) -> str | None:
    version = _installed_version(host)
    return version.partition(".")[0] if version else None


def older(host: Host, minimum: str) -> bool:
    """Return whether the installed driver is older than a version, or missing."""
    version = _installed_version(host)
    return version is None or natural_key(version) < natural_key(upstream_version(minimum))


def _limit(branch: str, window: Window) -> str:
    if int(branch) < window.first:
        return f"{window.first_gpu} needs branch {window.first} or newer"
    return f"{window.last_gpu} needs branch {window.last} or older"


def _no_branch(data: dict, window: Window, source: str, minimum: str | None) -> str:
    branches = ", ".join(data["branches"])
    if minimum and window.last is not None and int(_branch_of(minimum)) > window.last:
        return (
            f"nvidia_driver_minimum_version is {minimum}, but {window.last_gpu} needs branch {window.last} or older. "
            "Lower the minimum."
        )
    if minimum and supporting_branches(data, window):
        newer = "" if data.get("fixed") else ", set nvidia_driver_branch to a newer branch of this source,"
        return (
            f"nvidia_driver_minimum_version is {minimum}, but source {source} provides the branches {branches}. Lower "
            f"the minimum{newer} or set another nvidia_driver_source."
        )
    if all(int(branch) < window.first for branch in data["branches"]):
        return (
            f"{window.first_gpu} needs branch {window.first} or newer, but source {source} provides {branches}. Set "
            "another nvidia_driver_source."
        )
    return (
        f"{window.last_gpu} needs branch {window.last} or older, but source {source} provides {branches}. Set another "
        "nvidia_driver_source."
    )


# --- version ------------------------------------------------------------------------------------------------------


def satisfies(version: str, branch: str | None, request: Request) -> bool:
    """Return whether an upstream version satisfies the request."""
    if branch and version.partition(".")[0] != branch:
        return False
    exact, minimum = request.version, request.minimum_version
    if exact and version != upstream_version(str(exact)):
        return False
    return not (minimum and natural_key(version) < natural_key(upstream_version(str(minimum))))


def is_available(available: dict, names: list[str], branch: str | None, request: Request) -> bool:
    """Return whether any of the packages is available in a version of this branch that satisfies the request."""
    return any(
        satisfies(upstream_version(version), branch, request) for name in names for version in available.get(name, [])
    )


class Search(NamedTuple):
    """The version to look for, and words for messages about it."""

    request: Request
    branch: str | None
    # The repository, and what to check if it lacks packages.
    place: str
    remedy: str
    # Patterns that match the names of a driver package in all branches, if names contain the branch.
    name_patterns: list[str]
    # Packages that have the same name in all branches.
    common_packages: list[str]
    # Other sources from which a host without a driver can install one.
    other_sources: Sequence[str] = ()


def choose_version(available: dict, lockstep: list[str], search: Search, installed: set[str] | None = None) -> str:
    """Return a version in which every package of the set is available; an installed one before a newer one."""
    offered = {name: {upstream_version(version) for version in available.get(name, [])} for name in lockstep}
    absent = sorted(name for name, versions in offered.items() if not versions)
    branch, request = search.branch, search.request
    if absent:
        raise NoVersion(
            f"{_requested(search)}, but {search.place} has no package {', '.join(absent)}. "
            + _alternatives(_other_drivers(available, search), search)
        )
    common = set.intersection(*offered.values()) if offered else set()
    suitable = sorted((version for version in common if satisfies(version, branch, request)), key=natural_key)
    if not suitable:
        partial = {
            name for name in lockstep if not any(satisfies(version, branch, request) for version in offered[name])
        }
        lacking = f" of {', '.join(sorted(partial))}" if len(partial) < len(lockstep) else ""
        raise NoVersion(
            f"{_requested(search)}, but {search.place} has no such version{lacking}. "
            + _alternatives(_other_drivers(available, search) or common, search)
        )
    explicit = bool(request.version)
    kept = [version for version in suitable if version in (installed or set())]
    if kept and not explicit:
        return kept[-1]
    satisfying = {version for version in installed or set() if satisfies(version, branch, request)}
    if satisfying and not explicit:
        old = ", ".join(sorted(satisfying))
        raise NoVersion(
            f"Driver {old} is installed but incomplete, and {search.place} provides only {', '.join(suitable)}. The "
            f"role does not change the driver's version without a request. Set nvidia_driver_version to {suitable[-1]}."
        )
    return suitable[-1]


def _requested(search: Search) -> str:
    request = search.request
    names = ("version",) if request.version else ("branch", "minimum_version")
    parts = [f"nvidia_driver_{name} is {getattr(request, name)}" for name in names if getattr(request, name)]
    return " and ".join(parts) or f"Branch {search.branch} was chosen"


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
    return {version for version in versions if not satisfies(version, search.branch, search.request)}


def _alternatives(versions: set[str], search: Search) -> str:
    if not versions:
        return f"Set another nvidia_driver_source, or check that {search.remedy}."
    others = " or ".join(search.other_sources)
    instead = f"set nvidia_driver_source to {others}" if others else "set another nvidia_driver_source"
    return f"Available drivers: {', '.join(sorted(versions, key=natural_key))}. Request one of them or {instead}."


def check_stream(wanted: str, streams: dict, place: str) -> None:
    """Refuse a module stream that the repository lacks, for example because a mirror has no module metadata."""
    module, _colon, stream = wanted.partition(":")
    available = streams.get(module, [])
    if stream not in available:
        hint = (
            f"Available streams: {', '.join(available)}. Request a branch and flavor of one of them"
            if available
            else f"It has no module {module}. Mirror the repository's module metadata"
        )
        raise NoVersion(
            f"The driver's packages are in the module stream {wanted}, but the repository {place} has no such stream. "
            f"{hint}, or set another nvidia_driver_source."
        )


def newest_build(available: dict, name: str, version: str) -> str | None:
    """Return the newest full version of a package with this upstream version, or None."""
    builds = [entry for entry in available.get(name, []) if upstream_version(entry) == version]
    return max(builds, key=natural_key, default=None)
