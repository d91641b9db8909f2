# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that give a container its GPUs, for each isolation, and the names of device nodes."""

from __future__ import annotations

import os
import platform
import stat
from types import SimpleNamespace

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.access import (
    Libraries,
    access,
    canonical_nodes,
    device_nodes,
    no_access,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_capabilities import (
    DEFAULT_CAPABILITIES,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_choice import choose
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import ONE, SLICES, WHOLE, Tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import DRIVER, MIG_UUIDS, UUIDS, docker, podman


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return Tree(tmp_path).files(f"{VOLUME}/lib64/libcuda.so.{DRIVER}")


VOLUME = "/volumes/nvidia_driver"
LIBRARIES = Libraries("files", VOLUME)


def access_for(name, engine, host, units, capabilities, *, env=None):
    return access(name, engine, host, units, capabilities, env=env or {}, libraries=LIBRARIES)


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


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {}),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, {}),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, {"NVIDIA_VISIBLE_DEVICES": "void"}),
        ({"CUDA_VERSION": "10.0"}, {"NVIDIA_VISIBLE_DEVICES": "void"}),
    ],
)
def test_no_access_disables_nvidias_runtime(env, expected):
    assert no_access(env).env == expected


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
