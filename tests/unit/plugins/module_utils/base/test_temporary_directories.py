# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Private directories, also of runs that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.temporary_directories import (
    remove_abandoned,
    workspace,
)

CODE = """
import sys
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.temporary_directories import workspace
with workspace(sys.argv[1]) as directory:
    open(f"{directory}/lists", "w").close()
    print(directory, flush=True)
    sys.stdin.read()
"""


def test_only_the_directories_of_killed_runs_are_removed(tmp_path: Path) -> None:
    (tmp_path / "var/tmp").mkdir(parents=True)
    for name in ("gpufleet-notes", "other-1-x"):
        (tmp_path / "var/tmp" / name).mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", CODE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as other:
        assert other.stdout
        killed = Path(other.stdout.readline().strip())
        with workspace(str(tmp_path)) as directory:
            remove_abandoned(str(tmp_path))
            assert killed.exists()
            other.send_signal(signal.SIGKILL)
            other.wait()
            assert (killed / "lists").exists()
            remove_abandoned(str(tmp_path))
            assert Path(directory).exists()
    assert sorted(os.listdir(tmp_path / "var/tmp")) == ["gpufleet-notes", "other-1-x"]
