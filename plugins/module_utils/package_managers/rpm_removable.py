# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide with rpm which packages nothing needs any more, and which ones need a removed package."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import simulation
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError

_TEST = ("rpm", "--erase", "--test", "--allmatches")


def unneeded(names: list[str], without: list[str], run: Run) -> list[str]:
    """Select the installed names that no package needs any more without the installed packages `without`."""
    found, needed = set(), {}
    for name in names:
        rc, _out, err = run([*_TEST, name])
        needed[name] = simulation.rpm_dependents(err)
        # Keep packages that rpm refuses to erase for a reason other than a dependency.
        if rc == 0 or needed[name]:
            found.add(name)
    while True:
        kept = {name for name in found if needed[name] - found - {*without}}
        if not kept:
            break
        found -= kept
    # Each package alone is removable, but another package may need one of two alternatives.
    together = [*sorted(found), *(name for name in without if name not in found)]
    if not found or run([*_TEST, *together])[0] != 0:
        return []
    return [name for name in names if name in found]


def dependents(names: list[str], run: Run) -> list[str]:
    """Return the packages that depend on these installed packages."""
    rc, out, err = run([*_TEST, *names]) if names else (0, "", "")
    found = simulation.rpm_dependents(err)
    if rc and not found:
        raise PackageManagerError(
            f"rpm cannot test the removal of {', '.join(names)} (exit status {rc}): {err.strip() or out.strip()}"
        )
    return sorted(found)
