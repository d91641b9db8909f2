# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide from simulations which packages can be removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.run import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import simulation


def unneeded(text: str, names: list[str]) -> list[str]:
    """Select the names that no installed package needs.

    `text` is the output of `apt-get --simulate autoremove`, `dnf repoquery --unneeded` with one name per line, or
    `zypper packages --unneeded`.
    """
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    # apt also prints names, but indents them.
    listed = {row[2] for row in rows if len(row) > 4}.union(text.splitlines(), simulation.removed(simulation.apt(text)))
    return [name for name in names if name in listed]


def removable(tests: list[dict[str, Any]], removed: Iterable[str] | None = None) -> list[str]:
    """Select the packages that only each other and the `removed` ones need, from results of `rpm --erase --test`."""
    needed = {test["item"]: simulation.rpm_dependents(test.get("stderr", "")) for test in tests}
    # Keep packages that rpm refuses to erase for any other reason than a dependency.
    found = {test["item"] for test in tests if test["rc"] == 0 or needed[test["item"]]}
    while True:
        kept = {name for name in found if needed[name] - found - set(removed or [])}
        if not kept:
            return sorted(found)
        found -= kept


def unneeded_by_rpm(names: list[str], without: list[str], run: Run) -> list[str]:
    """Select the installed names that no package needs any more without the installed packages `without`."""
    tests = []
    for name in names:
        rc, _out, err = run(["rpm", "--erase", "--test", "--allmatches", name])
        tests.append({"item": name, "rc": rc, "stderr": err})
    found = removable(tests, without)
    # Each package alone is removable, but another package may need one of two alternatives.
    together = [*found, *(name for name in without if name not in found)]
    if not found or run(["rpm", "--erase", "--test", "--allmatches", *together])[0] != 0:
        return []
    return [name for name in names if name in found]
