# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of observe/persistence_daemon_users.py."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import persistence_daemon_users
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree


def test_the_user_of_the_persistence_daemon_is_read(tmp_path):
    tree = Tree(tmp_path)
    assert persistence_daemon_users.read(str(tmp_path)) == []
    tree.file("etc/passwd", "root:x:0:0::/root:/bin/sh\nnvidia-persistenced:x:991:985::/:/sbin/nologin\n")
    assert persistence_daemon_users.read(str(tmp_path)) == ["nvidia-persistenced"]
