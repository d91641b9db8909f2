# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of container/nvidia/driver_files_of_container.py."""

from __future__ import annotations

import os
import platform

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import ONE
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_volume_access import (
    VOLUME,
    access_for,
    tree_with_volume,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import DRIVER, docker


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tree_with_volume(tmp_path)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        # CUDA programs also use NVML, and nvidia-smi shows CUDA's version.
        (["compute"], {"libcuda", "libnvidia-ml", "nvidia-smi"}),
        (["utility"], {"libcuda", "libnvidia-ml", "nvidia-smi"}),
        (["video"], {"libcuda", "libnvidia-ml", "nvidia-smi", "libnvidia-encode"}),
        (["graphics"], {"libcuda", "libnvidia-ml", "nvidia-smi", "libnvidia-glcore"}),
        (["display"], {"libcuda", "libnvidia-ml", "nvidia-smi", "libnvidia-glcore"}),
    ],
)
def test_capabilities_determine_the_mounted_libraries(tree, capabilities, expected):
    for name in ("libnvidia-ml", "libnvidia-encode", "libnvidia-glcore"):
        tree.files(f"{VOLUME}/lib64/{name}.so.{DRIVER}")
    tree.files(f"{VOLUME}/bin/nvidia-smi", f"{VOLUME}/lib/libcuda.so.{DRIVER}")
    mounts = access_for("volume", docker(), tree.host(), ONE, capabilities).file_mounts
    targets = [mount.split(":")[1] for mount in mounts]
    assert {os.path.basename(target).split(".so")[0] for target in targets} == expected
    assert "/usr/bin/nvidia-smi" in targets
    assert not any(target.startswith(("/usr/lib/libcuda", "/usr/lib/i386")) for target in targets)


def test_libraries_are_mounted_under_all_their_names(tree):
    for name in ("libcuda.so", "libcuda.so.1"):
        (tree.directory / VOLUME[1:] / "lib64" / name).symlink_to(f"libcuda.so.{DRIVER}")
    mounts = access_for("volume", docker(), tree.host(), ONE, ["compute"]).file_mounts
    assert set(mounts) == {
        f"{VOLUME}/lib64/libcuda.so.{DRIVER}:{directory}/{name}:ro"
        for directory in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
        for name in ("libcuda.so", "libcuda.so.1", f"libcuda.so.{DRIVER}")
    }


def test_64_bit_libraries_hide_32_bit_ones_where_both_directories_are_one(tree):
    """In images of some distributions, /usr/lib64 is a link to /usr/lib. The last mount wins."""
    tree.files(f"{VOLUME}/lib/libcuda.so.{DRIVER}")
    mounts = access_for("volume", docker(), tree.host(), ONE, ["compute", "compat32"]).file_mounts
    targets = [mount.split(":")[1] for mount in mounts]
    assert targets.index(f"/usr/lib/libcuda.so.{DRIVER}") < targets.index(f"/usr/lib64/libcuda.so.{DRIVER}")
