# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the packages that an interrupted transaction of dnf 4 left incomplete.

rpm adds a new version to its database before it runs the scriptlets of that version and before it removes the old
version. A killed transaction therefore leaves packages that are installed twice, packages whose scriptlets did not run,
and packages that are half removed. dnf's history names the packages of a transaction before rpm changes the first one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange

_FORMAT = "%{NAME}\\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\\t%{ARCH}\\t%{INSTALLTIME}\\t%{DBINSTANCE}\\n"
_CAME = ("Install", "Dep-Install", "Upgrade", "Downgrade", "Reinstall", "Obsoleting")
_GONE = ("Removed", "Erase", "Obsoleted")
# dnf marks the rows of an unfinished transaction.
_ROW = re.compile(r"^\s*(?:\*\*|##)?\s*(?P<action>[A-Z][\w-]+)\s+(?P<package>\S+-[^-\s]+-[^-\s]+\.\w+)\s", re.MULTILINE)
_END = re.compile(r"^End rpmdb\s*: *(?P<version>[^\s*]\S*)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class DnfPackage:
    """An installed package. `order` grows with the time of the installation."""

    name: str
    version: str
    arch: str
    order: tuple[int, int] = (0, 0)

    @property
    def nevra(self) -> str:
        """Return name-[epoch:]version-release.arch, as dnf writes it."""
        return f"{self.name}-{self.version}.{self.arch}"

    @property
    def label(self) -> str:
        """Return name-version-release.arch, as old versions of rpm require it."""
        return f"{self.name}-{self.version.rpartition(':')[2]}.{self.arch}"


@dataclasses.dataclass(frozen=True)
class Damage:
    """What to repair: remove the `old` copies, complete the removal of `gone`, reinstall `came`."""

    old: tuple[DnfPackage, ...] = ()
    gone: tuple[DnfPackage, ...] = ()
    came: tuple[DnfPackage, ...] = ()

    def describe(self) -> list[str]:
        """Return one sentence for each kind of damage."""
        kinds = (
            ("these packages are also installed in a newer or older version", self.old),
            ("the removal of these packages was interrupted", self.gone),
            ("the installation of these packages was interrupted", self.came),
        )
        return [f"{text}: {', '.join(one.nevra for one in found)}" for text, found in kinds if found]


def installed(run: Run) -> list[DnfPackage] | None:
    """Return all installed packages, or None if rpm cannot read its database."""
    rc, out, err = run(["rpm", "--query", "--all", "--queryformat", _FORMAT])
    if rc != 0 or re.search(r"^error: ", err, re.MULTILINE):
        return None
    return parse(out)


def parse(text: str) -> list[DnfPackage]:
    """Parse rpm's list of packages, without the keys, which rpm stores as packages. dnf prints no epoch that is 0."""
    rows = (line.split("\t") for line in text.splitlines())
    return [
        DnfPackage(row[0], row[1].removeprefix("0:"), row[2], (int(row[3]), int(row[4])))
        for row in rows
        if len(row) == 5 and row[0] != "gpg-pubkey"
    ]


def damage(run: Run, packages: list[DnfPackage], planned: Iterable[SimulatedChange] = ()) -> Damage:
    """Return the packages that the last transaction left incomplete. This needs no network and changes nothing.

    The `planned` packages of an interrupted run are only complete if dnf's history says so.
    """
    old = [one for copies in _copies(packages) for one in copies[:-1]]
    if old:
        names = _not_multiple(run)
        old = [one for one in old if (one.name, one.arch) in names]
    rc, history, _err = run(["dnf", "--quiet", "--disablerepo=*", "history", "info", "last"])
    came, gone = unfinished(history) if rc == 0 else (set(), set())
    ours = {f"{change.name}-{change.after}.{change.arch}" for change in planned if change.after}
    came |= {one.nevra for one in packages if one.nevra in ours - completed(history)}
    known = {one.nevra: one for one in packages if one not in old}
    # rpm removes packages last. If their replacements are missing, the next transaction decides about them.
    complete = came <= set(known)
    return Damage(
        tuple(old),
        tuple(known[nevra] for nevra in sorted(gone) if complete and nevra in known),
        tuple(known[nevra] for nevra in sorted(came) if nevra in known),
    )


def unfinished(history: str) -> tuple[set[str], set[str]]:
    """Return the packages that an unfinished transaction was to install and to remove, from `dnf history info`."""
    if "Begin rpmdb" not in history or _END.search(history):
        return set(), set()
    rows = [(found["action"], found["package"]) for found in _ROW.finditer(history)]
    return {name for action, name in rows if action in _CAME}, {name for action, name in rows if action in _GONE}


def completed(history: str) -> set[str]:
    """Return the packages that a completed transaction installed."""
    return (
        {row["package"] for row in _ROW.finditer(history) if row["action"] in _CAME} if _END.search(history) else set()
    )


def _copies(packages: list[DnfPackage]) -> list[list[DnfPackage]]:
    """Return the packages that are installed more than once, oldest copy first."""
    found: dict[tuple[str, str], list[DnfPackage]] = {}
    for one in packages:
        found.setdefault((one.name, one.arch), []).append(one)
    return [sorted(copies, key=lambda one: one.order) for copies in found.values() if len(copies) > 1]


def _not_multiple(run: Run) -> set[tuple[str, str]]:
    """Return names and architectures of duplicate packages. dnf leaves out packages such as kernels."""
    query = ["repoquery", "--duplicates", "--queryformat", "%{name}\t%{arch}\n"]
    _rc, out, _err = run(["dnf", "--quiet", "--disablerepo=*", *query])
    return {(name, arch) for name, tab, arch in (line.partition("\t") for line in out.splitlines()) if tab}
