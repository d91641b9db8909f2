# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the newest usable version that all packages of a role have, or explain why there is none. Pure functions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import RolePackagesCase

_MOST_NAMED_VERSIONS = 10


@dataclasses.dataclass(frozen=True)
class VersionChoice:
    """The chosen build of each package, or why there is none.

    `suitable` and `usable`: the newest requested version, and the newest that can be installed.
    `lacking`: the packages that the source does not have in version `usable`.
    """

    builds: dict[str, str] = dataclasses.field(default_factory=dict)
    suitable: str | None = None
    usable: str | None = None
    lacking: list[str] = dataclasses.field(default_factory=list)


def fits(version: str, requested: str) -> bool:
    """Return whether a version is the requested one. "1.23" and "1.23.0" request any build of 1.23.0-695."""
    parts, wanted = (re.split(r"[.+~-]", text.rpartition(":")[2]) for text in (version, requested))
    return not requested or parts[: len(wanted)] == wanted


def named(versions: Sequence[str]) -> str:
    """Return some versions for a message."""
    return ", ".join(versions[:_MOST_NAMED_VERSIONS])


def choose(
    available: Mapping[str, Sequence[str]],
    unit: Sequence[str],
    suits: Callable[[str], bool],
    refuse: Callable[[str], str | None] = lambda _version: None,
    key: Callable[[str], Any] = lambda version: version.rpartition(":")[2],
) -> VersionChoice:
    """Choose the newest suitable version that all packages have. `available` begins with the newest.

    `key` returns what is the same in all builds of one version. Epochs differ between packages, releases do not.
    """
    suitable = [version for version in available[unit[0]] if suits(version)]
    usable = [version for version in suitable if refuse(version) is None]
    newest = (suitable[0] if suitable else None, usable[0] if usable else None)
    lacking: list[str] = []
    for version in usable:
        builds = {name: next((item for item in available[name] if key(item) == key(version)), "") for name in unit}
        if all(builds.values()):
            return VersionChoice(builds, *newest, lacking=lacking)
        lacking = lacking or [name for name, build in builds.items() if not build]
    return VersionChoice({}, *newest, lacking=lacking)


def incomplete(case: RolePackagesCase, choice: VersionChoice) -> str:
    """Return which packages do not have the newest version."""
    return f"{case.place} has {case.unit[0]} {choice.usable}, but not {', '.join(choice.lacking)} in this version"


def explained(case: RolePackagesCase, choice: VersionChoice) -> str:
    """Return why no version can be installed, and what to do."""
    main = case.unit[0]
    if not (case.versions or {})[main]:
        reason, remedy = f"{case.place} has no package {main}", "Check the URL, the suite and the package's name"
    elif choice.usable:
        reason = incomplete(case, choice)
        remedy = f"Set {case.role}_version to a version that all packages have"
    elif choice.suitable:
        reason = f"{case.place} has {main} {choice.suitable}, which {case.refuse(choice.suitable)}"
        usable = [version for version in (case.versions or {})[main] if case.refuse(version) is None]
        some = named(usable)
        remedy = f"Set {case.role}_version to one of: {some}" if some else "It has no version that can be used"
    else:
        reason = f"{case.role}_version is {case.requested}, but {case.place} has no such version of {main}"
        remedy = f"Set it to one of: {case.some_versions}"
    return f"{capitalized(reason)}. {remedy}."
