# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One version for all packages of a driver, out of what the repositories offer."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.host_files import natural_key, upstream_version


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


def choose(
    available: dict, lockstep: list[str], branch: str | None, request: dict, installed: set[str] | None = None
) -> str:
    """Return the version to install: one that every package of the set has, the installed one before a newer one."""
    offered = {name: {upstream_version(version) for version in available.get(name, [])} for name in lockstep}
    absent = sorted(name for name, versions in offered.items() if not versions)
    if absent:
        raise NoVersion(
            f"the package repositories of this host have no package {', '.join(absent)}. Check nvidia_driver_source "
            "and nvidia_driver_branch, and that the host's package lists are those of its repositories."
        )
    common = set.intersection(*offered.values()) if offered else set()
    fitting = sorted((version for version in common if satisfies(version, branch, request)), key=natural_key)
    if not fitting:
        asked = request.get("version") or request.get("minimum_version") or f"branch {branch}"
        there = ", ".join(sorted(common, key=natural_key)) or "none that all packages of the driver have"
        raise NoVersion(
            f"no version of the driver matches {asked}. Versions that the repositories have: {there}. Ask for one of "
            "those or change nvidia_driver_source."
        )
    explicit = bool(request.get("version"))
    kept = [version for version in fitting if version in (installed or set())]
    if kept and not explicit:
        return kept[-1]
    unmoved = {version for version in installed or set() if satisfies(version, branch, request)}
    if unmoved and not explicit:
        old = ", ".join(sorted(unmoved))
        raise NoVersion(
            f"driver {old} is installed, but packages of it are missing and the repositories have "
            f"{', '.join(fitting)} only. A driver is not upgraded unasked: set nvidia_driver_version to {fitting[-1]}."
        )
    return fitting[-1]


def exact(available: dict, name: str, version: str) -> str | None:
    """Return the newest full version of a package that is of the upstream version; nothing where there is none."""
    fitting = [entry for entry in available.get(name, []) if upstream_version(entry) == version]
    return max(fitting, key=natural_key, default=None)
