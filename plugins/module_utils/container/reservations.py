# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations: what bridges the time between choosing GPUs and the container being there that holds them.

A lock makes "look who holds what, choose, reserve" one step; it cannot span the work of the engine's module, which is
another process. The reservation can, and it expires, so that a run that dies takes nothing away for long.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import Holder

DIRECTORY = "/run/gpufleet"
# Longer than an engine needs to stop one container and start the next, what the container itself may take to stop not
# counted; images are pulled before a reservation is made.
LIFETIME = 300
LOCK_PATIENCE = 120
_END_OF_TIME = 1e12
_FILE = "gpu-reservations.json"
_LOCK = "gpu-reservations.lock"


class ReservationError(Exception):
    """The reservations of this host cannot be read or written."""


def _boot_time() -> float:
    # Not the wall clock: a host's first minutes are when that jumps.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def directory_for(user: int, environment: Mapping[str, str], root: str = "/") -> str:
    """Tell where a user's runs meet: root's, which see every container, in one place; others' in their own.

    That is the user's runtime directory. `become` leads to users that have none, and may bring another user's along.
    """
    if user == 0:
        return DIRECTORY
    for place in (environment.get("XDG_RUNTIME_DIR"), f"/run/user/{user}"):
        if place and _owner(os.path.join(root, place.lstrip("/"))) == user:
            return os.path.join(place, "gpufleet")
    return f"/tmp/gpufleet-{user}"


def _owner(path: str) -> int | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_uid if stat.S_ISDIR(status.st_mode) else None


class Reservations:
    """The reservations of a host. Use it inside `locked()`."""

    def __init__(
        self,
        directory: str = DIRECTORY,
        clock: Callable[[], float] = _boot_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._sleep = sleep

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs on this host out. In a dead process's hands the lock falls by itself."""
        path = os.path.join(self._directory, _LOCK)
        try:
            os.makedirs(self._directory, mode=0o755, exist_ok=True)
            self._refuse_foreign()
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ReservationError(
                f"{path}, by which runs on this host wait for each other, cannot be opened: {error.strerror}. "
                "Become root, or give the user a runtime directory (loginctl enable-linger)."
            ) from error
        try:
            self._take(handle, path)
            yield
        finally:
            os.close(handle)

    def holders(self, besides: tuple[str, str]) -> list[Holder]:
        """List who has reserved what, but for one container, given as (engine, name)."""
        return [
            Holder(
                name=entry["name"],
                engine=entry["engine"],
                uuids=frozenset(entry["uuids"]),
                exclusive=entry["exclusive"],
                detail=f"reserved by a run in progress for at most {max(1, round(entry['expires'] - self._clock()))} s",
            )
            for entry in self._read()
            if (entry["engine"], entry["name"]) != besides
        ]

    def reserve(self, engine: str, name: str, uuids: Iterable[str], exclusive: bool, lifetime: float = LIFETIME) -> str:
        """Reserve GPUs for a container and return the token to release them with.

        Another run's reservation for the same container stays: that run may still be about to start it.
        """
        token = uuid.uuid4().hex
        entries = self._read()
        entries.append(
            {
                "token": token,
                "engine": engine,
                "name": name,
                "uuids": sorted(uuids),
                "exclusive": exclusive,
                "lifetime": lifetime,
                "expires": self._clock() + lifetime,
            }
        )
        self._write(entries)
        return token

    def release(self, token: str) -> bool:
        """Give a reservation up; false when it had expired or was replaced."""
        entries = self._read()
        kept = [entry for entry in entries if entry["token"] != token]
        if len(kept) == len(entries):
            return False
        self._write(kept)
        return True

    def _refuse_foreign(self) -> None:
        """In a directory that another user could have made, or can write to, nobody's word counts."""
        status = os.stat(self._directory, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise ReservationError(
                f"{self._directory}, where runs on this host wait for each other, is not this user's alone. "
                "Remove it, or take from others the right to write to it."
            )

    def _take(self, handle: int, path: str) -> None:
        waited = 0.0
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise ReservationError(f"{path} cannot be locked: {error.strerror}.") from error
            if waited >= LOCK_PATIENCE:
                raise ReservationError(
                    f"Another run has held {path} for {LOCK_PATIENCE} s. `fuser {path}` names its process."
                )
            self._sleep(0.1)
            waited += 0.1

    def _read(self) -> list[dict[str, Any]]:
        """Read what is reserved now. An unreadable file reserves nothing: it can only be left over from a crash."""
        try:
            with open(os.path.join(self._directory, _FILE), encoding="utf-8") as file:
                entries = json.load(file)
        except (OSError, ValueError, RecursionError):
            return []
        if not isinstance(entries, list):
            return []
        now = self._clock()
        return [entry for entry in entries if _is_entry(entry) and now < entry["expires"] <= now + entry["lifetime"]]

    def _write(self, entries: list[dict[str, Any]]) -> None:
        path = os.path.join(self._directory, _FILE)
        try:
            handle, temporary = tempfile.mkstemp(dir=self._directory, prefix=f".{_FILE}.")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(entries, file, indent=2)
            os.replace(temporary, path)
        except OSError as error:
            raise ReservationError(f"{path} cannot be written: {error.strerror}.") from error


def _is_entry(entry: Any) -> bool:
    kinds: Mapping[str, type | tuple[type, ...]] = {
        "token": str,
        "engine": str,
        "name": str,
        "uuids": list,
        "exclusive": bool,
        "lifetime": (int, float),
        "expires": (int, float),
    }
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), kind) for key, kind in kinds.items()):
        return False
    # No clock shows more, and neither infinity nor what is no number can be counted with.
    times = all(abs(entry[key]) < _END_OF_TIME for key in ("lifetime", "expires"))
    return times and all(isinstance(one, str) for one in entry["uuids"])
