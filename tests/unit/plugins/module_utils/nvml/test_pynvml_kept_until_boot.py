# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The copy of pynvml that is kept on a host until it boots."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.pynvml_kept_until_boot import remember, remembered

ME = os.getuid()


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "sent" / "pynvml-13.0.zip"
    path.parent.mkdir()
    path.write_bytes(b"zip")
    return path


def test_a_stored_archive_is_found_and_replaces_the_previous_one(tmp_path, archive):
    directory = tmp_path / "run"
    assert remembered(str(directory), ME) is None
    remember(str(archive), str(directory))
    (directory / "pynvml-12.0.zip").write_bytes(b"old")
    remember(str(archive), str(directory))
    assert remembered(str(directory), ME) == str(directory / "pynvml-13.0.zip")
    assert sorted(os.listdir(directory)) == ["pynvml-13.0.zip"]
    assert (directory / "pynvml-13.0.zip").read_bytes() == b"zip"


@pytest.mark.parametrize(("which", "mode"), [("run", 0o777), ("run/pynvml-13.0.zip", 0o666), ("run", 0o775)])
def test_an_archive_that_others_can_write_is_ignored(tmp_path, archive, which, mode):
    remember(str(archive), str(tmp_path / "run"))
    (tmp_path / which).chmod(mode)
    assert remembered(str(tmp_path / "run"), ME) is None


def test_an_archive_of_another_user_and_a_link_are_ignored(tmp_path, archive):
    remember(str(archive), str(tmp_path / "run"))
    assert remembered(str(tmp_path / "run"), ME + 1) is None
    kept = tmp_path / "run" / "pynvml-13.0.zip"
    kept.unlink()
    kept.symlink_to(archive)
    assert remembered(str(tmp_path / "run"), ME) is None


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path, archive):
    (tmp_path / "run").write_bytes(b"")
    remember(str(archive), str(tmp_path / "run"))
    remember(str(tmp_path / "nothing"), str(tmp_path / "other"))
    assert remembered(str(tmp_path / "other"), ME) is None
