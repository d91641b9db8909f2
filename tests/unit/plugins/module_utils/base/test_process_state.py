# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modes of files do not depend on the shell that started a module."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.workspace import workspace

UMASKS = [0o022, 0o027, 0o077]
PROGRAM = """
import json, os, pathlib
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import process_state
process_state.pin()
folder = pathlib.Path("folder")
folder.mkdir()
(folder / "file").write_text("x")
names = ("TMPDIR", "https_proxy")
print(json.dumps([oct(folder.stat().st_mode)[-3:], oct((folder / "file").stat().st_mode)[-3:],
                  [os.environ.get(name) for name in names]]))
"""


@pytest.mark.parametrize("umask", UMASKS)
def test_what_a_module_creates_and_starts_is_independent_of_its_caller(tmp_path: Path, umask: int) -> None:
    changed = {"TMPDIR": str(tmp_path), "https_proxy": "http://proxy:1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, **changed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        umask=umask,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == ["755", "644", [None, "http://proxy:1"]]


@pytest.mark.parametrize("umask", UMASKS)
def test_the_user_of_apt_can_read_the_keys_in_a_view(tmp_path: Path, umask: int) -> None:
    (tmp_path / "var/tmp").mkdir(parents=True)
    before = os.umask(umask)
    try:
        with workspace(str(tmp_path)) as directory:
            key = Path(directory) / "root/usr/share/keyrings"
            key.mkdir(parents=True)
            modes = [oct(path.stat().st_mode)[-3:] for path in (key, *key.parents) if str(path) > directory]
        assert set(modes) == {"755"}
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
