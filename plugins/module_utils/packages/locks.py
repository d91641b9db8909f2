# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold packages at their version: dpkg holds, dnf version locks and zypper locks."""

from __future__ import annotations

import os
import re
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.installed import lock_covers

_ZYPPER_LOCKS = "etc/zypp/locks"
_VERSION_AND_ARCH = r"(-\d[^-*?]*-[^-*?]+)?(\.\*|\.\w+)?"

Run = Callable[["list[str]"], "tuple[int, str, str]"]


class LocksError(Exception):
    """The package manager does not support locks, or the command failed."""


def held(names: list[str], state: dict) -> set[str]:
    """Return the names that are held. A name can have a version, as in the locks of dnf.

    `state` is the result of `installed.read`.
    """
    locks = [_without_epoch(lock) for lock in state["held_patterns"]]
    return {
        name
        for name in names
        if name in state["held"] or any(lock_covers(lock, _without_epoch(name), "") for lock in locks)
    }


def releasable(names: list[str], state: dict) -> set[str]:
    """Return the names that have a hold of their own. A lock with wildcards also holds other packages, so it stays."""
    locks = [_without_epoch(lock) for lock in state["held_patterns"]]
    if not locks:
        return held(names, state)
    return {
        name
        for name in names
        if any(re.fullmatch(re.escape(_without_epoch(name)) + _VERSION_AND_ARCH, lock) for lock in locks)
    }


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
        reason = err.strip() or out.strip()
        hint = " Install python3-dnf-plugin-versionlock." if "No such command" in reason else ""
        raise LocksError(f"{' '.join(argv[:3])} failed with exit status {rc}: {reason}{hint}")
    if manager == "zypper" and not held:
        _remove_if_empty(os.path.join(root, _ZYPPER_LOCKS))


def _remove_if_empty(path: str) -> None:
    """Remove the empty file that zypper keeps after the last lock is removed. zypper does not need it."""
    try:
        if os.path.getsize(path) == 0:
            os.unlink(path)
    except FileNotFoundError:
        return
