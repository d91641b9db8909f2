# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program that downloads, and end it with all its children if no data arrives."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from typing import IO, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text

_INTERVAL = 1.0
# Retries of a stalled download write a few bytes each time.
_LEAST_BYTES = 1024
# A program that computes this part of the time, for example while it verifies metadata, is not stalled.
_BUSY = 0.5
_GRACE = 3.0
_LOGS = "/var/log/"

Files = Mapping["tuple[int, int]", int]


@dataclasses.dataclass(frozen=True)
class WatchedResult:
    """How a program ended. `open_files` are the paths that it had open when it was ended because of a stall."""

    rc: int
    out: str
    err: str
    stalled: bool = False
    open_files: tuple[str, ...] = ()


class StallWatch:
    """Decide whether downloads are stalled, from the sizes of the open files and the computing time."""

    def __init__(self, timeout: float, now: float) -> None:
        """Allow `timeout` seconds without progress from `now` on."""
        self._timeout = timeout
        self._since = self._last = now
        self._cpu = 0.0
        self._largest: dict[tuple[int, int], int] = {}
        self._counted = 0

    def is_stalled(self, now: float, files: Files, cpu: float) -> bool:
        """Return whether the time without progress is over. A file that shrinks and grows again makes no progress."""
        for key, size in files.items():
            self._largest[key] = max(size, self._largest.get(key, 0))
        total = sum(self._largest.values())
        busy = cpu - self._cpu >= _BUSY * (now - self._last) > 0
        if busy or total - self._counted >= _LEAST_BYTES:
            self._since, self._counted = now, total
        self._last, self._cpu = now, cpu
        return now - self._since >= self._timeout

    def excuse(self, now: float) -> None:
        """Start the time again, because the program waits for something else."""
        self._since = now


def run_watched(
    argv: list[str],
    environment: Mapping[str, str],
    timeout: float,
    *,
    stdin: str | None = None,
    waits: Callable[[set[int]], bool] = lambda pids: False,
) -> WatchedResult:
    """Run a program until it ends, or until it stalls for `timeout` seconds.

    It stays in the process group and session of the caller, so that a lost terminal ends it, too. `waits` tells whether
    the processes wait for another program.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write((stdin or "").encode())
        given.seek(0)
        process = subprocess.Popen(argv, env=dict(environment), stdin=given, stdout=out, stderr=err)
        own = {_key(os.fstat(file.fileno())) for file in (given, out, err)}
        try:
            stalled, paths = _watch(process, timeout, own, waits)
        except BaseException:
            _end(process, own)
            raise
        return WatchedResult(process.returncode, _text(out), _text(err), stalled, tuple(paths))


def _watch(
    process: subprocess.Popen[bytes], timeout: float, own: set[tuple[int, int]], waits: Callable[[set[int]], bool]
) -> tuple[bool, list[str]]:
    watch = StallWatch(timeout, time.monotonic())
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(_INTERVAL, timeout / 4))
            return False, []
        pids = tree(process.pid)
        files = _open_files(pids)
        sizes = {key: size for path, key, size in files if key not in own and not path.startswith(_LOGS)}
        now = time.monotonic()
        if watch.is_stalled(now, sizes, sum(map(_cpu, pids))):
            if waits(pids):
                watch.excuse(now)
                continue
            _end(process, own)
            return True, sorted({path for path, key, _size in files if key not in own})


def tree(pid: int) -> set[int]:
    """Return the IDs of a process and its descendants."""
    parents = {}
    for name in filter(str.isdecimal, listing("/", "/proc")):
        # The name of a program can have spaces and parentheses.
        fields = (read_text("/", f"/proc/{name}/stat") or "").rpartition(")")[2].split()
        if fields and fields[0] != "Z":
            parents[int(name)] = int(fields[1])
    found = {pid} & {*parents}
    new = found
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found = found | new
    return found


def _end(process: subprocess.Popen[bytes], own: set[tuple[int, int]]) -> None:
    """End the process, its descendants, and orphans of them, which still have its output open."""
    pids = tree(process.pid) | _users(own)
    _signal(pids, signal.SIGTERM)
    end = time.monotonic() + _GRACE
    while time.monotonic() < end and any(map(_is_alive, pids)):
        process.poll()
        time.sleep(0.05)
    _signal({pid for pid in pids | _users(own) if _is_alive(pid)}, signal.SIGKILL)
    process.wait()


def _users(own: set[tuple[int, int]]) -> set[int]:
    pids = {int(name) for name in listing("/", "/proc") if name.isdecimal()} - {os.getpid()}
    return {pid for pid in pids if any(key in own for _path, key, _size in _open_files([pid]))}


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _is_alive(pid: int) -> bool:
    fields = (read_text("/", f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return bool(fields) and fields[0] != "Z"


def _open_files(pids: Iterable[int]) -> list[tuple[str, tuple[int, int], int]]:
    found = []
    for pid in pids:
        for name in listing("/", f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{name}"
            # Files and processes come and go meanwhile.
            with contextlib.suppress(OSError):
                state = os.stat(path)
                if stat.S_ISREG(state.st_mode):
                    found.append((os.readlink(path), _key(state), state.st_size))
    return found


def _key(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino


def _cpu(pid: int) -> float:
    fields = (read_text("/", f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if len(fields) > 14 else 0.0


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "surrogateescape")
