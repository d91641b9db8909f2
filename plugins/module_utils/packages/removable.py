# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides from simulations which packages can be removed, and which unrelated packages a transaction would affect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import simulation


def unrelated(
    text: str,
    allowed: Iterable[str],
    packages: dict[str, Any] | None = None,
    released: Iterable[str] | None = None,
) -> list[str]:
    """Return the packages that a simulation would remove or break, except the allowed ones, and changed held packages.

    `text` is the output of `apt-get --simulate` or `rpm --erase --test`, or the results of module dnf in check mode.
    The holds of `released` packages do not count.
    """
    changes = simulation.of(text)
    removed = simulation.removed(changes) | simulation.rpm_dependents(text)
    held = {name for name, package in (packages or {}).items() if package["held"]} - set(released or [])
    return sorted((removed - set(allowed)) | {change.name for change in changes if change.before} & held)


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
