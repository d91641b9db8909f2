# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace a file atomically, so that no reader sees a part of it and it survives a power failure, and lock a file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing

_SUFFIX = ".tmp"


def put(path: str, content: bytes, prepare: Callable[[str], None]) -> None:
    """Replace a file, which must not be a link. `prepare` sets mode and owner of the temporary file."""
    directory, name = os.path.split(path)
    remove_temporary(path)
    # The package managers ignore names that start with a dot. In this directory, SELinux gives the file its usual type.
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=f".{name}.", suffix=_SUFFIX)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            prepare(temporary)
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync(directory)


def remove_temporary(path: str) -> None:
    """Remove what a killed run left while it wrote the file."""
    directory, name = os.path.split(path)
    for other in listing("/", directory):
        if other.startswith(f".{name}.") and other.endswith(_SUFFIX):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(directory, other))


def sync(directory: str) -> None:
    """Write the names in a directory to the disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock(handle: int, timeout: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> bool:
    """Lock an open file. Return false if another process holds the lock until the time limit."""
    end = clock() + timeout
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        if clock() >= end:
            return False
        sleep(min(0.2, max(0.0, end - clock())))
