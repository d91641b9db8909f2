# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import zypper_package_locks

FILES = Path(__file__).resolve().parents[1] / "files/zypper"


def test_zypp_conf_gets_one_path_of_the_locks():
    text = zypper_package_locks.without_locks("[main]\nlocksfile.path = /etc/zypp/locks\narch = x86_64\n", "/new")
    assert text == "[main]\nlocksfile.path = /new\narch = x86_64\n"


def test_only_an_empty_file_of_the_locks_is_removed(tmp_path):
    locks = tmp_path / "etc/zypp/locks"
    zypper_package_locks.remove_empty(str(tmp_path))
    locks.parent.mkdir(parents=True)
    locks.write_bytes((FILES / "locks").read_bytes())
    zypper_package_locks.remove_empty(str(tmp_path))
    assert zypper_package_locks.names(str(tmp_path)) == ["app"]
    locks.write_bytes(b"")
    zypper_package_locks.remove_empty(str(tmp_path))
    assert not locks.exists()
