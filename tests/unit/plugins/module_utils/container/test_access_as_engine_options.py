# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of container/access_as_engine_options.py."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.access_as_engine_options import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.engine_module_options import module_arguments
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access

LIBRARIES = "/usr/local/nvidia/lib64:/usr/local/nvidia/lib"


VOLUME = Access(
    isolation="volume",
    devices=("/dev/nvidiactl", "/dev/nvidia2"),
    volumes=("nvidia_driver_1.2:/usr/local/nvidia:ro",),
    driver_volume="nvidia_driver_1.2",
    search_last={"LD_LIBRARY_PATH": tuple(LIBRARIES.split(":")), "PATH": ("/usr/local/nvidia/bin",)},
    env={"NVIDIA_VISIBLE_DEVICES": "void"},
)


EXTENDED_PATH = f"{DEFAULT_PATH}:/usr/local/nvidia/bin"


def compose(engine, own=None, access=VOLUME, labels=None, image_env=None):
    return module_arguments(
        engine,
        own or {},
        access,
        name="c",
        image="image",
        state="started",
        labels=labels or {},
        image_env=image_env or {},
    )


def test_volume_isolation_adds_nodes_and_volume_for_docker():
    own = {"devices": ["/dev/fuse"], "volumes": ["/a:/b"], "labels": {"mine": "x"}, "env": {"A": "1"}}
    assert compose("docker", own, labels={"gpufleet.gpus": "GPU-1"}) == {
        "name": "c",
        "image": "image",
        "state": "started",
        "pull": "never",
        "devices": ["/dev/fuse", "/dev/nvidiactl", "/dev/nvidia2"],
        "volumes": ["/a:/b", "nvidia_driver_1.2:/usr/local/nvidia:ro"],
        "labels": {"mine": "x", "gpufleet.gpus": "GPU-1"},
        "env": {"A": "1", "NVIDIA_VISIBLE_DEVICES": "void", "LD_LIBRARY_PATH": LIBRARIES, "PATH": EXTENDED_PATH},
    }


def test_volume_isolation_adds_nodes_and_volume_for_podman():
    options = compose("podman", labels={"gpufleet.gpus": "GPU-1"})
    assert options["device"] == ["/dev/nvidiactl", "/dev/nvidia2"]
    assert options["volume"] == ["nvidia_driver_1.2:/usr/local/nvidia:ro"]
    assert options["label"] == {"gpufleet.gpus": "GPU-1"}
    assert not {"devices", "pull"} & set(options)


@pytest.mark.parametrize(
    ("own", "image", "libraries", "path"),
    [
        ({}, {}, LIBRARIES, EXTENDED_PATH),
        ({}, {"PATH": "/bin"}, LIBRARIES, "/usr/local/nvidia/bin:/bin"),
        ({}, {"LD_LIBRARY_PATH": "/opt/lib"}, f"/opt/lib:{LIBRARIES}", EXTENDED_PATH),
        ({"LD_LIBRARY_PATH": "/mine"}, {"LD_LIBRARY_PATH": "/opt/lib"}, f"/mine:{LIBRARIES}", EXTENDED_PATH),
        ({"PATH": "/mine"}, {"PATH": "/bin"}, LIBRARIES, "/usr/local/nvidia/bin:/mine"),
    ],
)
def test_search_paths_of_image_and_user_are_extended(own, image, libraries, path):
    env = compose("docker", {"env": own}, image_env=image)["env"]
    assert env["LD_LIBRARY_PATH"] == libraries
    assert sorted(env.get("PATH", "").split(":")) == sorted(path.split(":"))


def test_search_paths_that_contain_the_directory_are_unchanged():
    image = {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64", "PATH": "/usr/local/nvidia/bin:/bin"}
    assert compose("docker", image_env=image)["env"] == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_visible_devices_of_the_user_are_replaced():
    env = compose("docker", {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}})["env"]
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_cdi_isolation_adds_cdi_devices():
    access = Access(isolation="cdi", cdi_devices=("nvidia.com/gpu=GPU-1",))
    assert compose("docker", access=access)["device_requests"] == [
        {"driver": "cdi", "count": 0, "device_ids": ["nvidia.com/gpu=GPU-1"]}
    ]
    assert compose("podman", {"device": ["/dev/fuse"]}, access)["device"] == ["/dev/fuse", "nvidia.com/gpu=GPU-1"]


def test_device_requests_isolation_adds_a_device_request():
    access = Access(isolation="device_requests", device_ids=("GPU-1",), request_capabilities=("gpu", "video"))
    assert compose("docker", access=access)["device_requests"] == [
        {"driver": "", "count": 0, "device_ids": ["GPU-1"], "capabilities": [["gpu", "video"]]}
    ]


def test_runtime_isolation_sets_runtime_and_visible_devices():
    access = Access(isolation="runtime", runtime="nvidia", env={"NVIDIA_VISIBLE_DEVICES": "GPU-1"})
    options = compose("docker", access=access)
    assert (options["runtime"], options["env"]) == ("nvidia", {"NVIDIA_VISIBLE_DEVICES": "GPU-1"})
    assert compose("podman", {"cmd_args": ["--replace"]}, access)["cmd_args"] == ["--replace", "--runtime=nvidia"]
