# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible's own module for dnf does, done by the command dnf.

For systems that have dnf's Python bindings for a Python only on which no module runs any more. dnf is asked first, and
what it answers is read; only then does it act. It is told not to wait for a lock that somebody else has, so that the
waiting has an end and no dnf is ever killed at work.
"""

from __future__ import annotations

import re
import time
from typing import Any, Callable, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses

Run = Callable[["list[str]"], "tuple[int, str, str]"]

# What it answers where somebody else has the lock.
LOCKED = 200
_PAUSE = 5
_COMES = (
    "Installing",
    "Installing dependencies",
    "Installing group/module packages",
    "Installing weak dependencies",
    "Reinstalling",
    "Upgrading",
)
_GOES = ("Removing", "Removing dependent packages", "Removing unused dependencies")


class DnfError(Exception):
    """dnf refused, failed, or said what is not understood."""


class Transaction(NamedTuple):
    """Packages as name-[epoch:]version-release.arch; `back` are those of `comes` that are older than what is there."""

    comes: list[str]
    goes: list[str]
    back: list[str]

    def results(self, download_only: bool = False) -> list[str]:
        """Say it in the words of Ansible's own module."""
        came = "Downloaded" if download_only else "Installed"
        return [*(f"{came}: {name}" for name in self.comes), *(f"Removed: {name}" for name in self.goes)]


def missing(names: list[str], run: Run) -> set[str]:
    """Return those of the names, with a version or without, that are not installed."""
    rc, out, err = run(["rpm", "--query", *names])
    found = set(re.findall(r"^package (\S+) is not installed$", out + "\n" + err, re.MULTILINE))
    if rc != 0 and not found:
        raise DnfError(f"rpm --query answered {rc}: {err.strip() or out.strip()}")
    return found


def command(names: list[str], wish: dict[str, Any], act: bool) -> list[str]:
    """Return the call that does it, or the one that asks what it would do."""
    return [
        "dnf",
        # It prints what it would do, and downloads nothing.
        "--assumeyes" if act else "--assumeno",
        # With less it does not print it.
        "--debuglevel=2",
        # What came along with a package is not taken away with it.
        "--noautoremove",
        "--setopt=exit_on_lock=True",
        f"--setopt=install_weak_deps={wish['install_weak_deps']}",
        *(["--allowerasing"] if wish["allowerasing"] else []),
        *(["--downloadonly"] if wish["download_only"] else []),
        _verb(wish),
        *names,
    ]


def transaction(text: str) -> Transaction:
    """Read the table of what dnf would do. A name that is too long for its column has its row on two lines."""
    rows: list[tuple[str, str]] = []
    replaced = []
    heading = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            heading = line[:-1] if line.endswith(":") else ""
        elif heading and line.split()[0:1] == ["replacing"]:
            replaced.append(line.split()[1:3])
        elif heading and not line.startswith("  "):
            rows.append((heading, line))
        elif rows and heading:
            rows[-1] = (heading, rows[-1][1] + line)
    told: dict[str, list[str]] = {}
    for action, row in rows:
        name, arch, version = [*row.split(), "", "", ""][:3]
        told.setdefault(action, []).append(f"{name}-{version}.{arch}")
    back = told.get("Downgrading", [])
    comes = [name for action in _COMES for name in told.get(action, [])] + back
    goes = [name for action in _GOES for name in told.get(action, [])]
    counts = re.findall(r"^(?:Install|Upgrade|Reinstall|Remove|Downgrade) +(\d+) Packages?", text, re.MULTILINE)
    if sum(int(count) for count in counts) != len(comes) + len(goes):
        raise DnfError(f"What dnf would do is not understood, so nothing was done: {addresses.masked(text.strip())}")
    for package, version in replaced:
        name, _dot, arch = package.rpartition(".")
        goes.append(f"{name}-{version}.{arch}")
    return Transaction(comes, goes, back)


def ask(names: list[str], wish: dict[str, Any], run: Run) -> Transaction | None:
    """Return what would be done; nothing where there is nothing to do. Refuse a downgrade that was not allowed."""
    argv = command(names, wish, act=False)
    rc, out, err = _patiently(argv, wish["lock_timeout"], run)
    if rc == 0 and "Nothing to do." in out:
        return None
    if "Operation aborted." not in out + err:
        raise DnfError(_failure(argv, wish, rc, out, err))
    found = transaction(out)
    if found.back and not wish["allow_downgrade"]:
        raise DnfError(
            f"dnf would downgrade to {', '.join(found.back)}, and allow_downgrade is false. Nothing was done."
        )
    return found


def act(names: list[str], wish: dict[str, Any], run: Run) -> None:
    """Do it."""
    argv = command(names, wish, act=True)
    rc, out, err = _patiently(argv, wish["lock_timeout"], run)
    if rc != 0:
        raise DnfError(_failure(argv, wish, rc, out, err))


def _patiently(argv: list[str], timeout: int, run: Run) -> tuple[int, str, str]:
    """Run it again and again while somebody else has the lock. Where it answers that, it has changed nothing."""
    end = time.monotonic() + timeout
    while True:
        answer = run(argv)
        if answer[0] != LOCKED or time.monotonic() >= end:
            return answer
        time.sleep(_PAUSE)


def _failure(argv: list[str], wish: dict[str, Any], rc: int, out: str, err: str) -> str:
    said = addresses.masked(err.strip() or out.strip())
    if rc == LOCKED:
        return f"dnf is still in use by another program after {wish['lock_timeout']} s: {said}"
    return f"dnf {' '.join(argv[argv.index(_verb(wish)) :])} answered {rc}: {said}"


def _verb(wish: dict[str, Any]) -> str:
    return "install" if wish["state"] == "present" else "remove"
