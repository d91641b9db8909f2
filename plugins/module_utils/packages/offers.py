# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of packages, and streams of dnf's modules, that package repositories offer."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key

# What apt has behind a colon, and rpm behind a dot.
_ARCHES = "any|native|all|amd64|arm64|i386|noarch|x86_64|aarch64|i686"

Run = Callable[["list[str]"], "tuple[int, str, str]"]


class OffersError(Exception):
    """The package manager does not answer."""


def read(manager: str, names: list[str], run: Run, views: Iterable[list[str]] = ((),)) -> dict[str, list[str]]:
    """Return the versions on offer by package, newest first.

    A name with wildcards stands for all packages that it matches. `views` are the options of each call that is made, as
    `repository_view` has them; without any, the host's repositories are asked as they are.
    """
    offers: dict[str, set[str]] = {name: set() for name in names if not _is_pattern(name)}
    for options in views if names else ():
        for name, version in _ASK[manager](names, run, list(options)):
            for asked in names:
                if _is_of(asked, name, version):
                    offers[asked].add(version)
                elif _is_pattern(asked) and fnmatch.fnmatchcase(name, asked):
                    offers.setdefault(name, set()).add(version)
    return {name: sorted(versions, key=natural_key, reverse=True) for name, versions in offers.items()}


def streams(modules: list[str], run: Run, views: Iterable[list[str]] = ((),)) -> dict[str, list[str]]:
    """Return the streams of each of dnf's modules."""
    found: dict[str, set[str]] = {name: set() for name in modules}
    for options in views if modules else ():
        rc, out, err = run(["dnf", "--quiet", *options, "module", "list", *modules])
        # It answers 1 where there is no such module.
        if rc not in (0, 1) or (rc == 1 and "No matching" not in out + err):
            raise OffersError(f"dnf module list answered {rc}: {addresses.masked(err.strip() or out.strip())}")
        for words in (line.split() for line in out.splitlines()):
            if len(words) > 1 and words[0] in found:
                found[words[0]].add(words[1])
    return {name: sorted(there, key=natural_key) for name, there in found.items()}


def _is_of(asked: str, name: str, version: str) -> bool:
    """Tell whether a package is meant by what was asked for: its name, with a version or an architecture or neither."""
    if asked == name or re.fullmatch(rf"{re.escape(f'{name}-{version}')}(\.\w+)?", asked):
        return True
    # By these alone: of "python3.12" the end is none.
    return re.fullmatch(rf"{re.escape(name)}[.:]({_ARCHES})", asked) is not None


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _apt(names: list[str], run: Run, options: list[str]) -> list[tuple[str, str]]:
    patterns = [name for name in names if _is_pattern(name)]
    asked = [name for name in names if name not in patterns]
    if patterns:
        _rc, out, _err = run(["apt-cache", *options, "pkgnames"])
        asked += [name for name in out.split() if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if not asked:
        return []
    rc, out, err = run(["apt-cache", *options, "madison", *asked])
    # It answers 100 for a name that it does not know, and says what it knows of the others nevertheless.
    if rc not in (0, 100):
        raise OffersError(f"apt-cache madison answered {rc}: {addresses.masked(err.strip() or out.strip())}")
    rows = ([cell.strip() for cell in line.split("|")] for line in out.splitlines())
    return [(row[0], row[1]) for row in rows if len(row) == 3 and not row[2].endswith(" Sources")]


def _dnf(names: list[str], run: Run, options: list[str]) -> list[tuple[str, str]]:
    query = ["--available", "--showduplicates", "--queryformat", "%{name}\t%{version}-%{release}\n", *names]
    rc, out, err = run(["dnf", "--quiet", *options, "--setopt=*.module_hotfixes=true", "repoquery", *query])
    if rc != 0:
        raise OffersError(f"dnf repoquery answered {rc}: {addresses.masked(err.strip() or out.strip())}")
    return [(name, version) for name, tab, version in (line.partition("\t") for line in out.splitlines()) if tab]


def _zypper(names: list[str], run: Run, options: list[str]) -> list[tuple[str, str]]:
    # Wildcards are none to it then. Without, it finds more than was asked for, which `read` leaves out.
    exact = [] if any(_is_pattern(name) for name in names) else ["--match-exact"]
    rc, out, err = run(["zypper", *options, "--non-interactive", "--quiet", "search", "--details", *exact, *names])
    # 104: nothing of that name. 6: no repository.
    if rc not in (0, 6, 104):
        raise OffersError(f"zypper search answered {rc}: {addresses.masked(err.strip() or out.strip())}")
    rows = ([cell.strip() for cell in line.split("|")] for line in out.splitlines())
    return [(row[1], row[3]) for row in rows if len(row) >= 6 and row[2] == "package"]


_ASK = {"apt": _apt, "dnf": _dnf, "zypper": _zypper}
