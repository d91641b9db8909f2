# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import platform
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

NANO = "nvidia,p3450-0000\0nvidia,jetson-nano\0nvidia,tegra210\0"
ORIN = "nvidia,p3737-0000+p3701-0000\0nvidia,p3701-0000\0nvidia,tegra234\0"
VARIANTS = [
    ("server", "6.1.0-47-amd64", {}, None),
    ("Azure", "6.8.0-1021-azure", {}, None),
    ("WSL 2", "6.6.87.2-microsoft-standard-WSL2", {}, "wsl"),
    ("WSL 1", "4.4.0-19041-Microsoft", {}, "wsl"),
    ("Orin", "5.15.148-tegra", {"proc/device-tree/compatible": ORIN}, "tegra"),
    ("Nano", "4.9.337-tegra", {"proc/device-tree/compatible": NANO}, "tegra"),
    (
        "Grace server",
        "6.8.0-1015-nvidia-64k",
        {"sys/devices/soc0/family": "Tegra\n", "sys/devices/soc0/soc_id": "36\n"},
        None,
    ),
    ("another board", "6.12.1", {"proc/device-tree/compatible": "raspberrypi,5-model-b\0brcm,bcm2712\0"}, None),
    ("another board by its family", "6.12.1", {"sys/devices/soc0/family": "Freescale i.MX\n"}, None),
]


@pytest.mark.parametrize(
    ("kernel", "files", "expected"), [row[1:] for row in VARIANTS], ids=[row[0] for row in VARIANTS]
)
def test_systems_with_a_driver_of_their_own_are_recognized(tmp_path, kernel, files, expected):
    tree = Tree(tmp_path, kernel)
    for path, text in files.items():
        tree.file(path, text)
    assert platform.read(tree.root, "aarch64")["variant"] == expected
