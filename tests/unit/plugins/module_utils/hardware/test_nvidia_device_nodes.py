# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes


def write(root, *paths, text=""):
    for path in paths:
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


CAPABILITIES = "/proc/driver/nvidia/capabilities"


def test_minors_of_mig_capabilities(tmp_path):
    write(
        tmp_path, "/proc/driver/nvidia-caps/mig-minors", text="config 1\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n"
    )
    # The newer file has priority.
    write(tmp_path, f"{CAPABILITIES}/gpu0/mig/gi1/access", text="DeviceFileMinor: 99\n")
    minors = nvidia_device_nodes.mig_minors(str(tmp_path))
    assert [minors[key] for key in nvidia_device_nodes.mig_keys(0, 1, 0)] == [12, 13]


def test_minors_of_mig_capabilities_of_older_drivers(tmp_path):
    write(tmp_path, f"{CAPABILITIES}/gpu3/mig/gi7/access", text="DeviceFileMinor: 21\nDeviceFileMode: 292\n")
    write(tmp_path, f"{CAPABILITIES}/gpu3/mig/gi7/ci0/access", text="DeviceFileMinor: 22\n")
    write(tmp_path, f"{CAPABILITIES}/mig/config", text="DeviceFileMinor: 1\n")
    assert nvidia_device_nodes.mig_minors(str(tmp_path)) == {"gpu3/gi7/access": 21, "gpu3/gi7/ci0/access": 22}


@pytest.mark.parametrize(
    ("profile", "expected"),
    [("1g.24gb+gfx", True), ("1g.24gb+me,gfx", True), ("1g.24gb", False), ("1g.24gb+me", False), (None, False)],
)
def test_profiles_with_graphics(profile, expected):
    assert nvidia_device_nodes.has_graphics(profile) is expected


@pytest.mark.parametrize(
    ("feature", "present", "expected"),
    [
        ("gdrcopy", ["/dev/gdrdrv"], ["/dev/gdrdrv"]),
        ("gdrcopy", [], []),
        (
            "gds",
            ["/dev/nvidia-fs10", "/dev/nvidia-fs2", "/dev/nvidia0", "/dev/nvidia-fs0"],
            ["/dev/nvidia-fs0", "/dev/nvidia-fs2", "/dev/nvidia-fs10"],
        ),
        (
            "nvswitch",
            ["/dev/nvidia-nvswitch0", "/dev/nvidia-nvswitchctl", "/dev/nvidia-nvlink"],
            ["/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch0"],
        ),
    ],
)
def test_nodes_of_features(tmp_path, feature, present, expected):
    write(tmp_path, *present)
    assert nvidia_device_nodes.feature_nodes(feature, str(tmp_path)) == expected


def test_imex_channels(tmp_path):
    directory = "/dev/nvidia-caps-imex-channels"
    write(tmp_path, f"{directory}/channel0", f"{directory}/channel12", f"{directory}/channel2")
    found = nvidia_device_nodes.imex_channels(str(tmp_path))
    assert list(found.items()) == [(number, f"{directory}/channel{number}") for number in (0, 2, 12)]
