# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import os
import socket
import stat

import jsonschema
import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_document
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import specification, specification_kinds
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files
from ansible_collections.gpufleet.hosts.tests.unit.plugins import cdi_schema, driver_tree

VERSION = "580.95.05"
NODES = {
    "/dev/nvidia0": (195, 0, 0o666, 0),
    "/dev/nvidia1": (195, 1, 0o666, 0),
    "/dev/nvidiactl": (195, 255, 0o666, 0),
    "/dev/nvidia-uvm": (238, 0, 0o666, 0),
    "/dev/nvidia-uvm-tools": (238, 1, 0o666, 0),
    "/dev/nvidia-caps/nvidia-cap12": (241, 12, 0o444, 0),
    "/dev/nvidia-caps/nvidia-cap13": (241, 13, 0o444, 0),
    "/dev/nvidia-caps/nvidia-cap14": (241, 14, 0o444, 0),
    "/dev/dri/card1": (226, 1, 0o660, 44),
    "/dev/dri/renderD128": (226, 128, 0o660, 105),
}
NVML = driver_files.DriverFile("/usr/lib64/libnvidia-ml.so.580.95.05", "lib64", "libnvidia-ml.so.580.95.05")
EDITS = specification.file_edits([NVML], "x86_64")


def gpu(index, **more):
    """A GPU in the form that nvidia_gpu_facts returns."""
    return {
        "index": index,
        "minor": index,
        "uuid": f"GPU-0000000{index}",
        "pci_bus_id": f"0000:0{index}:00.0",
        "mig": {"enabled": False, "pending": False, "devices": []},
        "health": {"state": "ok", "reasons": []},
        **more,
    }


def mig(*devices):
    """A GPU's MIG devices, as (index, gpu instance, compute instance)."""
    return {
        "enabled": True,
        "pending": True,
        "devices": [{"index": index, "uuid": f"MIG-000{index}", "gi": gi, "ci": ci} for index, gi, ci in devices],
    }


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A host whose device nodes are empty files. `os.stat` reports them as device nodes."""
    for path in NODES:
        file = tmp_path / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    stat_of = os.stat

    def node_stat(path, **more):
        status = stat_of(path, **more)
        known = NODES.get("/" + os.path.relpath(path, tmp_path)) if isinstance(path, str) else None
        if known is None or status.st_size:
            return status
        major, minor, mode, gid = known
        return NodeStatus(stat.S_IFCHR | mode, os.makedev(major, minor), 0, gid)

    monkeypatch.setattr(specification.os, "stat", node_stat)
    return tmp_path


class NodeStatus:
    """The part of a stat result that the specification uses."""

    def __init__(self, mode, rdev, uid, gid):
        self.st_mode, self.st_rdev, self.st_uid, self.st_gid = mode, rdev, uid, gid
        self.st_size = 0


def build(root, gpus, library_edits=None, **more):
    """Build a specification, which must pass the schema."""
    host = specification.NvidiaCdiHost(VERSION, "x86_64", str(root), str(root), **more)
    result = specification.build(gpus, host, EDITS if library_edits is None else library_edits)
    cdi_schema.check(result.spec)
    return result


def paths(device):
    return [node["path"] for node in device["containerEdits"]["deviceNodes"]]


def by_name(result):
    return {device["name"]: paths(device) for device in result.spec["devices"]}


def test_each_gpu_has_its_index_and_uuid_as_names_and_all_names_every_gpu(root):
    result = build(root, [gpu(0), gpu(1)])
    assert by_name(result) == {
        "0": ["/dev/nvidia0"],
        "GPU-00000000": ["/dev/nvidia0"],
        "1": ["/dev/nvidia1"],
        "GPU-00000001": ["/dev/nvidia1"],
        "all": ["/dev/nvidia0", "/dev/nvidia1"],
    }
    assert result.spec["kind"] == "nvidia.com/gpu"
    assert result.spec["cdiVersion"] == "0.5.0"
    assert result.skipped == []


def test_nodes_follow_the_minor_number_not_the_index(root):
    assert by_name(build(root, [gpu(0, minor=1), gpu(1, minor=0)]))["0"] == ["/dev/nvidia1"]


def test_a_node_has_the_properties_of_the_host_node(root):
    (root / "sys/bus/pci/devices/0000:00:00.0/drm/renderD128").mkdir(parents=True)
    nodes = build(root, [gpu(0)], numbers=True).spec["devices"][0]["containerEdits"]["deviceNodes"]
    assert nodes == [
        {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "fileMode": 0o666, "permissions": "rwm"},
        {
            "path": "/dev/dri/renderD128",
            "type": "c",
            "major": 226,
            "minor": 128,
            "fileMode": 0o660,
            "permissions": "rwm",
            "gid": 105,
        },
    ]


def test_device_numbers_are_left_out_because_a_reboot_can_change_them(root):
    result = build(root, [gpu(0)])
    assert result.spec["devices"][0]["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/nvidia0", "fileMode": 0o666, "permissions": "rwm"}
    ]


def test_existing_drm_nodes_are_included(root):
    for name in ("card1", "renderD128", "controlD64", "card7"):
        (root / "sys/bus/pci/devices/0000:00:00.0/drm" / name).mkdir(parents=True)
    assert by_name(build(root, [gpu(0)]))["0"] == ["/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD128"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("index",), ["0:0", "1", "all"]),
        (("uuid",), ["MIG-0000", "GPU-00000001", "all"]),
        (("type-index", "uuid"), ["mig0:0", "MIG-0000", "gpu1", "GPU-00000001", "all"]),
    ],
)
def test_devices_are_named_in_the_requested_ways(root, names, expected):
    mig_minors(root)
    assert list(by_name(build(root, [gpu(0, mig=mig((0, 1, 0))), gpu(1)], names=names))) == expected


def test_a_device_without_an_acceptable_uuid_is_skipped_if_only_uuids_are_names(root):
    mig_minors(root)
    devices = mig((0, 1, 0))
    devices["devices"][0]["uuid"] = "MIG-GPU-00000000/1/0"
    result = build(root, [gpu(0, mig=devices), gpu(1)], names=("uuid",))
    assert list(by_name(result)) == ["GPU-00000001", "all"]
    assert result.skipped[0]["gpu"] == "0:0"
    assert "Add index to device_names" in result.skipped[0]["reason"]


@pytest.mark.parametrize(("profile", "has_drm"), [("1g.24gb+gfx", True), ("1g.24gb", False)])
def test_only_mig_devices_with_graphics_have_drm_nodes(root, profile, has_drm):
    mig_minors(root)
    (root / "sys/bus/pci/devices/0000:00:00.0/drm/card1").mkdir(parents=True)
    devices = mig((0, 1, 0))
    devices["devices"][0]["profile"] = profile
    assert ("/dev/dri/card1" in by_name(build(root, [gpu(0, mig=devices)]))["0:0"]) is has_drm


@pytest.mark.parametrize("has_links", [True, False])
def test_devices_with_drm_nodes_have_the_links_by_pci_address(root, has_links):
    (root / "sys/bus/pci/devices/0000:00:00.0/drm/card1").mkdir(parents=True)
    if has_links:
        (root / "dev/dri/by-path").mkdir()
    devices = {
        device["name"]: [mount["containerPath"] for mount in device["containerEdits"].get("mounts", ())]
        for device in build(root, [gpu(0), gpu(1)]).spec["devices"]
    }
    expected = ["/dev/dri/by-path"] if has_links else []
    assert (devices["0"], devices["1"], devices["all"]) == (expected, [], expected)


def feature_nodes(monkeypatch, root, *paths):
    for path in paths:
        monkeypatch.setitem(NODES, path, (510, 0, 0o666, 0))
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / path[1:]).write_text("")


CHANNELS = "/dev/nvidia-caps-imex-channels/channel"


@pytest.mark.parametrize(
    ("feature", "present", "expected"),
    [
        (
            "imex",
            [f"{CHANNELS}0", f"{CHANNELS}2"],
            {"0": [f"{CHANNELS}0"], "2": [f"{CHANNELS}2"], "all": [f"{CHANNELS}0", f"{CHANNELS}2"]},
        ),
        ("gdrcopy", ["/dev/gdrdrv"], {"all": ["/dev/gdrdrv"]}),
        ("gds", ["/dev/nvidia-fs0", "/dev/nvidia-fs1"], {"all": ["/dev/nvidia-fs0", "/dev/nvidia-fs1"]}),
        (
            "nvswitch",
            ["/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch0"],
            {"all": ["/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch0"]},
        ),
    ],
)
def test_a_feature_has_a_specification_of_its_own(root, monkeypatch, feature, present, expected):
    feature_nodes(monkeypatch, root, *present)
    kind = f"nvidia.com/{specification_kinds.CLASSES[feature]}"
    result = specification.build_feature(feature, specification.NvidiaCdiHost(root=str(root), kind=kind))
    cdi_schema.check(result.spec)
    assert by_name(result) == expected
    assert result.spec["kind"] == kind
    assert result.spec["containerEdits"] == {}


def test_gds_mounts_what_its_library_reads(root, monkeypatch):
    feature_nodes(monkeypatch, root, "/dev/nvidia-fs0")
    (root / "run/udev").mkdir(parents=True)
    (device,) = specification.build_feature("gds", specification.NvidiaCdiHost(root=str(root))).spec["devices"]
    assert [mount["containerPath"] for mount in device["containerEdits"]["mounts"]] == ["/run/udev"]
    (root / "etc").mkdir()
    (root / "etc/cufile.json").write_text("{}")
    (device,) = specification.build_feature("gds", specification.NvidiaCdiHost(root=str(root))).spec["devices"]
    assert [mount["containerPath"] for mount in device["containerEdits"]["mounts"]] == ["/run/udev", "/etc/cufile.json"]


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        ("imex", "mode=imex: no IMEX channel exists in /dev/nvidia-caps-imex-channels. Create the channel"),
        ("gds", "mode=gds: no device node /dev/nvidia-fs* exists. Load the kernel module nvidia-fs."),
        ("gdrcopy", "mode=gdrcopy: no device node /dev/gdrdrv exists. Load the kernel module gdrdrv."),
        ("nvswitch", "mode=nvswitch: no device node /dev/nvidia-nvswitchctl or "),
    ],
)
def test_a_feature_without_nodes_is_an_error(root, feature, words):
    with pytest.raises(specification_document.CdiError) as caught:
        specification.build_feature(feature, specification.NvidiaCdiHost(root=str(root)))
    assert words in str(caught.value)


@pytest.mark.parametrize(("groups", "gids", "version"), [(False, None, "0.5.0"), (True, [44, 105], "0.7.0")])
def test_groups_of_nodes_that_are_not_world_writable(root, groups, gids, version):
    for name in ("card1", "renderD128"):
        (root / "sys/bus/pci/devices/0000:00:00.0/drm" / name).mkdir(parents=True)
    result = build(root, [gpu(0)], groups=groups)
    assert result.spec["devices"][0]["containerEdits"].get("additionalGids") == gids
    assert result.spec["cdiVersion"] == version


def test_world_writable_nodes_need_no_groups(root):
    assert build(root, [gpu(0)], groups=True).spec["cdiVersion"] == "0.5.0"


def mig_minors(root):
    path = root / "proc/driver/nvidia-caps/mig-minors"
    path.parent.mkdir(parents=True)
    path.write_text("config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi1/ci1/access 14\n")


def capabilities(root):
    for part, number in (("gi1", 12), ("gi1/ci0", 13), ("gi1/ci1", 14)):
        path = root / "proc/driver/nvidia/capabilities/gpu0/mig" / part / "access"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")


@pytest.mark.parametrize("write", [mig_minors, capabilities])
def test_mig_devices_have_access_nodes_and_replace_the_whole_gpu(root, write):
    write(root)
    result = build(root, [gpu(0, mig=mig((0, 1, 0), (2, 1, 1))), gpu(1)])
    caps = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in (12, 13, 14)]
    assert by_name(result) == {
        "0:0": ["/dev/nvidia0", caps[0], caps[1]],
        "MIG-0000": ["/dev/nvidia0", caps[0], caps[1]],
        "0:2": ["/dev/nvidia0", caps[0], caps[2]],
        "MIG-0002": ["/dev/nvidia0", caps[0], caps[2]],
        "1": ["/dev/nvidia1"],
        "GPU-00000001": ["/dev/nvidia1"],
        "all": ["/dev/nvidia0", *caps, "/dev/nvidia1"],
    }


def test_a_mig_uuid_of_an_old_driver_is_not_used_as_a_name(root):
    mig_minors(root)
    devices = mig((0, 1, 0))
    devices["devices"][0]["uuid"] = "MIG-GPU-00000000/1/0"
    assert list(by_name(build(root, [gpu(0, mig=devices)]))) == ["0:0", "all"]


@pytest.mark.parametrize(
    ("unusable", "reason"),
    [
        (gpu(1, health={"state": "lost", "reasons": ["GPU is lost", "it fell off"]}), "GPU is lost; it fell off"),
        (gpu(1, minor=None), "the minor number of the GPU is unknown"),
        (gpu(1, minor=7), "/dev/nvidia7 does not exist"),
        (gpu(1, mig=mig()), "MIG is enabled, but the GPU has no MIG device"),
    ],
)
def test_an_unusable_gpu_is_skipped_with_the_reason(root, unusable, reason):
    result = build(root, [gpu(0), unusable])
    assert result.skipped == [{"gpu": "1", "reason": reason}]
    assert list(by_name(result)) == ["0", "GPU-00000000", "all"]
    with pytest.raises(
        specification_document.CdiError, match=f"the specification would contain no GPU \\(1: {reason}\\)"
    ):
        build(root, [unusable])


def test_only_the_mig_device_without_an_access_node_is_skipped(root):
    mig_minors(root)
    result = build(root, [gpu(0, mig=mig((0, 1, 0), (1, 5, 0)))])
    assert result.skipped == [
        {"gpu": "0:1", "reason": "/proc/driver/nvidia-caps/mig-minors does not list the access node of gpu0/gi5"}
    ]
    assert list(by_name(result)) == ["0:0", "MIG-0000", "all"]


def test_no_gpu_is_an_error(root):
    with pytest.raises(specification_document.CdiError, match="NVML shows none"):
        build(root, [])


def test_a_gpu_without_a_uuid_is_named_by_its_index(root):
    assert list(by_name(build(root, [gpu(0, uuid=None)]))) == ["0", "all"]


def test_existing_control_nodes_are_included(root):
    nodes = build(root, [gpu(0)]).spec["containerEdits"]["deviceNodes"]
    assert [node["path"] for node in nodes] == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]


def test_a_missing_uvm_node_causes_a_warning(root):
    assert build(root, [gpu(0)]).warnings == []
    (root / "dev/nvidia-uvm").unlink()
    (warning,) = build(root, [gpu(0)]).warnings
    assert "/dev/nvidia-uvm does not exist" in warning
    assert "nvidia-uvm" in warning


def test_a_regular_file_in_place_of_a_node_is_an_error(root):
    # Shell redirection into a missing node creates a regular file.
    (root / "dev/nvidia0").write_text("x")
    with pytest.raises(specification_document.CdiError, match=r"/dev/nvidia0 is not a character device\. Remove it"):
        build(root, [gpu(0)])


def mounts(result):
    return {
        item["containerPath"]: (item["hostPath"], item["options"]) for item in result.spec["containerEdits"]["mounts"]
    }


READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]


def test_libraries_as_files(root):
    driver_tree.debian(root / "driver", VERSION)
    files = driver_files.find(VERSION, "x86_64", str(root / "driver"))
    result = build(root, [gpu(0)], specification.file_edits(files, "x86_64"))
    where = mounts(result)
    real = f"{root}/driver/usr/lib/{{}}/nvidia/current/libcuda.so.{VERSION}"
    for name in ("libcuda.so", "libcuda.so.1", f"libcuda.so.{VERSION}"):
        for directory, triplet in (
            ("/usr/lib/x86_64-linux-gnu", "x86_64-linux-gnu"),
            ("/usr/lib64", "x86_64-linux-gnu"),
            ("/usr/lib/i386-linux-gnu", "i386-linux-gnu"),
            ("/usr/lib", "i386-linux-gnu"),
        ):
            assert where[f"{directory}/{name}"] == (real.format(triplet), READ_ONLY)
    assert where["/usr/bin/nvidia-smi"][0] == f"{root}/driver/usr/lib/nvidia/current/nvidia-smi"
    assert result.spec["containerEdits"]["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]


def test_libraries_as_files_on_aarch64(root):
    driver_tree.arm64(root / "driver", VERSION)
    files = driver_files.find(VERSION, "aarch64", str(root / "driver"))
    where = mounts(build(root, [gpu(0)], specification.file_edits(files, "aarch64")))
    assert "/usr/lib/aarch64-linux-gnu/libcuda.so.1" in where
    assert "/usr/lib64/libcuda.so.1" in where


def test_libraries_as_files_on_an_unknown_machine(root):
    file = driver_files.DriverFile(
        f"/usr/lib64/libcuda.so.{VERSION}", "lib64", f"libcuda.so.{VERSION}", ("libcuda.so.1",)
    )
    where = mounts(build(root, [gpu(0)], specification.file_edits([file], "ppc64le")))
    assert where["/usr/lib64/libcuda.so.1"] == (file.source, READ_ONLY)


def test_sockets_and_directories_that_a_stopped_daemon_removes_are_not_mounted(root, monkeypatch):
    for name in ("run/nvidia-persistenced", "tmp/nvidia-mps"):
        (root / name).mkdir(parents=True)
    monkeypatch.chdir(root)  # The path of a socket is limited to about 100 characters.
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("run/nvidia-persistenced/socket")
    where = mounts(build(root, [gpu(0)]))
    assert [path for path in where if not path.endswith(f"/libnvidia-ml.so.{VERSION}")] == []


@pytest.mark.parametrize(
    ("present", "used"),
    [
        (["lib/firmware"], "lib/firmware"),
        (["lib/firmware", "lib/firmware/updates"], "lib/firmware/updates"),
        (["lib/firmware", "lib/firmware/6.1.0"], "lib/firmware/6.1.0"),
        (["lib/firmware", "usr/local/nvidia/firmware"], "usr/local/nvidia/firmware"),
    ],
)
def test_firmware_comes_from_the_directory_that_the_kernel_uses(root, present, used):
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/osrelease").write_text("6.1.0\n")
    if "usr/local/nvidia/firmware" in present:
        (root / "sys/module/firmware_class/parameters").mkdir(parents=True)
        (root / "sys/module/firmware_class/parameters/path").write_text("/usr/local/nvidia/firmware\n")
    for place in present:
        for version in (VERSION, "570.133.20"):
            directory = root / place / "nvidia" / version
            directory.mkdir(parents=True)
            (directory / "gsp_ga10x.bin").write_text("")
    target = f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"
    found = {path: source for path, (source, _options) in mounts(build(root, [gpu(0)])).items() if "firmware" in path}
    assert found == {target: f"{root}/{used}/nvidia/{VERSION}/gsp_ga10x.bin"}


ICD = "/usr/share/vulkan/icd.d/nvidia_icd.json"


def test_configuration_and_gbm_as_files(root):
    allocator = f"/d/libnvidia-allocator.so.{VERSION}"
    files = [
        driver_files.DriverFile(
            allocator, "lib64", f"libnvidia-allocator.so.{VERSION}", ("libnvidia-allocator.so.1", "nvidia-drm_gbm.so")
        ),
        driver_files.DriverFile("/etc/vulkan/icd.d/nvidia_icd.json", "share", "nvidia_icd.json"),
    ]
    where = mounts(build(root, [gpu(0)], specification.file_edits(files, "aarch64")))
    libraries = ("/usr/lib/aarch64-linux-gnu", "/usr/lib64")
    names = (f"libnvidia-allocator.so.{VERSION}", "libnvidia-allocator.so.1", "gbm/nvidia-drm_gbm.so")
    assert {path: source for path, (source, _options) in where.items()} == {
        **{f"{directory}/{name}": allocator for directory in libraries for name in names},
        ICD: "/etc/vulkan/icd.d/nvidia_icd.json",
    }


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("cdiVersion",), "0.2.0"),
        (("kind",), "gpu"),
        (("hooks",), []),
        (("devices",), []),
        (("devices", 0, "name"), "MIG-GPU-1/0/0"),
        (("devices", 0, "containerEdits"), {}),
        (("devices", 0, "containerEdits", "deviceNodes", 0, "path"), "dev/nvidia0"),
        (("devices", 0, "containerEdits", "deviceNodes", 0, "minor"), -1),
        (("containerEdits", "env", 0), "NVIDIA_VISIBLE_DEVICES"),
        (("containerEdits", "mounts", 0, "hostPath"), "volumes"),
        (("containerEdits", "mounts", 0, "mode"), "ro"),
    ],
)
def test_the_schema_rejects_an_invalid_specification(root, place, value):
    spec = copy.deepcopy(build(root, [gpu(0)]).spec)
    *parents, last = place
    inner = spec
    for step in parents:
        inner = inner[step]
    inner[last] = value
    with pytest.raises(jsonschema.ValidationError):
        cdi_schema.check(spec)


def test_the_schema_rejects_a_name_that_is_used_twice(root):
    spec = build(root, [gpu(0)]).spec
    spec["devices"].append(spec["devices"][0])
    with pytest.raises(AssertionError, match="used twice"):
        cdi_schema.check(spec)
