# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of observe/machine_and_boot_identity.py."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import machine_and_boot_identity
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree


def test_the_identity_differs_for_each_boot(tmp_path):
    tree = Tree(tmp_path)
    tree.file("etc/machine-id", "5f3ab1c2\n")
    tree.file("proc/sys/kernel/random/boot_id", "0f6e2b3c\n")
    tree.file("proc/1/stat", "1 (a (b) c) S " + " ".join(str(number) for number in range(4, 40)))
    assert machine_and_boot_identity.read(str(tmp_path)) == {"machine_id": "5f3ab1c2", "boot": "0f6e2b3c/22"}
