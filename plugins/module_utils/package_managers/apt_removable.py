# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide with apt which packages nothing needs any more, and which ones need a removed package."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.temporary_directories import workspace
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import dpkg_state, simulation
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.apt_command import (
    SOLVER,
    AptCommand,
    reason,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.dpkg_state import DpkgPackage

_MARKS = "var/lib/apt/extended_states"
# By default, apt keeps the headers of the running kernel, and packages that others only recommend or suggest. For
# example, apt suggests dpkg-dev, which depends on a compiler.
_ONLY_NEEDED = (
    "--option=APT::Protect-Kernels=false",
    "--option=APT::AutoRemove::RecommendsImportant=false",
    "--option=APT::AutoRemove::SuggestsImportant=false",
)


def unneeded(
    known: list[DpkgPackage],
    names: Sequence[str],
    without: list[str],
    requested: list[str],
    *,
    run: Run,
    command: AptCommand,
    root: str,
) -> list[str]:
    """Select the names that neither a package nor the user needs without the packages `without`.

    `known` are the packages in dpkg's database. A transaction `requested` some of them.
    """
    marked, leaving = (
        [package.name for package in dpkg_state.selected(known, part, dpkg_state.INSTALLED)]
        for part in (requested, without)
    )
    copies = {
        name: {package.name for package in dpkg_state.selected(known, [name], dpkg_state.INSTALLED)} for name in names
    }
    with workspace() as directory:
        # apt considers these packages requested by the user. Only in this copy, it does not.
        marks = f"{directory}/extended_states"
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(os.path.join(root, _MARKS), marks)
        options = [*_ONLY_NEEDED, f"--option=Dir::State::extended_states={marks}"]
        _mark("auto", marked, options, command)
        staying: set[str] = set()
        gone = _autoremoved(leaving, options, run)
        while True:
            names = [name for name in names if copies[name] and copies[name] <= gone]
            others = gone.difference(leaving, staying, *(copies[name] for name in names))
            if not others:
                return names
            # These packages stay although apt considers them unneeded. What they need stays, too.
            _mark("manual", sorted(others), options, command)
            staying |= others
            gone &= _autoremoved(leaving, options, run)


def _mark(mark: str, names: list[str], options: list[str], command: AptCommand) -> None:
    if names:
        command.succeed(["apt-mark", *options, mark, *names], f"apt-mark failed to mark {' '.join(names)}")


def _autoremoved(leaving: list[str], options: list[str], run: Run) -> set[str]:
    """Return the packages that apt removes with `leaving`, named as in dpkg's database."""
    rc, out, err = run(["apt-get", *options, "--simulate", "--ignore-hold", "autoremove", *leaving])
    if rc:
        raise PackageManagerError(f"apt cannot list the unneeded packages: {reason(out, err)}")
    removed = (change for change in simulation.apt(out) if change.action == simulation.REMOVE)
    return {":".join(filter(None, (change.name, change.arch))) for change in removed}


def dependents(known: list[DpkgPackage], names: list[str], run: Run) -> list[str]:
    """Return the packages that need these packages.

    apt may install another provider instead of removing such a package, so no other package may be installed.
    """
    present = [package.name for package in dpkg_state.selected(known, names, dpkg_state.INSTALLED)]
    refused: list[str] = []
    while present:
        argv = ["apt-get", "--simulate", *SOLVER, "--ignore-hold", "purge", *present]
        rc, out, err = run([*argv, *(f"{name}-" for name in refused)])
        if rc:
            raise PackageManagerError(f"apt cannot remove {' '.join(present)}: {reason(out, err)}")
        changes = simulation.apt(out)
        new = {change.name for change in changes if change.action == simulation.INSTALL}.difference(refused)
        if not new:
            return sorted(simulation.removed(changes) - {name.partition(":")[0] for name in names})
        refused += sorted(new)
    return []
