# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reserve GPUs from the time they are selected until their container exists, and how long a reservation lasts.

A lock makes reading the holders, selecting GPUs and reserving them one atomic step. The lock cannot cover the engine's
module, which runs in another process, so reservations are needed. They expire in case a run is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import atomic_file, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import Holder

DIRECTORY = owned.RUNTIME_DIRECTORY
# Seconds. Longer than an engine needs to replace a container, without the container's own stop timeout. Images are
# pulled before GPUs are reserved.
LIFETIME = 300
LOCK_TIMEOUT = 120
_MAX_TIME = 1e12
_FILE = owned.RESERVATIONS
_LOCK = owned.RESERVATIONS_LOCK


class ReservationError(Exception):
    """The reservations of this host cannot be read or written."""


def _boot_time() -> float:
    # The wall clock can jump in the first minutes after boot.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def directory_for(user: int, environment: Mapping[str, str], root: str = "/") -> str:
    """Return the directory for the reservations of a user.

    For users other than root, this is the user's runtime directory. After `become`, a user may have no runtime
    directory, or XDG_RUNTIME_DIR may name the directory of the login user.
    """
    if user == 0:
        return DIRECTORY
    for directory in (environment.get("XDG_RUNTIME_DIR"), f"/run/user/{user}"):
        if directory and _owner(os.path.join(root, directory.lstrip("/"))) == user:
            return os.path.join(directory, "gpufleet")
    return owned.USER_DIRECTORY.format(user)


def _owner(path: str) -> int | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_uid if stat.S_ISDIR(status.st_mode) else None


class Reservations:
    """The reservations of a host. Call the other methods inside `locked()`, except to only read the holders."""

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
        """Hold the lock against other runs on this host. The kernel releases the lock of a process that ends."""
        path = os.path.join(self._directory, _LOCK)
        try:
            os.makedirs(self._directory, mode=0o755, exist_ok=True)
            self._require_private_directory()
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ReservationError(
                f"The lock file {path} cannot be opened: {error.strerror}. Set become: true, or give the user a "
                "runtime directory (loginctl enable-linger)."
            ) from error
        try:
            self._acquire(handle, path)
            yield
        finally:
            os.close(handle)

    def holders(self, exclude: tuple[str, str]) -> list[Holder]:
        """Return the reservations as holders, without those for the container `exclude` (engine, name)."""
        return [
            Holder(
                name=entry["name"],
                engine=entry["engine"],
                uuids=frozenset(entry["uuids"]),
                exclusive=entry["exclusive"],
                detail=f"reserved by a run in progress for at most {max(1, round(entry['expires'] - self._clock()))} s",
            )
            for entry in self._read()
            if (entry["engine"], entry["name"]) != exclude
        ]

    def reserve(self, engine: str, name: str, uuids: Iterable[str], exclusive: bool, lifetime: float = LIFETIME) -> str:
        """Reserve GPUs for a container and return the token that releases them.

        A reservation that another run made for the same container remains, because that run may still start it.
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
        """Release a reservation. Return false if it has expired."""
        entries = self._read()
        kept = [entry for entry in entries if entry["token"] != token]
        if len(kept) == len(entries):
            return False
        self._write(kept)
        return True

    def _require_private_directory(self) -> None:
        """Refuse a directory that another user owns or can write to, because its content cannot be trusted."""
        status = os.stat(self._directory, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise ReservationError(
                f"The reservation directory {self._directory} is not a directory that only this user can write to. "
                "Remove the directory, or remove the write permission of other users."
            )

    def _acquire(self, handle: int, path: str) -> None:
        try:
            if atomic_file.lock(handle, LOCK_TIMEOUT, self._clock, self._sleep):
                return
        except OSError as error:
            raise ReservationError(f"{path} cannot be locked: {error.strerror}.") from error
        raise ReservationError(
            f"Another run has held the lock {path} for {LOCK_TIMEOUT} s. Run `fuser {path}` to find its process."
        )

    def _read(self) -> list[dict[str, Any]]:
        """Return the valid entries. A file that cannot be parsed comes from a crash and counts as empty."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._require_private_directory()
            with open(os.open(os.path.join(self._directory, _FILE), flags), encoding="utf-8") as file:
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
    # Infinity and NaN would break the arithmetic.
    times = all(abs(entry[key]) < _MAX_TIME for key in ("lifetime", "expires"))
    return times and all(isinstance(item, str) for item in entry["uuids"])


def lifetime(options: Mapping[str, Any], present: Any) -> int:
    """Return the seconds after which a reservation expires. `present`: the stop timeout of the container."""
    return LIFETIME + stop_timeout(options, present)


def stop_timeout(options: Mapping[str, Any], present: Any) -> int:
    """Return the seconds that the engine waits for a container to stop. `present`: the value of the container."""
    values = (options.get("stop_timeout"), options.get("stop_time"), present)
    return max((whole_number(str(value)) for value in values if str(value).isdecimal()), default=0)
