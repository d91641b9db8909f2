# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which branch of the driver a host shall have: one that serves all its GPUs."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.case import Case, Refused
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations as hardware_generations


def window(generations: dict) -> tuple[int, int | None, str, str]:
    """Return the lowest and the highest branch that serve all GPUs, and the GPU that sets each."""
    lowest = max(generations, key=lambda device: generations[device].first_branch)
    ends = [device for device in generations if generations[device].last_branch]
    highest = min(ends, key=lambda device: generations[device].last_branch or 0) if ends else None
    return (
        generations[lowest].first_branch,
        generations[highest].last_branch if highest else None,
        f"{lowest} ({generations[lowest].name})",
        f"{highest} ({generations[highest].name})" if highest else "",
    )


def fits(branch: str, window: tuple) -> bool:
    """Tell whether a branch serves all GPUs."""
    return int(branch) >= window[0] and (window[1] is None or int(branch) <= window[1])


def fitting(data: dict, window: tuple) -> list[str]:
    """Return the branches of a source that serve all GPUs, the preferred one first."""
    return [branch for branch in data["branches"] if fits(branch, window)]


def check_window(case: Case) -> None:
    """Refuse GPUs that have no branch in common."""
    first, last, new, old = case.window
    if last is not None and first > last:
        raise Refused(
            f"no driver branch serves all GPUs of this host: {old} is served by branches up to {last}, and {new} needs "
            f"branch {first} or newer. Take one sort of card out. Where {old} is left alone, and no other source has "
            f"branch {last}: set nvidia_driver_source to runfile, and nvidia_driver_version to one of that branch."
        )


def asked_for(wish: dict) -> str | None:
    """Return the branch that was asked for, by itself or with a version."""
    return wish["branch"] or (_branch_of(wish["version"]) if wish["version"] else None)


def candidates(case: Case, data: dict) -> list[str]:
    """Return the branches of a source that serve all GPUs and are what was asked for, the preferred one first."""
    asked, minimum = asked_for(case.wish), case.wish["minimum_version"]
    if asked:
        has = not data.get("fixed") or asked in data["branches"]
        return [asked] if has and fits(asked, case.window) else []
    return [name for name in fitting(data, case.window) if not minimum or int(name) >= int(_branch_of(minimum))]


def choose(case: Case, data: dict, is_installed: bool) -> str:
    """Return the branch that was asked for, else the installed one, else the source's first that serves all GPUs."""
    _check_agreement(case.wish)
    asked = asked_for(case.wish)
    if asked is None:
        return _unasked(case, data, is_installed)
    if not fits(asked, case.window):
        raise Refused(f"{_words(case.wish)}, but {_served(asked, case.window)}. Ask for one of those.")
    # Which versions it has is told once it has been asked.
    if data.get("fixed") and asked not in data["branches"] and not case.wish["version"]:
        raise Refused(
            f"{_words(case.wish)}, but source {case.result['source']} has {', '.join(data['branches'])} "
            "only. Ask for that one or choose another nvidia_driver_source."
        )
    last = hardware_generations.LAST_PROPRIETARY_BRANCH
    if case.result["flavor"] == "proprietary" and int(asked) > last:
        raise Refused(
            f"{_words(case.wish)}, but branch {asked} has no proprietary kernel modules; {last} is the last that has. "
            "Ask for that one, or set nvidia_driver_flavor to auto."
        )
    case.result["reasons"].append(f"branch {asked}: asked for")
    return asked


def _unasked(case: Case, data: dict, is_installed: bool) -> str:
    """Return the first branch that may do and has not been passed over, and note those that may do in its place."""
    minimum, passed_over = case.wish["minimum_version"], case.wish["passed_over"]
    present = _installed_branch(case.host) if is_installed else None
    present = present if present and fits(present, case.window) else None
    if present and not (minimum and older(case.host, minimum)):
        case.result["reasons"].append(f"branch {present}: installed already")
        return present
    serving = candidates(case, data)
    # Another version of the branch that is there, before another branch.
    if present and minimum and int(present) >= int(_branch_of(minimum)):
        serving = [present, *(name for name in serving if name != present)]
    serving = [name for name in serving if name not in passed_over]
    if not serving:
        raise Refused(_no_branch(data, case.window, case.result["source"], minimum))
    if passed_over:
        why = f"the repositories have nothing from {minimum} on of branch {', '.join(passed_over)}"
    elif serving[0] == present:
        why = "installed already"
    elif serving[0] == data["branches"][0]:
        why = "the source's default"
    else:
        why = "the source's first that serves the GPUs"
    case.result["reasons"].append(f"branch {serving[0]}: {why}")
    if minimum:
        last = hardware_generations.LAST_PROPRIETARY_BRANCH if case.result["flavor"] == "proprietary" else None
        case.result["next_branches"] = [name for name in serving[1:] if last is None or int(name) <= last]
    return serving[0]


def _words(wish: dict) -> str:
    name = "version" if wish["version"] else "branch"
    return f"nvidia_driver_{name} is {wish[name]}"


def _branch_of(version: str) -> str:
    return upstream_version(version).partition(".")[0]


def _check_agreement(wish: dict) -> None:
    """Refuse wishes that no one version can be."""
    branch, version, minimum = wish["branch"], wish["version"], wish["minimum_version"]
    if version and branch and _branch_of(version) != branch:
        raise Refused(f"nvidia_driver_version {version} is not of nvidia_driver_branch {branch}. Set one of them.")
    if not minimum:
        return
    if version and natural_key(upstream_version(version)) < natural_key(upstream_version(minimum)):
        raise Refused(
            f"nvidia_driver_version {version} is older than nvidia_driver_minimum_version {minimum}. Set one of them."
        )
    if branch and int(branch) < int(_branch_of(minimum)):
        raise Refused(
            f"nvidia_driver_branch {branch} is older than nvidia_driver_minimum_version {minimum}. Set one of them."
        )


def _installed_branch(host: dict) -> str | None:
    version = host["driver"]["library"] or host["driver"]["on_disk"] or host["driver"]["loaded"]
    return version.partition(".")[0] if version else None


def older(host: dict, minimum: str) -> bool:
    """Tell whether the driver that is there is older than a version, or none."""
    version = host["driver"]["library"] or host["driver"]["on_disk"] or host["driver"]["loaded"]
    return version is None or natural_key(version) < natural_key(upstream_version(minimum))


def _served(branch: str, window: tuple) -> str:
    if int(branch) < window[0]:
        return f"{window[2]} needs branch {window[0]} or newer"
    return f"{window[3]} is served by branches up to {window[1]}"


def _no_branch(data: dict, window: tuple, source: str, minimum: str | None) -> str:
    has = ", ".join(data["branches"])
    if minimum and window[1] is not None and int(_branch_of(minimum)) > window[1]:
        return (
            f"nvidia_driver_minimum_version {minimum} was asked for, but {window[3]} is served by branches up to "
            f"{window[1]}. Lower it."
        )
    if minimum and fitting(data, window):
        newer = "" if data.get("fixed") else ", name a newer branch of it in nvidia_driver_branch,"
        return (
            f"nvidia_driver_minimum_version {minimum} was asked for, but source {source} has the branches {has}. Lower "
            f"it{newer} or choose another nvidia_driver_source."
        )
    if all(int(branch) < window[0] for branch in data["branches"]):
        return (
            f"{window[2]} needs branch {window[0]} or newer, but source {source} has {has}. Choose another "
            "nvidia_driver_source."
        )
    return (
        f"{window[3]} is served by branches up to {window[1]}, but source {source} has {has}. Choose another "
        "nvidia_driver_source."
    )
