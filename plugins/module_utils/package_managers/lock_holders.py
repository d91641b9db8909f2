# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the process that uses a package manager, and say how long a task waited for it. This takes no lock."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import time
from typing import Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number

# A frontend such as apt holds the first lock during its whole run, and dpkg holds the second.
DPKG = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
_RPM = ("/usr/lib/sysimage/rpm/.rpm.lock", "/var/lib/rpm/.rpm.lock")
# apt holds its own locks while it downloads.
_LOCKS = {
    "apt": (*DPKG, "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock"),
    "dnf": _RPM,
    "zypper": _RPM,
}
# These files have the ID of the process.
_OWNERS = {
    "dnf": ("/var/cache/dnf/metadata_lock.pid", "/var/cache/dnf/download_lock.pid", "/var/lib/dnf/rpmdb_lock.pid"),
    "zypper": ("/run/zypp.pid",),
}
_FLOCK = "hhqqi4x"


def wait(find: Callable[[], Any], seconds: float) -> Any:
    """Wait until `find` finds no process. Return what it still finds after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        found, left = find(), end - time.monotonic()
        if not found or left <= 0:
            return found
        time.sleep(min(1.0, left))


def holder(root: str, manager: str) -> str | None:
    """Describe a process that uses the package manager, or return None."""
    for path in _OWNERS.get(manager, ()):
        text = (read_text(root, path) or "").strip()
        # Package managers also ignore the file of a process that ended.
        if text.isdecimal() and whole_number(text) != os.getpid() and os.path.exists(f"/proc/{text}"):
            return _described(whole_number(text), path)
    for path in _LOCKS[manager]:
        pid = owner(os.path.join(root, path.lstrip("/")))
        if pid is not None:
            return _described(pid, path)
    return None


def has_foreign_owner(root: str, manager: str, pids: set[int]) -> bool:
    """Return whether a process that is not in `pids` uses the package manager."""
    found = {owner(os.path.join(root, path.lstrip("/"))) for path in _LOCKS[manager]}
    texts = ((read_text(root, path) or "").strip() for path in _OWNERS.get(manager, ()))
    found |= {whole_number(text) for text in texts if text.isdecimal() and os.path.exists(f"/proc/{text}")}
    return bool(found - pids - {None})


def owner(path: str) -> int | None:
    """Return the ID of the process that locked a file, or None if no process did.

    The kernel returns 0 for a process of another container, and -1 for a lock without a process.
    """
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with open(path, "rb") as file:
            kind, _whence, _start, _length, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, wanted))
    except PermissionError:
        # Only root can open the file, but all users can read the kernel's list of locks.
        lock = rf"^\d+: POSIX .* (-?\d+) \S+:{os.stat(path).st_ino} "
        found = re.search(lock, read_text("/", "/proc/locks") or "", re.MULTILINE)
        return int(found[1]) if found else None
    except OSError:
        # The lock file is created with the first lock.
        return None
    return None if kind == fcntl.F_UNLCK else int(pid)


def _described(pid: int, path: str) -> str:
    name = (read_text("/", f"/proc/{pid}/comm") or "unknown name").strip()
    process = f"process {pid} ({shown(name)})" if pid > 0 else "a process outside this container"
    return f"{process} holds {path}"


def busy(holder: object, timeout: float) -> str:
    """Return the message for a package manager or a lock that another process does not release."""
    return (
        f"The package manager is still busy after {timeout:g} seconds: {holder}. Wait until the process ends, or "
        "increase lock_timeout (role nvidia_driver: nvidia_driver_lock_timeout)."
    )
