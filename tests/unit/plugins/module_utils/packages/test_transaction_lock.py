# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Only one package transaction runs on a host."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction_lock import (
    LOCK,
    TransactionLockError,
    locked,
)


def test_two_transactions_do_not_run_at_once(tmp_path: Path) -> None:
    times = itertools.count()
    root = str(tmp_path)
    second = locked(root, 3, clock=lambda: float(next(times)), sleep=lambda _seconds: None)
    refused = pytest.raises(
        TransactionLockError, match=rf"busy after 3 seconds: another package transaction holds {LOCK}"
    )
    with locked(root, 0), refused, second:
        pass
    with locked(root, 0):
        pass


def test_a_killed_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction_lock import locked\n"
        "with locked(sys.argv[1], 0):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(TransactionLockError, match="another package transaction"), locked(str(tmp_path), 0):
            pass
        process.kill()
        process.wait()
        with locked(str(tmp_path), 0):
            pass
