# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One version for all packages of a driver, out of what the repositories offer."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key, upstream_version


class NoVersion(Exception):
    """No version of the driver satisfies the request."""


def satisfies(version: str, branch: str | None, request: dict) -> bool:
    """Tell whether an upstream version is what was asked for."""
    if branch and version.partition(".")[0] != branch:
        return False
    exact, minimum = request.get("version"), request.get("minimum_version")
    if exact and version != upstream_version(str(exact)):
        return False
    return not (minimum and natural_key(version) < natural_key(upstream_version(str(minimum))))


def has_some(available: dict, names: list[str], branch: str, request: dict) -> bool:
    """Tell whether some package is on offer in a version of this branch that is what was asked for."""
    return any(
        satisfies(upstream_version(version), branch, request) for name in names for version in available.get(name, [])
    )


class Question(NamedTuple):
    """What is looked for, and where."""

    request: dict
    branch: str | None
    # The repository in words, and what may mend it if it has nothing.
    place: str
    remedy: str
    # Patterns of the names that a package of the driver has in other branches, where names have the branch in them.
    kin: list[str]
    # Packages that the driver has in all branches, by one name.
    core: list[str]
    # Sources of the platform that a bare host may have its driver from instead.
    elsewhere: Sequence[str] = ()


def choose(available: dict, lockstep: list[str], question: Question, installed: set[str] | None = None) -> str:
    """Return the version to install: one that every package of the set has, the installed one before a newer one."""
    offered = {name: {upstream_version(version) for version in available.get(name, [])} for name in lockstep}
    absent = sorted(name for name, versions in offered.items() if not versions)
    branch, request = question.branch, question.request
    if absent:
        raise NoVersion(
            f"{_asked(question)}, but {question.place} has no package {', '.join(absent)}. "
            + _there(_drivers(available, question), question)
        )
    common = set.intersection(*offered.values()) if offered else set()
    fitting = sorted((version for version in common if satisfies(version, branch, request)), key=natural_key)
    if not fitting:
        partial = {
            name for name in lockstep if not any(satisfies(version, branch, request) for version in offered[name])
        }
        lacking = f" of {', '.join(sorted(partial))}" if len(partial) < len(lockstep) else ""
        raise NoVersion(
            f"{_asked(question)}, but {question.place} has no such version{lacking}. "
            + _there(_drivers(available, question) or common, question)
        )
    explicit = bool(request.get("version"))
    kept = [version for version in fitting if version in (installed or set())]
    if kept and not explicit:
        return kept[-1]
    unmoved = {version for version in installed or set() if satisfies(version, branch, request)}
    if unmoved and not explicit:
        old = ", ".join(sorted(unmoved))
        raise NoVersion(
            f"driver {old} is installed, but packages of it are missing and {question.place} has "
            f"{', '.join(fitting)} only. A driver is not moved to another version unasked: set nvidia_driver_version "
            f"to {fitting[-1]}."
        )
    return fitting[-1]


def _asked(question: Question) -> str:
    """Say what was asked for by the variable that said it; a branch that nobody asked for was chosen."""
    request = question.request
    named = ("version",) if request.get("version") else ("branch", "minimum_version")
    parts = [f"nvidia_driver_{name} is {request[name]}" for name in named if request.get(name)]
    return " and ".join(parts) or f"branch {question.branch} was chosen"


def _drivers(available: dict, question: Question) -> set[str]:
    """Return the versions that are there, of other branches too: what comes beside a driver differs by its branch.

    What was asked for is there in part at most, or there would be nothing to say.
    """
    kin = [name for name in available if any(fnmatch.fnmatchcase(name, pattern) for pattern in question.kin)]
    if kin:
        there = {upstream_version(version) for name in kin for version in available[name]}
    else:
        offered = [{upstream_version(version) for version in available.get(name, [])} for name in question.core]
        there = set.intersection(*offered) if offered else set()
    return {version for version in there if not satisfies(version, question.branch, question.request)}


def _there(versions: set[str], question: Question) -> str:
    if not versions:
        return f"Choose another nvidia_driver_source, or see that {question.remedy}."
    there = ", ".join(sorted(versions, key=natural_key))
    other = " or ".join(question.elsewhere)
    instead = f"set nvidia_driver_source to {other}" if other else "choose another nvidia_driver_source"
    return f"Drivers that it has: {there}. Ask for one of those or {instead}."


def check_stream(wanted: str, streams: dict, place: str) -> None:
    """Refuse a stream of dnf's that the repository does not have, as a mirror without module metadata has none."""
    module, _colon, stream = wanted.partition(":")
    there = streams.get(module, [])
    if stream not in there:
        has = (
            f"Streams that it has: {', '.join(there)}. Ask for a branch and flavor of those"
            if there
            else (f"It has no module {module} at all: have the mirror carry the repository's module metadata")
        )
        raise NoVersion(
            f"the driver's packages are in the module stream {wanted}, but the repository {place} has no such stream. "
            f"{has}, or choose another nvidia_driver_source."
        )


def exact(available: dict, name: str, version: str) -> str | None:
    """Return the newest full version of a package that is of the upstream version; nothing where there is none."""
    fitting = [entry for entry in available.get(name, []) if upstream_version(entry) == version]
    return max(fitting, key=natural_key, default=None)
