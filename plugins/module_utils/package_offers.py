# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions that a host's package repositories offer."""

from __future__ import annotations

import re
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.host_files import natural_key

Run = Callable[["list[str]"], "tuple[int, str, str]"]


class OffersError(Exception):
    """The package manager does not answer."""


def read(manager: str, names: list[str], run: Run) -> dict[str, list[str]]:
    """Return the versions on offer by package, newest first."""
    offers: dict[str, set[str]] = {name: set() for name in names}
    if names:
        for name, version in _ASK[manager](names, run):
            for asked in names:
                if asked == name or re.fullmatch(rf"{re.escape(f'{name}-{version}')}(\.\w+)?", asked):
                    offers[asked].add(version)
    return {name: sorted(versions, key=natural_key, reverse=True) for name, versions in offers.items()}


def _apt(names: list[str], run: Run) -> list[tuple[str, str]]:
    rc, out, err = run(["apt-cache", "madison", *names])
    # It answers 100 for a name that it does not know, and says what it knows of the others nevertheless.
    if rc not in (0, 100):
        raise OffersError(f"apt-cache madison answered {rc}: {err.strip() or out.strip()}")
    rows = ([cell.strip() for cell in line.split("|")] for line in out.splitlines())
    return [(row[0], row[1]) for row in rows if len(row) == 3 and not row[2].endswith(" Sources")]


def _dnf(names: list[str], run: Run) -> list[tuple[str, str]]:
    query = ["--available", "--showduplicates", "--queryformat", "%{name}\t%{version}-%{release}\n", *names]
    rc, out, err = run(["dnf", "--quiet", "--setopt=*.module_hotfixes=true", "repoquery", *query])
    if rc != 0:
        raise OffersError(f"dnf repoquery answered {rc}: {err.strip() or out.strip()}")
    return [(name, version) for name, tab, version in (line.partition("\t") for line in out.splitlines()) if tab]


def _zypper(names: list[str], run: Run) -> list[tuple[str, str]]:
    rc, out, err = run(["zypper", "--non-interactive", "--quiet", "search", "--details", "--match-exact", *names])
    # 104: nothing of that name.
    if rc not in (0, 104):
        raise OffersError(f"zypper search answered {rc}: {err.strip() or out.strip()}")
    rows = ([cell.strip() for cell in line.split("|")] for line in out.splitlines())
    return [(row[1], row[3]) for row in rows if len(row) >= 6 and row[2] == "package"]


_ASK = {"apt": _apt, "dnf": _dnf, "zypper": _zypper}
