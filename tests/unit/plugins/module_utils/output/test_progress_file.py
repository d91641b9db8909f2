# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file that says what a long task does."""

from __future__ import annotations

import os
import stat

from ansible_collections.gpufleet.hosts.plugins.module_utils.output import progress_file


def test_only_root_can_read_the_file_whatever_the_umask(tmp_path):
    (tmp_path / "run").mkdir()
    before = os.umask(0)
    try:
        with progress_file.shown(str(tmp_path), "building"):
            file = tmp_path / "run/gpufleet/progress"
            assert file.read_text() == "building\n"
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            progress_file.write(str(tmp_path), "removing")
            assert file.read_text() == "removing\n"
    finally:
        os.umask(before)


def test_nothing_is_left_after_the_task_even_if_it_fails(tmp_path):
    (tmp_path / "run").mkdir()
    try:
        with progress_file.shown(str(tmp_path), "building"):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert list((tmp_path / "run").iterdir()) == []


def test_other_files_of_the_directory_stay(tmp_path):
    other = tmp_path / "run/gpufleet/nvidia_driver_reload.json"
    other.parent.mkdir(parents=True)
    other.touch()
    with progress_file.shown(str(tmp_path), "building"):
        pass
    assert list(other.parent.iterdir()) == [other]


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path):
    (tmp_path / "run/gpufleet").mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("kept")
    for name in ("progress", "progress.new"):
        (tmp_path / "run/gpufleet" / name).symlink_to(secret)
    with progress_file.shown(str(tmp_path), "building"):
        assert secret.read_text() == "kept"


def test_a_host_without_a_writable_directory_does_not_fail_the_task(tmp_path):
    with progress_file.shown(str(tmp_path / "missing"), "building"):
        pass
