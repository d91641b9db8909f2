# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of container/nvidia/device_node_names.py."""

from __future__ import annotations

import os
import platform
import stat
from types import SimpleNamespace

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.device_node_names import canonical_nodes
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import Tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import DRIVER


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return Tree(tmp_path).files(f"{VOLUME}/lib64/libcuda.so.{DRIVER}")


VOLUME = "/volumes/nvidia_driver"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/dev/nvidia2", ["/dev/nvidia2"]),
        ("/dev/fuse", ["/dev/fuse"]),
        ("/dev/char/195:2", ["/dev/nvidia2"]),
        ("/dev/char/195:255", ["/dev/nvidiactl"]),
        ("/dev/char/195:254", ["/dev/nvidia-modeset"]),
        ("/dev/char/241:21", ["/dev/nvidia-caps/nvidia-cap21"]),
        ("/dev/char/10:229", ["/dev/char/10:229"]),
        ("/dev/nvidia-caps", ["/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]),
    ],
)
def test_paths_are_resolved_to_canonical_nodes(tree, path, expected):
    tree.files("/proc/devices", text="Character devices:\n195 nvidia\n241 nvidia-caps\n\nBlock devices:\n  8 sd\n")
    tree.files("/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22")
    assert canonical_nodes(tree.host(), path) == expected


def test_alias_is_resolved_by_device_number(tree, monkeypatch):
    numbers = {"/dev/gpu-a": (195, 3), "/dev/other": (1, 3)}

    def stat_(path):
        name = "/" + os.path.relpath(path, tree.directory)
        return SimpleNamespace(st_mode=stat.S_IFCHR | 0o666, st_rdev=os.makedev(*numbers[name]))

    monkeypatch.setattr(os, "stat", stat_)
    assert canonical_nodes(tree.host(), "/dev/gpu-a") == ["/dev/nvidia3"]
    assert canonical_nodes(tree.host(), "/dev/other") == ["/dev/other"]
