# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses the driver's branch, which must support all GPUs of the host."""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source_change_advice
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import version as driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import Case, Refused, Window
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_driver_branches
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.nvidia_generations import Generation


def window(generations: dict[str, Generation]) -> Window:
    """Return the lowest and the highest branch that support all GPUs, and the GPUs that set these limits."""
    latest = max(generations, key=lambda device: natural_key(generations[device].first_version))
    lowest = max(generations, key=lambda device: generations[device].first_branch)
    ends = [device for device in generations if generations[device].last_branch]
    highest = min(ends, key=lambda device: generations[device].last_branch or 0) if ends else None
    return Window(
        generations[lowest].first_branch,
        generations[highest].last_branch if highest else None,
        f"{lowest} ({generations[lowest].name})",
        f"{highest} ({generations[highest].name})" if highest else "",
        generations[latest].first_version,
        f"{latest} ({generations[latest].name})",
    )


def supports_all(branch: str, window: Window) -> bool:
    """Return whether a branch supports all GPUs."""
    return int(branch) >= window.first and (window.last is None or int(branch) <= window.last)


def _lists_all(branch: str, window: Window) -> bool:
    """Return whether a branch has drivers that list all GPUs as supported."""
    first = _branch_of(window.first_version) if window.first_version else branch
    return supports_all(branch, window) and int(branch) >= int(first)


def _last_proprietary(data: dict) -> int:
    """Return the source's last branch with proprietary modules."""
    return int(data.get("last_proprietary", nvidia_driver_branches.LAST_PROPRIETARY_BRANCH))


def _has_flavor(case: Case, data: dict, branch: str) -> bool:
    """Return whether a branch of a source has modules of the required flavor."""
    proprietary = "proprietary" in (case.result.flavor, case.request.flavor)
    return not proprietary or int(branch) <= _last_proprietary(data)


def _default_branches(case: Case, data: dict) -> list[str]:
    """Return the source's branches to choose from without a request, preferred one first.

    A source with a single branch stays usable after its end of life, because the distribution maintains it.
    """
    return [
        name
        for name in data["branches"]
        if _lists_all(name, case.window)
        and (data.get("fixed") or nvidia_driver_branches.end_of_life(name) is None)
        and _has_flavor(case, data, name)
    ]


def _is_provided(branch: str, data: dict) -> bool:
    """Return whether a source may have a branch. Unknown branches may be newer than the data."""
    if data.get("fixed"):
        return branch in data["branches"]
    return branch not in data.get("transitional", {}) and int(branch) >= int(data.get("oldest_branch", 0))


def check_window(case: Case) -> None:
    """Refuse a host whose GPUs have no branch in common."""
    first, last, new, old = case.window[:4]
    if last is not None and first > last:
        raise Refused(
            f"No driver branch supports all GPUs of this host: {old} needs branch {last} or older, and {new} needs "
            f"branch {first} or newer. Remove one kind of GPU. If only {old} remains and no other source provides "
            f"branch {last}, set nvidia_driver_source to runfile and nvidia_driver_version to a version of that branch."
        )


def requested_branch(request: DriverRequest) -> str | None:
    """Return the branch that the request names, directly or by a version."""
    return request.branch or (_branch_of(request.version) if request.version else None)


def candidates(case: Case, data: dict) -> list[str]:
    """Return the source's branches that support all GPUs and satisfy the request, preferred one first."""
    requested, minimum = requested_branch(case.request), case.request.minimum_version
    if requested:
        is_suitable = _is_provided(requested, data) and _has_flavor(case, data, requested)
        return [requested] if is_suitable and _lists_all(requested, case.window) else []
    branches = _default_branches(case, data)
    return [name for name in branches if not minimum or int(name) >= int(_branch_of(minimum))]


class BranchChoice(NamedTuple):
    """A branch, and what the choice means for the rest of the resolution."""

    branch: str
    reasons: list[str]
    first_version: str = ""
    successor: str | None = None
    # Those to try if `branch` has no suitable version.
    alternatives: tuple[str, ...] = ()


def choose_branch(case: Case, data: dict, is_installed: bool) -> BranchChoice:
    """Return the requested branch, else the installed one, else the source's first that supports all GPUs."""
    _check_agreement(case.request)
    requested = requested_branch(case.request)
    if requested is None:
        return _default_branch(case, data, is_installed)
    if not supports_all(requested, case.window):
        raise Refused(f"{_setting(case.request)}, but {_limit(requested, case.window)}. Request {_range(case.window)}.")
    _check_first_version(case, is_installed)
    # With a version, the refusal comes after the query, so that it can list the available versions.
    if data.get("fixed") and requested not in data["branches"] and not case.request.version:
        raise Refused(
            f"{_setting(case.request)}, but source {case.result.source} provides only "
            f"{', '.join(data['branches'])}. Request that branch or {source_change_advice.advice(case.result)}."
        )
    _check_provided(case, data, requested)
    last = _last_proprietary(data)
    if case.result.flavor == "proprietary" and int(requested) > last:
        raise Refused(
            f"{_setting(case.request)}, but branch {requested} has no proprietary kernel modules in source "
            f"{case.result.source}; {last} is the last branch with them. Request branch {last}, or set "
            "nvidia_driver_flavor to auto."
        )
    first, limits = limits_of(case, requested, driver_version.installed_version(case.host) if is_installed else None)
    return BranchChoice(requested, [f"branch {requested}: requested", *limits], first)


def _check_first_version(case: Case, is_installed: bool) -> None:
    """Refuse a requested branch or version that is older than the first driver for the GPUs. An installed one stays."""
    request, first = case.request, case.window.first_version
    requested = upstream_version(request.version) if request.version else None
    if not first or (is_installed and requested and requested == driver_version.installed_version(case.host)):
        return
    older = natural_key(requested) < natural_key(first) if requested else int(request.branch) < int(_branch_of(first))
    if older:
        raise Refused(
            f"{_setting(request)}, but {first} is the first driver that lists {case.window.first_version_gpu} as "
            f"supported. Request {first} or newer."
        )


def _check_provided(case: Case, data: dict, branch: str) -> None:
    """Refuse a branch that a source is known to lack, or of which it has only transitional packages."""
    successor = data.get("transitional", {}).get(branch)
    source = case.result.source
    if successor:
        raise Refused(
            f"{_setting(case.request)}, but the packages of branch {branch} of source {source} are transitional: they "
            f"install branch {successor}. Request branch {successor} or "
            f"{source_change_advice.advice(case.result)}."
        )
    oldest = data.get("oldest_branch")
    if oldest and int(branch) < int(oldest):
        raise Refused(
            f"{_setting(case.request)}, but the oldest branch of source {source} on this platform is {oldest}. "
            f"Request branch {oldest} or newer, or {source_change_advice.advice(case.result)}."
        )


def limits_of(case: Case, branch: str, installed: str | None) -> tuple[str, list[str]]:
    """Return the first driver for the GPUs, if it limits the versions, and what the user has to know about a branch."""
    found = []
    ended = nvidia_driver_branches.end_of_life(branch)
    first, gpu = case.window.first_version, case.window.first_version_gpu
    if ended is not None:
        when = f" in {ended}" if ended else ""
        supported = " or ".join(map(str, nvidia_driver_branches.SUPPORTED_BRANCHES))
        found.append(
            f"branch {branch} is past its end of life: NVIDIA ended its support{when}. Supported branches: {supported}"
        )
    if first and installed and natural_key(installed) < natural_key(first):
        found.append(
            f"driver {installed} is already installed and is kept, although {first} is the first driver that lists "
            f"{gpu} as supported"
        )
    elif first and installed is None and _branch_of(first) == branch:
        return first, [*found, f"version {first} or newer: the first driver that lists {gpu} as supported"]
    return "", found


def _default_branch(case: Case, data: dict, is_installed: bool) -> BranchChoice:
    """Return the first suitable branch that was not rejected, and the alternatives to it."""
    minimum, rejected = case.request.minimum_version, case.result.rejected_branches
    version = driver_version.installed_version(case.host) if is_installed else None
    installed = _branch_of(version) if version else None
    installed = installed if installed and supports_all(installed, case.window) else None
    successor = data.get("transitional", {}).get(installed)
    if installed and not (minimum and driver_version.older(case.host, minimum)):
        first, limits = limits_of(case, installed, version)
        return BranchChoice(installed, [f"branch {installed}: already installed", *limits], first, successor)
    suitable = candidates(case, data)
    # If the installed driver is older than the minimum, try a newer version of its branch before another branch.
    if installed and minimum and int(installed) >= int(_branch_of(minimum)) and not successor:
        suitable = [installed, *(name for name in suitable if name != installed)]
    suitable = [name for name in suitable if name not in rejected]
    if not suitable:
        raise Refused(_no_branch(case, data))
    chosen = suitable[0]
    if rejected:
        at_least = f"version {minimum} or newer of " if minimum else ""
        why = f"the repositories have no {at_least}branch {', '.join(rejected)}"
    elif chosen == installed:
        why = "already installed"
    elif chosen == data["branches"][0]:
        why = "the source's default"
    else:
        why = "the source's first branch that supports the GPUs"
    first, limits = limits_of(case, chosen, None)
    return BranchChoice(chosen, [f"branch {chosen}: {why}", *limits], first, alternatives=tuple(suitable[1:]))


def _setting(request: DriverRequest) -> str:
    if request.version:
        return f"nvidia_driver_version is {request.version}"
    return f"nvidia_driver_branch is {request.branch}"


def _branch_of(version: str) -> str:
    return upstream_version(version).partition(".")[0]


def _check_agreement(request: DriverRequest) -> None:
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


def _limit(branch: str, window: Window) -> str:
    if int(branch) < window.first:
        return f"{window.first_gpu} needs branch {window.first} or newer"
    return f"{window.last_gpu} needs branch {window.last} or older"


def _range(window: Window) -> str:
    return (
        f"branch {window.first} or newer" if window.last is None else f"a branch from {window.first} to {window.last}"
    )


def _no_branch(case: Case, data: dict) -> str:
    window, source, minimum = case.window, case.result.source, case.request.minimum_version
    branches, other = ", ".join(data["branches"]), source_change_advice.advice(case.result)
    if minimum and window.last is not None and int(_branch_of(minimum)) > window.last:
        return (
            f"nvidia_driver_minimum_version is {minimum}, but {window.last_gpu} needs branch {window.last} or older. "
            "Lower the minimum."
        )
    if minimum and _default_branches(case, data):
        newer = "" if data.get("fixed") else ", set nvidia_driver_branch to a newer branch of this source,"
        return (
            f"nvidia_driver_minimum_version is {minimum}, but source {source} provides the branches {branches}. Lower "
            f"the minimum{newer} or {other}."
        )
    ended = [name for name in data["branches"] if _lists_all(name, window) and _has_flavor(case, data, name)]
    ended = [name for name in ended if not minimum or int(name) >= int(_branch_of(minimum))]
    if ended:
        return (
            f"NVIDIA no longer supports the branches of source {source} that support the GPUs of this host. Set "
            f"nvidia_driver_branch to {' or '.join(ended)}, or {other}."
        )
    if all(int(branch) < window.first for branch in data["branches"]):
        return (
            f"{window.first_gpu} needs branch {window.first} or newer, but source {source} provides {branches}. "
            f"{capitalized(other)}."
        )
    if window.last is None or any(supports_all(branch, window) for branch in data["branches"]):
        return (
            f"Source {source} has no suitable branch for {window.first_version_gpu or window.first_gpu} with these "
            f"settings. It provides {branches}. {capitalized(other)}."
        )
    return (
        f"{window.last_gpu} needs branch {window.last} or older, but source {source} provides {branches}. "
        f"{capitalized(other)}."
    )
