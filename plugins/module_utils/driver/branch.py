# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses the driver's branch, which must support all GPUs of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.request import Request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.types import Case, Refused, Window
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.version import installed_version, older
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations as hardware_generations
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.generations import Generation

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host


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


def _installed_branch(host: Host) -> str | None:
    version = installed_version(host)
    return version.partition(".")[0] if version else None


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
