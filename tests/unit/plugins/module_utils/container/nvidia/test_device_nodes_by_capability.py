# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of container/nvidia/device_nodes_by_capability.py."""

from __future__ import annotations

import platform

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.device_nodes_by_capability import (
    device_nodes,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import ONE, SLICES
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_volume_access import (
    access_for,
    tree_with_volume,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import MIG_UUIDS, docker


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tree_with_volume(tmp_path)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (["utility"], ["/dev/nvidiactl"]),
        (["compute"], ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]),
        (["video"], ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]),
        (["graphics"], ["/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/dri/card1", "/dev/dri/renderD129"]),
        (["display", "utility"], ["/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/dri/card1", "/dev/dri/renderD129"]),
    ],
)
def test_capabilities_determine_the_control_nodes(tree, capabilities, expected):
    tree.files("/dev/nvidia-modeset", "/dev/dri/card0", "/dev/dri/card1", "/dev/dri/renderD129")
    drm = "/sys/bus/pci/devices/0000:3b:00.0/drm"
    tree.files(f"{drm}/card1/x", f"{drm}/renderD129/x", f"{drm}/card1-DP-1/x")
    nodes = device_nodes(tree.host(), ONE, capabilities)
    assert sorted(nodes) == sorted([*expected, "/dev/nvidia2"])


def test_mig_device_has_the_node_of_its_gpu_and_capability_nodes(tree):
    given = access_for("volume", docker(), tree.mig_minors().host(), [SLICES[MIG_UUIDS[1]]], ["utility"])
    assert given.devices == (
        "/dev/nvidiactl",
        "/dev/nvidia3",
        "/dev/nvidia-caps/nvidia-cap31",
        "/dev/nvidia-caps/nvidia-cap32",
    )


def test_mig_nodes_of_older_drivers(tree):
    base = "/proc/driver/nvidia/capabilities/gpu3/mig/gi7"
    tree.files(f"{base}/access", text="DeviceFileMinor: 21\nDeviceFileMode: 292\n")
    tree.files(f"{base}/ci0/access", text="DeviceFileMinor: 22\n")
    tree.files("/proc/driver/nvidia/capabilities/mig/config", text="DeviceFileMinor: 1\n")
    tree.files("/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22")
    nodes = device_nodes(tree.host(), [SLICES[MIG_UUIDS[0]]], ["utility"])
    assert nodes[2:] == ["/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]
