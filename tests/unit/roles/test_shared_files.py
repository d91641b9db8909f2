# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The task file with which all roles write and remove files."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import yaml

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

TASKS = Path(__file__).resolve().parents[3] / "roles/observe/tasks"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_files_are_written_and_removed_and_directories_of_others_keep_their_modes(tmp_path: Path) -> None:
    for name in ("files.yml", "files_in_own_directories.yml"):
        text = (TASKS / name).read_text(encoding="utf-8").replace("owner: root", f"owner: {os.getuid()}")
        text = text.replace("group: root", f"group: {os.getgid()}").replace("../../observe/tasks/", "")
        (tmp_path / name).write_text(text, encoding="utf-8")
    theirs, ours, old = tmp_path / "theirs", tmp_path / "ours/deep", tmp_path / "theirs/old"
    theirs.mkdir(mode=0o700)
    old.write_text("old")
    wanted = [
        {"path": str(theirs / "new"), "content": "one\n", "mode": "0600"},
        {"path": str(old), "content": None},
        {"path": str(theirs / "missing"), "content": None},
        {"path": str(theirs / "empty"), "content": ""},
    ]
    own = [{"path": str(ours / "file"), "content": '{"a": 1}\n'}]
    tasks = [
        {"ansible.builtin.include_tasks": "files.yml", "vars": {"__observe_files": wanted}},
        {"ansible.builtin.include_tasks": "files_in_own_directories.yml", "vars": {"__observe_files": own}},
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    values = json.dumps({"ansible_python_interpreter": sys.executable})
    argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", values, str(tmp_path / "play.yml")]
    for options, changed, exists in ((["--check"], 4, False), ([], 4, True), ([], 0, True)):
        umask = os.umask(0o077)
        done = ansible_run.run([*argv, *options])
        os.umask(umask)
        # The new file, the old one, the directory and its file.
        assert f"changed={changed} " in done.stdout, done.stdout + done.stderr
        assert ((theirs / "new").exists(), old.exists(), ours.exists()) == (exists, not exists, exists)
        assert (theirs / "empty").exists() is exists
    assert [mode(path) for path in (theirs, theirs / "new", ours, ours / "file")] == [0o700, 0o600, 0o755, 0o644]
    assert (ours / "file").read_text() == '{"a": 1}\n'
