# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that stall are ended with all their processes, and others run to their end."""

from __future__ import annotations

import os
import pty
import time
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.stalled_program import StallWatch, run_watched

A, B = (1, 10), (1, 11)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([({}, 0), ({}, 0), ({}, 0)], [False, False, True]),
        # Each second 2000 bytes arrive.
        ([({A: 2000}, 0), ({A: 4000}, 0), ({A: 6000}, 0), ({A: 8000}, 0)], [False] * 4),
        ([({A: 2000}, 0), ({A: 2000}, 0), ({A: 2000}, 0), ({A: 2000}, 0)], [False, False, False, True]),
        # A small file follows another one.
        ([({A: 2000}, 0), ({}, 0), ({B: 2000}, 0), ({}, 0)], [False] * 4),
        # Retries download the same bytes again.
        ([({A: 2000}, 0), ({A: 0}, 0), ({A: 2000}, 0), ({A: 0}, 0)], [False, False, False, True]),
        # A few bytes are no progress.
        ([({A: 5}, 0), ({A: 10}, 0), ({A: 15}, 0)], [False, False, True]),
        # It computes, for example it verifies metadata.
        ([({}, 0.9), ({}, 1.8), ({}, 2.7), ({}, 3.6)], [False] * 4),
        ([({}, 0.01), ({}, 0.02), ({}, 0.03)], [False, False, True]),
    ],
)
def test_is_stalled(samples, expected):
    watch = StallWatch(3, 100)
    assert [watch.is_stalled(101 + number, *sample) for number, sample in enumerate(samples)] == expected


def running(mark: str) -> list[str]:
    """Return the commands of the processes with this environment."""
    wanted = f"MARK={mark}".encode()
    paths = Path("/proc").glob("[0-9]*")
    return [_read(path / "comm").decode() for path in paths if wanted in _read(path / "environ").split(b"\0")]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def environment(mark: str) -> dict[str, str]:
    return {**os.environ, "MARK": mark}


@pytest.mark.parametrize(
    "script",
    [
        "echo Get:1; sleep 60",
        "sleep 60 & sleep 60 & wait",
        # An orphan, and a process in a session of its own.
        "(sleep 60 &); setsid sleep 60",
        "trap '' TERM; while :; do sleep 60; done",
        # Its output and its log are no progress.
        "while :; do head -c 5000 /dev/zero; sleep 0.1; done",
    ],
)
def test_a_stalled_program_is_ended_with_all_its_processes(script, tmp_path):
    start = time.monotonic()
    result = run_watched(["bash", "-c", script], environment(str(tmp_path)), 1)
    assert result.stalled
    # A killed process may take a moment to end on a busy machine.
    while running(str(tmp_path)) and time.monotonic() - start < 50:
        time.sleep(0.1)
    assert running(str(tmp_path)) == []
    assert time.monotonic() - start < 50


def test_a_slow_program_runs_to_its_end(tmp_path):
    script = f"for i in {{1..12}}; do head -c 5000 /dev/zero; sleep 0.4; done > {tmp_path}/part; cat; exit 3"
    # Longer than one of its pauses, also on a busy machine.
    result = run_watched(["bash", "-c", script], environment("slow"), 4, stdin="given")
    assert (result.rc, result.out, result.stalled) == (3, "given", False)


def test_the_time_in_which_another_program_is_waited_for_does_not_count(tmp_path):
    asked: list[set[int]] = []

    def waits(pids: set[int]) -> bool:
        asked.append(pids)
        return True

    result = run_watched(["sleep", "10"], environment("waits"), 1, waits=waits)
    assert (result.rc, result.stalled) == (0, False)
    assert asked


def test_the_open_files_of_a_stalled_program(tmp_path):
    script = f"exec 3> {tmp_path}/partial; head -c 5000 /dev/zero >&3; sleep 60"
    result = run_watched(["bash", "-c", script], environment("open"), 1)
    assert f"{tmp_path}/partial" in result.open_files


def test_an_exception_ends_the_program(tmp_path):
    """For example Ctrl-C."""

    def waits(_pids: set[int]) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_watched(["bash", "-c", "sleep 60 & sleep 60"], environment(str(tmp_path)), 1, waits=waits)
    assert running(str(tmp_path)) == []


def test_a_lost_terminal_ends_the_program(tmp_path):
    """It gets the hangup of its terminal, as if the module's own function had started it."""
    child, terminal = pty.fork()
    if child == 0:
        try:
            run_watched(["bash", "-c", "sleep 60 & sleep 60"], environment(str(tmp_path)), 60)
        finally:
            os._exit(0)
    end = time.monotonic() + 50
    while running(str(tmp_path)).count("sleep\n") < 2 and time.monotonic() < end:
        time.sleep(0.1)
    assert running(str(tmp_path)).count("sleep\n") == 2
    os.close(terminal)
    os.waitpid(child, 0)
    while running(str(tmp_path)) and time.monotonic() < end:
        time.sleep(0.1)
    assert running(str(tmp_path)) == []
