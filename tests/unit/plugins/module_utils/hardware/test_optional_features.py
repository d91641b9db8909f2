# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import optional_features

PATHS = (
    "dev/nvidia-fs0",
    "dev/nvidia-fs1",
    "dev/gdrdrv",
    "dev/nvidia-nvswitchctl",
    "dev/nvidia-nvswitch0",
    "dev/nvidia-caps-imex-channels/channel0",
    "dev/nvidia-caps-imex-channels/channel3",
    "etc/cufile.json",
    "run/udev/control",
    "tmp/nvidia-mps/control",
    "srv/mps/control",
)
CHANNEL = "/dev/nvidia-caps-imex-channels/channel"


@pytest.fixture
def root(tmp_path):
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "channels", "env", "expected"),
    [
        ([], [], {}, optional_features.Extras()),
        (["gdrcopy"], [], {}, optional_features.Extras(devices=("/dev/gdrdrv",))),
        (
            ["gds"],
            [],
            {},
            optional_features.Extras(
                devices=("/dev/nvidia-fs0", "/dev/nvidia-fs1"),
                volumes=("/run/udev:/run/udev:ro", "/etc/cufile.json:/etc/cufile.json:ro"),
            ),
        ),
        (["nvswitch"], [], {}, optional_features.Extras(devices=("/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch0"))),
        ([], [3, 0, 3], {}, optional_features.Extras(devices=(f"{CHANNEL}0", f"{CHANNEL}3"))),
        (
            ["mps"],
            [],
            {},
            optional_features.Extras(
                volumes=("/tmp/nvidia-mps:/tmp/nvidia-mps",),
                env={"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"},
                shares_ipc=True,
                ignored=("nvidia-cuda-mps-server",),
            ),
        ),
        (
            ["mps"],
            [],
            {"CUDA_MPS_PIPE_DIRECTORY": "/srv/mps"},
            optional_features.Extras(
                volumes=("/srv/mps:/srv/mps",),
                env={"CUDA_MPS_PIPE_DIRECTORY": "/srv/mps"},
                shares_ipc=True,
                ignored=("nvidia-cuda-mps-server",),
            ),
        ),
    ],
)
def test_what_a_container_needs(root, names, channels, env, expected):
    assert optional_features.extras(names, channels, env, str(root)) == expected


@pytest.mark.parametrize(
    ("names", "channels", "words"),
    [
        (["gds"], [], "features=gds: no device node /dev/nvidia-fs* exists. Load the kernel module nvidia-fs."),
        (["mps"], [], "features=mps: the directory /tmp/nvidia-mps does not exist. Start the MPS daemon"),
        ([], [1], "channel 1 does not exist in /dev/nvidia-caps-imex-channels, which has none. Create the channel."),
    ],
)
def test_a_feature_that_the_host_lacks_is_refused(tmp_path, names, channels, words):
    with pytest.raises(optional_features.FeatureError) as caught:
        optional_features.extras(names, channels, {}, str(tmp_path))
    assert words in str(caught.value)


def test_the_existing_channels_are_named(root):
    with pytest.raises(optional_features.FeatureError, match=r"channel 7 does not exist in .*, which has 0, 3"):
        optional_features.extras([], [7], {}, str(root))


UNIX = (
    "Num       RefCount Protocol Flags    Type St Inode Path\n"
    "0: 00000002 00000000 00010000 0001 01 9 /tmp/nvidia-mps/control\n"
)


@pytest.mark.parametrize(
    ("present", "absent", "message"),
    [
        ({"proc/net/unix": UNIX, "proc/1/cmdline": "init\0"}, (), None),
        # A daemon in a container.
        ({"proc/net/unix": "Num\n", "proc/8/cmdline": "/usr/bin/nvidia-cuda-mps-control\0-f\0"}, (), None),
        ({"proc/net/unix": "Num\n", "proc/1/cmdline": "init\0"}, (), "remains of an MPS daemon that has ended"),
        ({"proc/1/cmdline": "nvidia-cuda-mps-server\0"}, (), "remains of an MPS daemon that has ended"),
        ({}, ("tmp/nvidia-mps/control",), "has no socket control"),
        # Other processes are hidden from this user.
        ({}, (), None),
    ],
)
def test_mps_requires_a_running_daemon(root, present, absent, message):
    for path, text in present.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path in absent:
        (root / path).unlink()
    if message is None:
        assert optional_features.extras(["mps"], [], {}, str(root)).shares_ipc
        return
    with pytest.raises(optional_features.FeatureError, match=message):
        optional_features.extras(["mps"], [], {}, str(root))
