# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say every half minute what hosts do while a long task runs.

Ansible runs a task on each host in a process of its own. A thread in each process notes what its host does, in a
directory that they share. The process that finds that the last lines are old prints those of all hosts. The task, its
connection and its processes on the host are as they are without this file.

A host says what it does in a file. A short command reads it beside the task, through a copy of the connection, and only
where the copy opens no further connection to the host: with SSH that keeps its connection (ControlPersist), and with
containers and the controller itself. Elsewhere the lines have only the text of the task.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.hosts.plugins.module_utils.output import progress_file, progress_text

# Seconds between two reports, between two readings of a host, and between two looks at the clock.
_REPORT, _READING, _TICK = 25.0, 10.0, 1.0
_LOCAL = ("local", "docker", "podman", "docker_api", "lxc", "nsenter")


class Board:
    """A directory on the controller in which the processes of a run note what their hosts do."""

    def __init__(self, directory: Path, show: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._show = show
        self._clock = clock

    def note(self, host: str, text: str, since: float) -> None:
        """Note what a host does since a time."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        new = self._file(host).with_suffix(".new")
        new.write_text(json.dumps([host, text, since]), encoding="utf-8")
        new.replace(self._file(host))

    def clear(self, host: str) -> None:
        """Remove the note of a host whose task has ended."""
        self._file(host).unlink(missing_ok=True)

    def report(self, since: float) -> None:
        """Print the notes of all hosts if the last report is old. `since`: when the task of the caller began."""
        now = self._clock()
        with (self._directory / "reported").open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            # The first report comes some time after the first task has begun, so short tasks print nothing.
            if now - max(float(file.read() or 0), since) < _REPORT:
                return
            file.truncate(0)
            file.write(str(now))
        found = [progress_text.HostProgress(host, text, now - begun) for host, text, begun in self._notes()]
        for line in progress_text.lines(found):
            self._show(line)

    def _notes(self) -> Iterator[tuple[str, str, float]]:
        for path in sorted(self._directory.glob("*.json")):
            with contextlib.suppress(OSError, ValueError):
                host, text, since = json.loads(path.read_text(encoding="utf-8"))
                yield host, text, since

    def _file(self, host: str) -> Path:
        # A name can have any characters, and can be long.
        return self._directory / f"{host.encode().hex()[:200]}.json"


@contextlib.contextmanager
def reported(action: ActionBase, host: str, text: str, *, asks_host: bool = True) -> Iterator[None]:
    """Report what the host does while the body runs. `text`: what the task does, if the host says nothing.

    `asks_host`: whether the host can say what it does, which it cannot during a reboot. In check mode,
    nothing takes long, and nothing is printed.
    """
    if action._task.check_mode:
        yield
        return
    board = Board(Path(C.DEFAULT_LOCAL_TMP) / "gpufleet-progress", Display().display)
    ended = threading.Event()
    read = _reader(action) if asks_host and _shares_connection(action._connection) else str
    thread = threading.Thread(target=_watch, args=(board, host, text, read, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=5)
        with contextlib.suppress(OSError):
            board.clear(host)


def _watch(board: Board, host: str, text: str, read: Callable[[], str], ended: threading.Event) -> None:
    since = time.time()
    read_at = since
    told = ""
    while not ended.wait(_TICK):
        now = time.time()
        # A full disk of the controller must not stop the task.
        with contextlib.suppress(OSError):
            if now - read_at >= _READING:
                read_at = now
                told = read()
            board.note(host, told or text, since)
            board.report(since)


def _reader(action: ActionBase) -> Callable[[], str]:
    """Return a function that reads what the host says. It returns an empty text if the host says nothing."""
    beside = copy.copy(action)
    beside._connection = copy.copy(action._connection)
    if beside._connection.become:
        beside._connection.set_become_plugin(copy.copy(beside._connection.become))

    def read() -> str:
        # While the host reboots, it cannot be reached.
        with contextlib.suppress(Exception):
            result = beside._low_level_execute_command(f"cat {progress_file.PATH} 2>/dev/null")
            return str(result["stdout"]).strip() if result["rc"] == 0 else ""
        return ""

    return read


def _shares_connection(connection: Any) -> bool:
    """Return whether a second command opens no further connection to the host."""
    name = str(connection.transport).rpartition(".")[2]
    if name in _LOCAL:
        return True
    if name != "ssh":
        return False
    options = [connection.get_option(option) for option in ("ssh_args", "ssh_common_args", "ssh_extra_args")]
    return "controlpersist" in " ".join(str(option or "") for option in options).lower()


class ReportedModule(ActionBase):
    """Run the module of the task as Ansible does without an action plugin, and report what it does meanwhile."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = True
    # What the module does, if the host says nothing.
    TEXT = ""

    def run(self, tmp=None, task_vars=None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        wrap_async = bool(self._task.async_val) and not self._connection.has_native_async
        with reported(self, host_name(task_vars), self.TEXT):
            return self._execute_module(task_vars=task_vars, wrap_async=wrap_async)


def host_name(task_vars: dict[str, Any] | None) -> str:
    """Return the name of the host in the inventory."""
    return str((task_vars or {}).get("inventory_hostname", ""))
