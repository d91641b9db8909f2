# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes that a package manager's simulation announces.

The output must be in the locale C. The formats: `apt-get --simulate`, `dnf --assumeno` (dnf 4), `zypper --xmlout`, and
`rpm --erase --test`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable
from xml.etree import ElementTree

INSTALL, UPGRADE, DOWNGRADE, REINSTALL, REMOVE = "install", "upgrade", "downgrade", "reinstall", "remove"


class SimulationError(Exception):
    """The output of a simulation could not be parsed."""


@dataclass(frozen=True, order=True)
class SimulatedChange:
    """One changed package: `action` is install, upgrade, downgrade, reinstall or remove.

    `before` and `after` are versions in the package manager's format, None if unknown or not applicable.
    """

    name: str
    action: str
    before: str | None = None
    after: str | None = None
    arch: str = ""

    def __str__(self) -> str:
        """Describe the change, for example `upgrade libcuda1 from 580.82.07-1 to 580.95.05-1`."""
        before = f" from {self.before}" if self.before and self.after else f" {self.before}" if self.before else ""
        after = f" to {self.after}" if self.before and self.after else f" {self.after}" if self.after else ""
        return f"{self.action} {self.name}{before}{after}"


# --- apt ----------------------------------------------------------------------------------------------------------

_APT_LINE = re.compile(
    r"^(?P<verb>Inst|Remv|Purg) (?P<name>[^\s:]+)(?::(?P<foreign>\S+))?(?: \[(?P<before>[^\]]+)\])?"
    r"(?: \((?P<after>\S+)[^)]*?(?:\[(?P<arch>[^\]]+)\])?\))?",
    re.MULTILINE,
)


def apt(text: str) -> list[SimulatedChange]:
    """Return the changes that `apt-get --simulate` announces."""
    downgraded = _apt_list(text, "DOWNGRADED")
    changes = []
    for found in _APT_LINE.finditer(text):
        part = found.groupdict()
        name, before, after = part["name"], part["before"], part["after"]
        if part["verb"] != "Inst":
            action, after = REMOVE, None
        elif before is None:
            action = INSTALL
        elif before == after:
            action = REINSTALL
        else:
            action = DOWNGRADE if name in downgraded else UPGRADE
        changes.append(SimulatedChange(name, action, before, after, part["arch"] or part["foreign"] or ""))
    return sorted(set(changes), key=lambda change: (change.name, change.action, change.arch))


def _apt_list(text: str, title: str) -> set[str]:
    found = re.search(rf"^The following packages will be {title}:\n((?:  .*\n?)+)", text, re.MULTILINE)
    return {word.partition(":")[0] for word in found.group(1).split()} if found else set()


# --- dnf ----------------------------------------------------------------------------------------------------------

_DNF_ACTIONS = {
    "Installing": INSTALL,
    "Installing dependencies": INSTALL,
    "Installing group/module packages": INSTALL,
    "Installing weak dependencies": INSTALL,
    "Reinstalling": REINSTALL,
    "Upgrading": UPGRADE,
    "Downgrading": DOWNGRADE,
    "Removing": REMOVE,
    "Removing dependent packages": REMOVE,
    "Removing unused dependencies": REMOVE,
}
_DNF_COUNT = re.compile(r"^(?:Install|Upgrade|Reinstall|Remove|Downgrade) +(\d+) Packages?", re.MULTILINE)


def dnf(text: str, installed: Callable[[str, str], str | None] | None = None) -> list[SimulatedChange]:
    """Return the changes in the transaction table of `dnf --assumeno`.

    The table has no old versions: `installed` returns the version of an installed package by its name and architecture.
    """
    changes, replaced = [], []
    for action, row in _dnf_rows(text):
        if action == "replacing":
            name, _dot, arch = row[1].rpartition(".")
            replaced.append(SimulatedChange(name, REMOVE, row[2], None, arch))
            continue
        name, arch, version = row[:3]
        before = version if action in (REMOVE, REINSTALL) else None
        if action in (UPGRADE, DOWNGRADE) and installed:
            before = installed(name, arch)
        changes.append(SimulatedChange(name, action, before, None if action == REMOVE else version, arch))
    if sum(int(count) for count in _DNF_COUNT.findall(text)) != len(changes):
        raise SimulationError(
            "The transaction that dnf printed could not be parsed. No package was changed. The output is: "
            f"{text.strip()}"
        )
    return sorted({*changes, *replaced}, key=lambda change: (change.name, change.action, change.arch))


def _dnf_rows(text: str) -> Iterable[tuple[str, list[str]]]:
    """Return action and cells of each row. dnf wraps the row of a long package name."""
    rows: list[tuple[str, str]] = []
    heading = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            heading = line[:-1] if line.endswith(":") else ""
        elif heading and line.split()[0:1] == ["replacing"]:
            rows.append(("replacing", line))
        elif heading in _DNF_ACTIONS and not line.startswith("  "):
            rows.append((_DNF_ACTIONS[heading], line))
        elif rows and heading in _DNF_ACTIONS:
            rows[-1] = (rows[-1][0], rows[-1][1] + line)
    return [(action, [*row.split(), "", "", ""]) for action, row in rows]


# --- zypper and rpm -----------------------------------------------------------------------------------------------

_ZYPPER_ACTIONS = {
    "to-install": INSTALL,
    "to-upgrade": UPGRADE,
    "to-upgrade-change-arch": UPGRADE,
    "to-downgrade": DOWNGRADE,
    "to-downgrade-change-arch": DOWNGRADE,
    "to-reinstall": REINSTALL,
    "to-remove": REMOVE,
}


def zypper(text: str) -> list[SimulatedChange]:
    """Return the changes in the summary of `zypper --xmlout`."""
    start, end = text.find("<install-summary"), text.rfind("</install-summary>")
    if end < 0:
        return []
    try:
        summary = ElementTree.fromstring(text[start : end + len("</install-summary>")])
    except ElementTree.ParseError as error:
        raise SimulationError(f"The summary that zypper printed could not be parsed: {error}.") from error
    changes = []
    for group in summary:
        action = _ZYPPER_ACTIONS.get(group.tag)
        for item in group if action else ():
            if item.get("type", "package") != "package":
                continue
            edition = item.get("edition")
            before, after = (edition, None) if action == REMOVE else (item.get("edition-old"), edition)
            changes.append(SimulatedChange(item.get("name", ""), str(action), before, after, item.get("arch", "")))
    return sorted(changes, key=lambda change: (change.name, change.action, change.arch))


# name-[epoch:]version-release.arch
_NEVRA = r"(?P<name>\S+?)-(?P<version>(?:\d+:)?[^-\s]+-[^-\s]+)\.(?P<arch>\w+)"


def rpm_dependents(text: str) -> set[str]:
    """Return the installed packages that `rpm --erase --test` protects: they need the packages to remove."""
    return {found["name"] for found in re.finditer(rf" is needed by \(installed\) {_NEVRA}$", text, re.MULTILINE)}


def removed(changes: Iterable[SimulatedChange]) -> set[str]:
    """Return the names of the packages that the changes remove."""
    return {change.name for change in changes if change.action == REMOVE}
