# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which package and which version one of dnf's version locks is for."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError


class NoPluginError(PackageManagerError):
    """dnf has no command that locks versions."""


def same(version: str, other: str) -> bool:
    """Return whether two versions are the same, where the other may have no epoch and no release."""
    if ":" not in other:
        version = version.rpartition(":")[2]
    return version.removeprefix("0:") == other.removeprefix("0:") or version.startswith(f"{other}-")


def locked_version(lock: str) -> tuple[str, str]:
    """Return the name and the version of a lock on one version of one package, or two empty texts."""
    found = re.fullmatch(r"([^*?[\s]+?)-((?:\d+:)?\d[^-*?[\s]*-[^-*?[\s]+?)(?:\.\*)?", lock)
    return (found[1], found[2]) if found else ("", "")


def is_lock_on(lock: str, name: str) -> bool:
    """Return whether a lock is only for the package `name`, or for the version of `name=version`."""
    name, _sign, version = name.partition("=")
    found = re.fullmatch(re.escape(name) + r"(?:-(?P<version>\d[^-*?[]*-[^-*?[]+?))?(?:\.\*|\.[a-z]\w+)?", lock)
    return bool(found) and (not version or same(found["version"] or "", version))
