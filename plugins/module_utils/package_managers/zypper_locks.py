# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""zypper's package locks, and the locks of the processes that use zypper or rpm."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
from collections.abc import Iterator

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.workspace import workspace

_PIDS = ("/run/zypp.pid", "/var/run/zypp.pid")
_RPM_LOCKS = ("/usr/lib/sysimage/rpm/.rpm.lock", "/var/lib/rpm/.rpm.lock")
_FLOCK = "hhqqi4x"
_LOCKS = "/etc/zypp/locks"
_SETTINGS = ("/etc/zypp/zypp.conf", "/usr/etc/zypp/zypp.conf")


def holder(root: str) -> str | None:
    """Describe the process that uses zypper's library or writes to rpm's database, or return None."""
    for path in _PIDS:
        text = (read_text(root, path) or "").strip()
        # zypper also ignores the file of a process that ended.
        if text.isdigit() and int(text) != os.getpid() and os.path.exists(f"/proc/{text}"):
            return _process(int(text))
    for path in _RPM_LOCKS:
        pid = _lock_holder(os.path.join(root, path.lstrip("/")))
        if pid is not None:
            return _process(pid)
    return None


def _process(pid: int) -> str:
    name = os.path.basename((read_text("/", f"/proc/{pid}/cmdline") or "").partition("\0")[0])
    return f"process {pid} ({name})" if name else f"process {pid}"


def _lock_holder(path: str) -> int | None:
    """Return the process that has a lock on a file, without taking the lock."""
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with open(path, "rb") as file:
            kind, _whence, _start, _length, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, wanted))
    except OSError:
        return None
    return None if kind == fcntl.F_UNLCK else int(pid)


def names(root: str) -> list[str]:
    """Return the names and patterns of the locked packages."""
    return re.findall(r"^solvable_name:\s*(\S+)", read_text(root, _LOCKS) or "", re.MULTILINE)


def remove_empty(root: str) -> None:
    """Remove the empty file that remains after the last lock is removed. zypper does not need it."""
    path = os.path.join(root, _LOCKS.lstrip("/"))
    with contextlib.suppress(FileNotFoundError):
        if os.path.getsize(path) == 0:
            os.unlink(path)


@contextlib.contextmanager
def ignored(root: str) -> Iterator[dict[str, str]]:
    """Return the environment that makes zypper ignore the package locks of a root directory."""
    if not names(root):
        yield {}
        return
    text = next((text for text in (read_text(root, path) for path in _SETTINGS) if text is not None), "")
    with workspace() as directory:
        path = os.path.join(directory, "zypp.conf")
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(without_locks(text, os.path.join(directory, "locks")))
        yield {"ZYPP_CONF": path}


def without_locks(settings: str, path: str) -> str:
    """Return zypp.conf with another path of the file with the locks."""
    lines = [line for line in settings.splitlines() if not re.match(r"\s*locksfile\.path\s*=", line)]
    return "\n".join(["[main]", f"locksfile.path = {path}", *(line for line in lines if line.strip() != "[main]"), ""])
