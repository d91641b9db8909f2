# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A running dpkg is busy, and a killed one is interrupted."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    dpkg_state,
    installed_packages,
    lock_holders,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared

HOLD = """\
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
"""


def nothing(argv):
    return 127, "", ""


@contextlib.contextmanager
def locked(path, seconds=60.0):
    """Let another process hold a lock like dpkg."""
    with subprocess.Popen([sys.executable, "-c", HOLD, path, str(seconds)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"locked\n"
            yield
        finally:
            process.kill()


@pytest.fixture
def dpkg(tmp_path):
    """Return the directory of dpkg with the journal of a running or interrupted run."""
    directory = tmp_path / "var/lib/dpkg"
    (directory / "updates").mkdir(parents=True)
    (directory / "updates" / "0001").write_text("")
    return directory


def observed(root):
    state = installed_packages.read(str(root), "apt", nothing, declared.PLACES["package_patterns"])
    return {name: state[name] for name in ("interrupted", "busy")}


@pytest.mark.parametrize("lock", ["lock-frontend", "lock"])
def test_a_running_dpkg_is_busy_and_not_interrupted(tmp_path, dpkg, lock):
    assert observed(tmp_path) == {"interrupted": True, "busy": False}
    with locked(dpkg / lock):
        assert observed(tmp_path) == {"interrupted": False, "busy": True}
    assert observed(tmp_path) == {"interrupted": True, "busy": False}
    with locked(dpkg / lock):
        (dpkg / "updates" / "0001").unlink()
    assert observed(tmp_path) == {"interrupted": False, "busy": False}


def test_dpkg_is_busy_if_it_ends_while_its_database_is_read(tmp_path, dpkg, monkeypatch):
    (dpkg / "status").write_text("Package: dkms\nStatus: install ok half-installed\n")
    real = installed_packages.read_text
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(dpkg / "lock"))

        def read_and_end(root, path):
            text = real(root, path)
            stack.close()
            return text

        monkeypatch.setattr(installed_packages, "read_text", read_and_end)
        state = installed_packages.read(str(tmp_path), "apt", nothing, declared.PLACES["package_patterns"])
    assert (state["unfinished"], state["busy"]) == (["dkms"], True)
    assert not dpkg_state.is_busy(str(tmp_path))


def test_a_lock_is_detected_without_permission_to_open_it(tmp_path, dpkg, monkeypatch):
    real = open

    def refuse(path, *more, **options):
        if os.fspath(path).endswith("lock-frontend"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *more, **options)

    with locked(dpkg / "lock-frontend"):
        monkeypatch.setattr(lock_holders, "open", refuse, raising=False)
        assert observed(tmp_path) == {"interrupted": False, "busy": True}
    assert observed(tmp_path) == {"interrupted": True, "busy": False}


def test_waiting_ends_when_the_lock_is_free_or_the_time_is_over(tmp_path, dpkg):
    with locked(dpkg / "lock-frontend", 60):
        dpkg_state.wait_until_free(str(tmp_path), 0)
        dpkg_state.wait_until_free(str(tmp_path), 0.2)
        assert dpkg_state.is_busy(str(tmp_path))
    start = time.monotonic()
    with locked(dpkg / "lock-frontend", 1.5):
        dpkg_state.wait_until_free(str(tmp_path), 60)
    assert not dpkg_state.is_busy(str(tmp_path))
    assert time.monotonic() - start < 50
