# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the lines about long tasks are printed, and what remains on a host if Ansible ends meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import progress


class Fleet:
    """The boards of several processes, with a clock."""

    def __init__(self, directory: Path) -> None:
        self.now = 1000.0
        self.lines: list[str] = []
        self._directory = directory

    def board(self) -> progress.Board:
        return progress.Board(self._directory / "shared", self.lines.append, lambda: self.now)

    def tick(self, since: float, *hosts: tuple[str, str]) -> list[str]:
        """Let each host note its text, and then report. Return the printed lines."""
        self.lines.clear()
        for host, text in hosts:
            self.board().note(host, text, since)
        for _host in hosts:
            self.board().report(since)
        return list(self.lines)


@pytest.fixture
def fleet(tmp_path):
    return Fleet(tmp_path)


def test_a_short_task_prints_nothing(fleet):
    for fleet.now in range(1000, 1025):
        assert fleet.tick(1000, ("a", "x"), ("b", "x")) == []


def test_one_process_prints_a_line_for_all_at_least_every_half_minute(fleet):
    printed = {}
    for fleet.now in range(1000, 1100):
        printed[fleet.now] = fleet.tick(1000, ("a", "x"), ("b", "x"), ("c", "y"))
    times = [now for now, lines in printed.items() if lines]
    assert times[0] <= 1030
    assert all(later - earlier <= 30 for earlier, later in zip(times, times[1:], strict=False))
    assert printed[times[1]] == ["a, b: 0:50 x", "c: 0:50 y"]


def test_a_host_that_begins_later_is_seen_within_half_a_minute(fleet):
    for fleet.now in range(1000, 1027):
        fleet.tick(1000, ("a", "x"))
    begun = fleet.now
    seen = []
    for fleet.now in range(begun, begun + 31):
        seen += fleet.tick(begun, ("b", "y"))
    assert any("b: " in line for line in seen)


def test_a_host_whose_task_has_ended_is_not_named(fleet):
    fleet.tick(1000, ("a", "x"), ("b/../\n", "x"))
    fleet.board().clear("a")
    fleet.now += 30
    fleet.board().report(1000)
    assert [line for line in fleet.lines if "a:" in line or "a," in line] == []
    assert len(fleet.lines) == 1


class Action:
    """An action plugin with a connection."""

    def __init__(self, transport, *, become=None, **options):
        self._task = SimpleNamespace(check_mode=False)
        self._connection = MagicMock(transport=transport, become=become)
        self._connection.get_option = options.get
        self.commands: list[tuple[object, str]] = []
        self.result = {"rc": 0, "stdout": "configuring nvidia-open\n"}

    def _low_level_execute_command(self, command):
        self.commands.append((self._connection, command))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.mark.parametrize(
    ("transport", "options", "shares"),
    [
        ("ssh", {"ssh_args": "-C -o ControlMaster=auto -o ControlPersist=60s"}, True),
        ("ssh", {"ssh_args": "-C", "ssh_common_args": "-o controlpersist=yes"}, True),
        ("ssh", {"ssh_args": "-C"}, False),
        ("community.docker.docker", {}, True),
        ("local", {}, True),
        ("ansible.netcommon.libssh", {}, False),
        ("winrm", {}, False),
    ],
)
def test_a_host_is_only_asked_if_that_opens_no_further_connection(transport, options, shares):
    assert progress._shares_connection(Action(transport, **options)._connection) is shares


def test_the_host_is_asked_through_a_copy_of_the_connection():
    action = Action("ssh", become=MagicMock())
    assert progress._reader(action)() == "configuring nvidia-open"
    ((connection, command),) = action.commands
    assert connection is not action._connection
    connection.set_become_plugin.assert_called_once()
    # The command ends by itself, so nothing remains on the host.
    assert command == "cat /run/gpufleet/progress 2>/dev/null"


@pytest.mark.parametrize("result", [{"rc": 1, "stdout": ""}, ConnectionError("rebooting")])
def test_a_host_that_says_nothing(result):
    action = Action("local")
    action.result = result
    assert progress._reader(action)() == ""


def test_in_check_mode_nothing_is_printed_or_started(monkeypatch):
    monkeypatch.setattr(progress.threading, "Thread", None)
    action = Action("local")
    action._task.check_mode = True
    with progress.reported(action, "a", "x"):
        pass


def test_lines_of_a_running_task(monkeypatch, tmp_path):
    printed = []
    monkeypatch.setattr(progress, "_REPORT", 0.2)
    monkeypatch.setattr(progress, "_READING", 0.1)
    monkeypatch.setattr(progress, "_TICK", 0.05)
    monkeypatch.setattr(progress.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(progress, "Display", lambda: SimpleNamespace(display=printed.append))
    with progress.reported(Action("local"), "node01", "changing packages"):
        end = time.monotonic() + 60
        while not printed and time.monotonic() < end:
            time.sleep(0.05)
    assert printed[0] == "node01: 0:00 configuring nvidia-open"
    assert list((tmp_path / "gpufleet-progress").glob("*.json")) == []


PLAY = """
- hosts: all
  gather_facts: false
  strategy: free
  tasks:
    - ansible.builtin.command: {argv: [sleep, "1261.25"]}
      when: inventory_hostname == 'plain'
    - gpufleet.hosts.reported_task:
        module: ansible.builtin.command
        arguments: {argv: [sleep, "1261.75"]}
        text: sleeping
      when: inventory_hostname == 'reported'
"""


def running(seconds: str) -> list[int]:
    """Return the processes that sleep for so many seconds."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if (process / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(int(process.name))
    return found


def wait_until(condition) -> bool:
    """Wait long enough for a busy machine."""
    end = time.monotonic() + 300
    while not condition() and time.monotonic() < end:
        time.sleep(0.2)
    return condition()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_as_many_processes_as_without_reports(tmp_path, number):
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    argv = [sys.executable, "-m", "ansible", "playbook", "-i", "plain,reported,", "-c", "local", "play.yml"]
    argv += ["-e", f"ansible_python_interpreter={sys.executable}"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen(argv, cwd=tmp_path, start_new_session=True, **quiet)
    try:
        both = ("1261.25", "1261.75")
        assert wait_until(lambda: all(map(running, both)) or run.poll() is not None)
        assert [len(running(seconds)) for seconds in both] == [1, 1]
        time.sleep(2)
        # Ctrl-C reaches all processes of the terminal. SIGKILL stands for a controller that is gone.
        os.killpg(run.pid, number)
        run.wait(timeout=300)
        # Signals take effect a little later.
        assert wait_until(lambda: len(running("1261.75")) == len(running("1261.25")))
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
        for pid in [*running("1261.25"), *running("1261.75")]:
            os.kill(pid, signal.SIGKILL)
