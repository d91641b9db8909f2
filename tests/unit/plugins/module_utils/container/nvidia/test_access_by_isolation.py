# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that give a container its GPUs, for each isolation, and the names of device nodes."""

from __future__ import annotations

import os
import platform

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_capabilities import (
    DEFAULT_CAPABILITIES,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_choice import choose
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import ONE, WHOLE
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_volume_access import (
    access_for,
    tree_with_volume,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import DRIVER, UUIDS, docker, podman


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tree_with_volume(tmp_path)


@pytest.mark.parametrize(
    ("names", "node", "expected"),
    [
        ([UUIDS[1]], "/dev/nvidia2", f"nvidia.com/gpu={UUIDS[1]}"),
        (["1"], "/dev/nvidia2", "nvidia.com/gpu=1"),
        (["1", UUIDS[1]], "/dev/nvidia2", f"nvidia.com/gpu={UUIDS[1]}"),
    ],
)
def test_cdi_prefers_device_names_with_uuid(tree, names, node, expected):
    given = access_for("cdi", podman(), tree.spec(names=names, node=node).host(), ONE, None)
    assert given.cdi_devices == (expected,)
    assert given.devices == given.volumes == ()
    assert given.env == {}


@pytest.mark.parametrize("isolation", ["cdi", "volume"])
def test_nvidia_runtime_does_not_add_gpus_again(tree, isolation):
    given = access_for(isolation, podman(), tree.spec().host(), ONE, ["utility"], env={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert given.env == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_nvidias_kind_is_preferred(tree):
    tree.spec(kind="example.org/gpu").spec()
    assert access_for("cdi", podman(), tree.host(), ONE, None).cdi_devices == (f"nvidia.com/gpu={UUIDS[1]}",)


def test_volume_uses_nodes_by_minor_number_and_the_driver_volume(tree):
    given = access_for("volume", docker(), tree.host(), [WHOLE[UUIDS[1]], WHOLE[UUIDS[3]]], ["compute", "utility"])
    assert given.devices == (
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia2",
        "/dev/nvidia0",
    )
    assert given.volumes == (f"nvidia_driver_{DRIVER}:/usr/local/nvidia:ro",)
    assert given.driver_volume == f"nvidia_driver_{DRIVER}"
    assert given.env == {}


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (docker(runtimes={"runc": "runc", "nvidia": "nvidia-container-runtime"}), "nvidia"),
        (docker(runtimes={"gpu": "/usr/bin/nvidia-container-runtime"}), "gpu"),
        (docker(runtimes={"cdi": "/usr/bin/nvidia-container-runtime.cdi"}), "cdi"),
        (podman(), "/usr/bin/nvidia-container-runtime"),
    ],
)
def test_runtime_uses_the_registered_name(tree, engine, expected):
    tree.files("/usr/bin/nvidia-container-runtime", "/usr/bin/nvidia-container-runtime.cdi")
    assert choose("runtime", engine, tree.host(), ONE, DEFAULT_CAPABILITIES).name == "runtime"
    units = [WHOLE[UUIDS[3]], WHOLE[UUIDS[1]]]
    given = access_for("runtime", engine, tree.host(), units, ["compute", "utility"])
    assert given.runtime == expected
    assert given.env == {
        "NVIDIA_VISIBLE_DEVICES": f"{UUIDS[1]},{UUIDS[3]}",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    assert "NVIDIA_DRIVER_CAPABILITIES" not in access_for("runtime", engine, tree.host(), units, None).env


def test_device_requests_name_gpus_by_uuid(tree):
    tree.files("/usr/bin/nvidia-container-runtime-hook")
    os.utime(tree.directory / "usr/bin/nvidia-container-runtime-hook", (1, 1))
    engine = docker(started=None)
    assert choose("device_requests", engine, tree.host(), ONE, DEFAULT_CAPABILITIES).name == "device_requests"
    given = access_for("device_requests", engine, tree.host(), [WHOLE[UUIDS[3]], WHOLE[UUIDS[1]]], ["video"])
    assert given.device_ids == (UUIDS[1], UUIDS[3])
    assert given.request_capabilities == ("gpu", "video")
    assert given.env == {}
