# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide that only one package transaction runs on a host at a time, and how long another one waits for it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import atomic_file, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.lock_holders import busy

# One lock for all records, because the transactions of a host change the same packages. The file stays until the next
# boot: a process that waits for a removed file would not exclude a process that creates the file again.
LOCK = f"{owned.RUNTIME_DIRECTORY}/package_transaction.lock"


class TransactionLockError(Exception):
    """The lock is not usable, or another transaction holds it. The message is for the user."""


@contextlib.contextmanager
def locked(
    root: str,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Exclude other transactions on this host. The kernel releases the lock of a process that ends."""
    path = os.path.join(root, LOCK.lstrip("/"))
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise TransactionLockError(
            f"{LOCK} could not be opened: {error.strerror}. Run the transaction as root, and make sure that the "
            "file system is writable."
        ) from error
    try:
        _acquire(handle, timeout, clock, sleep)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, timeout: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
    try:
        if atomic_file.lock(handle, timeout, clock, sleep):
            return
    except OSError as error:
        raise TransactionLockError(f"{LOCK} could not be locked: {error.strerror}.") from error
    raise TransactionLockError(
        busy(f"another package transaction holds {LOCK} ('fuser {LOCK}' shows its process)", timeout)
    )
