# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install and remove packages with the dnf command, like the module ansible.builtin.dnf.

This is for hosts whose dnf Python bindings require a Python that is too old for Ansible. dnf first prints the
transaction, which is checked before dnf runs it. dnf itself does not wait for a lock, so that the wait has a timeout
and no running dnf is killed.
"""

from __future__ import annotations

import re
import time
from typing import Any, Callable, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import simulation

Run = Callable[["list[str]"], "tuple[int, str, str]"]

# dnf's exit status if another program holds the lock.
LOCKED = 200
_RETRY_INTERVAL = 5


class DnfError(Exception):
    """dnf failed, its transaction is not allowed, or its output could not be parsed."""


class Transaction(NamedTuple):
    """Packages as name-[epoch:]version-release.arch. `installed` includes the `downgraded` packages."""

    installed: list[str]
    removed: list[str]
    downgraded: list[str]

    def results(self, download_only: bool = False) -> list[str]:
        """Return the results in the format of ansible.builtin.dnf."""
        action = "Downloaded" if download_only else "Installed"
        return [*(f"{action}: {name}" for name in self.installed), *(f"Removed: {name}" for name in self.removed)]


def missing(names: list[str], run: Run) -> set[str]:
    """Return the names, with or without a version, that are not installed."""
    rc, out, err = run(["rpm", "--query", *names])
    found = set(re.findall(r"^package (\S+) is not installed$", out + "\n" + err, re.MULTILINE))
    if rc != 0 and not found:
        raise DnfError(f"rpm --query failed with exit status {rc}: {err.strip() or out.strip()}")
    return found


def command(names: list[str], options: dict[str, Any], simulate: bool) -> list[str]:
    """Return the dnf command that runs or simulates the transaction."""
    return [
        "dnf",
        # With --assumeno, dnf prints the transaction and downloads nothing.
        "--assumeno" if simulate else "--assumeyes",
        # Lower levels do not print the transaction.
        "--debuglevel=2",
        # Keep the dependencies of removed packages.
        "--noautoremove",
        "--setopt=exit_on_lock=True",
        f"--setopt=install_weak_deps={options['install_weak_deps']}",
        *(["--allowerasing"] if options["allowerasing"] else []),
        *(["--downloadonly"] if options["download_only"] else []),
        _verb(options),
        *names,
    ]


def transaction(text: str) -> Transaction:
    """Parse the transaction table that dnf prints."""
    try:
        changes = simulation.dnf(text)
    except simulation.SimulationError as error:
        raise DnfError(addresses.masked(str(error))) from error
    installed = [change for change in changes if change.after]
    return Transaction(
        [f"{change.name}-{change.after}.{change.arch}" for change in installed],
        [f"{change.name}-{change.before}.{change.arch}" for change in changes if not change.after],
        [
            f"{change.name}-{change.after}.{change.arch}"
            for change in installed
            if change.action == simulation.DOWNGRADE
        ],
    )


def simulate(names: list[str], options: dict[str, Any], run: Run) -> Transaction | None:
    """Return the transaction, or None if there is nothing to do. Fail on a downgrade that is not allowed."""
    argv = command(names, options, simulate=True)
    rc, out, err = _run_unlocked(argv, options["lock_timeout"], run)
    if rc == 0 and "Nothing to do." in out:
        return None
    if "Operation aborted." not in out + err:
        raise DnfError(_failure(argv, options, rc, out, err))
    found = transaction(out)
    if found.downgraded and not options["allow_downgrade"]:
        raise DnfError(
            f"dnf would downgrade packages to {', '.join(found.downgraded)}, but allow_downgrade is false. Nothing was "
            "changed. Set allow_downgrade to true to allow it."
        )
    return found


def apply(names: list[str], options: dict[str, Any], run: Run) -> None:
    """Run the transaction."""
    argv = command(names, options, simulate=False)
    rc, out, err = _run_unlocked(argv, options["lock_timeout"], run)
    if rc != 0:
        raise DnfError(_failure(argv, options, rc, out, err))


def _run_unlocked(argv: list[str], timeout: int, run: Run) -> tuple[int, str, str]:
    """Run dnf, and repeat it while another program holds the lock. dnf changes nothing without the lock."""
    end = time.monotonic() + timeout
    while True:
        result = run(argv)
        if result[0] != LOCKED or time.monotonic() >= end:
            return result
        time.sleep(_RETRY_INTERVAL)


def _failure(argv: list[str], options: dict[str, Any], rc: int, out: str, err: str) -> str:
    output = addresses.masked(err.strip() or out.strip())
    if rc == LOCKED:
        return (
            f"Another program still holds the lock of dnf after {options['lock_timeout']} s: {output} Wait until that "
            "program ends, then run again."
        )
    return f"dnf {' '.join(argv[argv.index(_verb(options)) :])} failed with exit status {rc}: {output}"


def _verb(options: dict[str, Any]) -> str:
    return "install" if options["state"] == "present" else "remove"
