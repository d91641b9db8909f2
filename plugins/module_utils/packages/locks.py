# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold packages at their version: dpkg holds, dnf version locks and zypper locks."""

from __future__ import annotations

import os
import re
from typing import Callable

_ZYPPER_LOCKS = "etc/zypp/locks"

Run = Callable[["list[str]"], "tuple[int, str, str]"]


class LocksError(Exception):
    """The package manager does not support locks, or the command failed."""


def read(manager: str, names: list[str], run: Run) -> set[str]:
    """Return the names that are held."""
    if manager == "apt":
        rc, out, err = run(["dpkg-query", "--show", "--showformat", "${Package}\t${db:Status-Want}\n", *names])
        if rc not in (0, 1):
            raise LocksError(f"dpkg-query failed with exit status {rc}: {err.strip()}")
        pairs = (line.partition("\t")[::2] for line in out.splitlines())
        return {name for name, want in pairs if want == "hold"}
    if manager == "dnf":
        rc, out, err = run(["dnf", "--quiet", "versionlock", "list"])
        if rc != 0:
            raise LocksError(
                f"dnf versionlock failed with exit status {rc}: {err.strip() or out.strip()}. Install "
                "python3-dnf-plugin-versionlock."
            )
        lines = [_without_epoch(line.strip()) for line in out.splitlines()]
        bare = {name: re.escape(_without_epoch(name)) for name in names}
        return {name for name in names if any(re.match(rf"{bare[name]}(-\d|\.|$)", line) for line in lines)}
    rc, out, err = run(["zypper", "--non-interactive", "--quiet", "locks"])
    if rc != 0:
        raise LocksError(f"zypper locks failed with exit status {rc}: {err.strip() or out.strip()}")
    listed = {cell.strip() for line in out.splitlines() for cell in line.split("|")[1:2]}
    return set(names) & listed


def _without_epoch(lock: str) -> str:
    return re.sub(r"-\d+:", "-", lock)


def change(manager: str, names: list[str], held: bool, run: Run, root: str = "/") -> None:
    """Hold or release packages with one command."""
    commands = {
        ("apt", True): ["apt-mark", "hold", *names],
        ("apt", False): ["apt-mark", "unhold", *names],
        ("dnf", True): ["dnf", "--quiet", "versionlock", "add", *names],
        ("dnf", False): ["dnf", "--quiet", "versionlock", "delete", *names],
        ("zypper", True): ["zypper", "--non-interactive", "--quiet", "addlock", *names],
        ("zypper", False): ["zypper", "--non-interactive", "--quiet", "removelock", *names],
    }
    argv = commands[manager, held]
    rc, out, err = run(argv)
    if rc != 0:
        raise LocksError(f"{' '.join(argv[:3])} failed with exit status {rc}: {err.strip() or out.strip()}")
    if manager == "zypper" and not held:
        _remove_if_empty(os.path.join(root, _ZYPPER_LOCKS))


def _remove_if_empty(path: str) -> None:
    """Remove the empty file that zypper keeps after the last lock is removed. zypper does not need it."""
    try:
        if os.path.getsize(path) == 0:
            os.unlink(path)
    except FileNotFoundError:
        return
