# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import root_python

OWN = "/home/alice/venv/bin/python"


class Files:
    """Files of a host. Tests are not root, so the owners are those of a table."""

    def __init__(self, root):
        self.root, self.users = root, {}
        for path in ("/usr/bin/python3.9", "/usr/bin/python3.11", "/usr/bin/python3.8", "/home/alice/venv/bin/x"):
            file = root / path[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o755)
        for folder, _names, _files in os.walk(root):
            os.chmod(folder, 0o755)
        (root / OWN[1:]).symlink_to("/usr/bin/python3.11")

    def status(self, path):
        found = os.lstat(path)
        name = "/" + os.path.relpath(path, self.root)
        user = 1000 if name.startswith("/home/alice") else self.users.get(name, 0)
        return os.stat_result((*found[:4], user, *found[5:10]))

    def find(self, current):
        return root_python.find(str(self.root), current, self.status)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_a_python_of_root_is_kept(files):
    assert files.find("/usr/bin/python3.9") == "/usr/bin/python3.9"


def test_another_one_replaces_a_python_in_a_home(files):
    assert files.find(OWN) == "/usr/bin/python3.11"
    assert files.find(None) == "/usr/bin/python3.11"


def owned_by_a_user(files):
    files.users["/usr/bin/python3.11"] = 1000


def writable_by_a_group(files):
    (files.root / "usr/bin/python3.11").chmod(0o775)


def link_to_a_home(files):
    (files.root / "usr/bin/python3.11").unlink()
    (files.root / "usr/bin/python3.11").symlink_to("../../home/alice/venv/bin/x")


@pytest.mark.parametrize("change", [owned_by_a_user, writable_by_a_group, link_to_a_home])
def test_a_python_that_others_can_replace_is_not_used(files, change):
    change(files)
    assert files.find("/usr/bin/python3.11") == "/usr/bin/python3.9"


@pytest.mark.parametrize("place", ["usr", "usr/bin"])
def test_a_directory_that_others_can_write_to_excludes_its_programs(files, place):
    (files.root / place).chmod(0o777)
    assert files.find(OWN) is None
    assert "others than root can write" in root_python.fault(str(files.root), "/usr/bin/python3.9", files.status)
