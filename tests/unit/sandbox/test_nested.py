# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nested runs of ansible-playbook behave like runs of their own, but share a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import REPOSITORY

# The client starts the process in the shell, which lives until all runs are over.
RUNS = """
run() { "$0" "$1" "$2" ansible-playbook "$3"; echo "status $?"; }
run "$1" "$2" --version 2>&1 | sed -n '1p;$p'
run "$1" "$2" missing.yml 2>&1
cat /proc/net/unix
"""
# Other tests of the same machine have other names.
NAME = f"nested-test-{os.getpid()}"
# The flags of a socket that accepts connections. An accepted connection has the same address for a moment.
LISTENS = " 00010000 "


def listening(table):
    return [line for line in table if line.endswith(f"-{NAME}") and LISTENS in line]


def listens():
    return listening(Path("/proc/net/unix").read_text().splitlines())


def test_runs_share_a_process_that_ends_with_their_owner(tmp_path):
    argv = ["sh", "-c", RUNS, sys.executable, str(REPOSITORY / "tests/sandbox/nested.py"), NAME]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    output, _title, table = done.stdout.partition("Num ")
    version, status, *rest = output.splitlines()
    assert version.startswith("ansible-playbook [core ")
    assert status == "status 0"
    assert "missing.yml could not be found" in " ".join(rest)
    assert rest[-1] == "status 1"
    assert len(listening(table.splitlines())) == 1
    for _try in range(100):
        if not listens():
            break
        time.sleep(0.2)
    assert not listens()


def test_an_error_before_the_process_listens_is_reported(tmp_path):
    # The process imports nothing of this copy's collection.
    program = tmp_path / "tests/sandbox/nested.py"
    program.parent.mkdir(parents=True)
    shutil.copy(REPOSITORY / "tests/sandbox/nested.py", program)
    argv = [sys.executable, "-I", str(program), "nested-broken", "ansible-playbook", "--version"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 1
    assert "ended before it listened. Traceback" in done.stderr
    assert "ModuleNotFoundError" in done.stderr
