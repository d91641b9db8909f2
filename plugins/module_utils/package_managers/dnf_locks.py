# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses dnf or rpm, and which packages dnf's version locks cover."""

from __future__ import annotations

import fcntl
import glob
import os
import re
import struct

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import read_text

# dnf's own locks have the process ID of their owner. dnf ignores the lock of a process that ended.
_PID_FILES = ("var/cache/dnf/*.pid", "var/lib/dnf/*.pid", "var/run/dnf/*.pid")
_RPM_LOCKS = ("var/lib/rpm/.rpm.lock", "usr/lib/sysimage/rpm/.rpm.lock")
_FLOCK = "hhqqi4x"


def holder(root: str) -> str | None:
    """Return the process that uses dnf or changes rpm's database, for a message."""
    paths = [path for pattern in _PID_FILES for path in glob.glob(os.path.join(root, pattern))]
    owners = [int(pid) for pid in ((read_text("/", path) or "").strip() for path in paths) if pid.isdigit()]
    for owner in [*owners, *(_lock_owner(os.path.join(root, path)) for path in _RPM_LOCKS)]:
        if owner and os.path.exists(os.path.join(root, f"proc/{owner}")):
            command = (read_text(root, f"/proc/{owner}/cmdline") or "").replace("\0", " ").strip()
            return addresses.masked(f"Process {owner} ({command})" if command else f"Process {owner}")
    return None


def _lock_owner(path: str) -> int | None:
    """Return the process that locked the file. This does not take a lock."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with open(path, "rb") as file:
            found = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    return int(found[4]) if found[0] != fcntl.F_UNLCK else None


def same(version: str, other: str) -> bool:
    """Return whether two versions are the same, where the other may have no epoch and no release."""
    if ":" not in other:
        version = version.rpartition(":")[2]
    return version.removeprefix("0:") == other.removeprefix("0:") or version.startswith(f"{other}-")


def is_lock_on(lock: str, name: str) -> bool:
    """Return whether a lock is only for the package `name`, or for the version of `name=version`."""
    name, _sign, version = name.partition("=")
    found = re.fullmatch(re.escape(name) + r"(?:-(?P<version>\d[^-*?[]*-[^-*?[]+?))?(?:\.\*|\.[a-z]\w+)?", lock)
    return bool(found) and (not version or same(found["version"] or "", version))
