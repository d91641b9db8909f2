# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of container/existing/inspected_container.py and the other files that read an inspection result."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.container_labels import labeled_gpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.driver_volume_mounts import has_mount
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import (
    ACCESS,
    gpu_devices_as_written,
    gpu_nodes,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.gpus_of_container import node_role
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import container, nodes


def roles(path):
    return {path: node_role(path)}


def podman_made(*command, **host):
    made = container("c", **host)
    made["Config"]["CreateCommand"] = ["podman", "run", *command, "image"]
    return made


@pytest.mark.parametrize(
    ("made", "exclude", "kept"),
    [
        (container("c", Devices=nodes("/dev/nvidia0", "/dev/fuse")), [], ["/dev/nvidia0"]),
        (container("c", Devices=nodes("/dev/nvidia0", "/dev/nvidia1")), ["/dev/nvidia1"], ["/dev/nvidia0"]),
        (
            container(
                "c",
                Devices=[
                    {"PathOnHost": "/dev/char/195:2", "PathInContainer": "/dev/nvidia2", "CgroupPermissions": "rw"}
                ],
            ),
            [],
            ["/dev/char/195:2:/dev/nvidia2:rw"],
        ),
        (
            podman_made("--device", "/dev/nvidia0:/dev/x", "--device=/dev/kvm", "--device=nvidia.com/gpu=0"),
            [],
            ["/dev/nvidia0:/dev/x", "nvidia.com/gpu=0"],
        ),
        (podman_made("--device", "/dev/nvidia0:/dev/x"), ["/dev/nvidia0"], []),
    ],
)
def test_devices_keep_their_notation(made, exclude, kept):
    def named(path):
        return roles(path.replace("/dev/char/195:", "/dev/nvidia"))

    assert gpu_devices_as_written(made, named, exclude) == kept


def test_mounts_nodes_and_labels_are_read():
    mount = {"Name": "nvidia_driver_1", "Destination": "/usr/local/nvidia", "RW": False}
    labels = {"gpufleet.gpus": "GPU-1,GPU-2", "gpufleet.isolation": "volume"}
    made = container("c", labels=labels, mounts=[mount], Devices=nodes("/dev/nvidia0", "/dev/kvm"))
    assert has_mount(made, "nvidia_driver_1:/usr/local/nvidia:ro")
    assert not has_mount(made, "nvidia_driver_2:/usr/local/nvidia:ro")
    assert not has_mount(container("c", mounts=[{**mount, "RW": True}]), "nvidia_driver_1:/usr/local/nvidia:ro")
    assert gpu_nodes(made, roles) == {"/dev/nvidia0": ACCESS}
    assert labeled_gpus(made) == {"GPU-1", "GPU-2"}
    assert labeled_gpus(container("c")) == frozenset()
