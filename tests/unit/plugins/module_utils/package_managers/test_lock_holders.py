# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which process uses a package manager."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import lock_holders

LOCK = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"


@contextlib.contextmanager
def locked(path: Path):
    """Lock a file with another process."""
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate("\n")


def write(root: Path, path: str, text: str = "") -> Path:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


@pytest.mark.parametrize(
    ("manager", "path"),
    [
        ("apt", "/var/lib/dpkg/lock-frontend"),
        ("apt", "/var/lib/dpkg/lock"),
        ("apt", "/var/lib/apt/lists/lock"),
        ("apt", "/var/cache/apt/archives/lock"),
        ("dnf", "/var/lib/rpm/.rpm.lock"),
        ("dnf", "/usr/lib/sysimage/rpm/.rpm.lock"),
        ("zypper", "/usr/lib/sysimage/rpm/.rpm.lock"),
    ],
)
def test_the_process_that_locked_a_file_is_named(tmp_path, manager, path):
    assert lock_holders.holder(str(tmp_path), manager) is None
    file = write(tmp_path, path)
    with locked(file) as pid:
        found = lock_holders.holder(str(tmp_path), manager) or ""
        assert found.startswith(f"process {pid} (python")
        assert found.endswith(f") holds {path}")
    assert lock_holders.holder(str(tmp_path), manager) is None
    # The query took no lock.
    with file.open("w") as handle:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("manager", "path", "text", "is_busy"),
    [
        ("dnf", "/var/cache/dnf/metadata_lock.pid", "PARENT", True),
        ("dnf", "/var/cache/dnf/download_lock.pid", "PARENT", True),
        ("dnf", "/var/lib/dnf/rpmdb_lock.pid", "PARENT", True),
        ("zypper", "/run/zypp.pid", "PARENT\n", True),
        # A process that ended, an empty file, and this process.
        ("dnf", "/var/cache/dnf/metadata_lock.pid", "99999999", False),
        ("zypper", "/run/zypp.pid", "", False),
        ("zypper", "/run/zypp.pid", "SELF", False),
        # zypper can run while dnf runs.
        ("zypper", "/var/cache/dnf/metadata_lock.pid", "PARENT", False),
    ],
)
def test_a_file_with_the_id_of_a_process_counts_while_the_process_runs(tmp_path, manager, path, text, is_busy):
    # Names instead of numbers in the table, because all workers of pytest must collect the same tests.
    text = text.replace("PARENT", str(os.getppid())).replace("SELF", str(os.getpid()))
    write(tmp_path, path, text)
    found = lock_holders.holder(str(tmp_path), manager)
    assert (found is not None and f"process {os.getppid()} (" in found) is is_busy


def test_a_lock_without_a_process_is_reported(tmp_path):
    file = write(tmp_path, "/var/lib/rpm/.rpm.lock")
    with file.open("w") as handle:
        # The kernel names no process for such a lock, as for a process of another container.
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        found = lock_holders.holder(str(tmp_path), "dnf")
    assert found == "a process outside this container holds /var/lib/rpm/.rpm.lock"


def test_waiting_ends_with_the_process_or_with_the_time(monkeypatch):
    now, slept = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    answers = ["busy", "busy", None]
    assert lock_holders.wait(lambda: answers.pop(0), 60) is None
    assert slept == [1, 1]
    assert lock_holders.wait(lambda: "busy", 1.5) == "busy"
    assert slept[2:] == [1, 0.5]
    # Without a time limit, one look is enough.
    assert lock_holders.wait(lambda: "busy", 0) == "busy"
    assert len(slept) == 4
