# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role amd_driver: the adoption of the kernel's driver, groups, and the units of the CDI specification."""

from __future__ import annotations

import errno
import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    amd_devices,
    recorded_sysfs,
    sysfs_refusals,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.amd_driver import plan as vendor_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.amd_driver import variables as vendor_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    cdi_specification_check,
    cdi_units,
    vendor_differences,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins import amd_hosts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.amd_trees import APU, MEMORY, MI210, MI300X, AmdTree

SPECIFICATION = "/var/run/cdi/gpufleet-amd.json"
SERVICE, PATH, TIMER = owned.ACCELERATOR_CDI_UNITS["amd"]
ID = "e3a9c0ffee123456"
KERNEL = "6.1.0-49-amd64"
AMD = vendor_differences.AMD


def digest(options) -> str:
    return f"digest {sorted(options.items())}"


def planned(host, **values):
    request = vendor_request.AmdDriverRequest(**values)
    return vendor_plan.plan(host, AMD, request, digest)


def after(host, result):
    """Return the host after the role has carried out a plan."""
    host = json.loads(json.dumps(host))
    for path, text in result.cdi.files.items():
        host["files"][path] = {"exists": text is not None, "content": text, "mode": "0644"}
    if result.cdi.options:
        host["files"][result.cdi.program] = {"exists": True, "content": digest(result.cdi.options), "mode": "0644"}
    for unit in result.cdi.enable:
        host["services"][unit] = {"load_state": "loaded", "unit_file_state": "enabled", "active_state": "active"}
    if result.cdi.restart:
        devices, _state = vendor_differences.observed(host, AMD)
        nodes = {"": [], **cdi_specification_check.expected(devices)}
        kind = (result.cdi.options or {}).get("cdi_kind", "gpufleet-amd/gpu")
        host["accelerator_specs"] = [{"path": SPECIFICATION, "kind": kind, "ours": True, "digest": "", "nodes": nodes}]
    groups = host["accelerators"]["amd"]["record"]["groups"]
    for user, group in result.users.add:
        groups.setdefault(group, []).append(user)
    if result.users.record:
        content = json.dumps({"members": result.users.record})
        host["files"][result.users.record_path] = {"exists": True, "content": content, "mode": "0644"}
    return host


@pytest.fixture
def tree(tmp_path):
    made = AmdTree(tmp_path / "root")
    made.gpu("0000:05:00.0", 128, MI300X, unique_id=ID, mode="SPX", attributes=MEMORY)
    return made


def test_the_record_of_a_host_gives_the_same_devices_as_its_sysfs(tmp_path):
    tree = AmdTree(tmp_path / "root", version="6.16.13")
    tree.gpu("0000:27:00.0", 129, unique_id="00000000000000b2", partitions=8, mode="CPX")
    tree.gpu("0000:05:00.0", 128, MI210, unique_id=ID)
    tree.gpu("0000:c5:00.0", 140, APU, attributes={"hwmon/hwmon2/name": "amdgpu", "hwmon/hwmon2/in1_label": "vddnb"})
    host = amd_hosts.observed(tree.root)
    devices, state = vendor_differences.observed(host, AMD)
    direct = amd_devices.read(sysfs_refusals.SysfsTree(tree.root), pci_functions.scan_all(tree.root), KERNEL)
    keys = ("index", "stable_id", "stable_id_kind", "pci_address", "nodes", "partition", "model", "generation")
    assert [[one[key] for key in keys] for one in devices] == [[one[key] for key in keys] for one in direct.devices]
    assert state == direct.vendor
    assert len(devices) == 9 and state["skipped"][0]["reason"] == "integrated graphics of a CPU"
    # What the kernel refused is refused to the controller, too.
    refusing = recorded_sysfs.AcceleratorRecordedTree({"refused": {"/sys/x/y": errno.EPERM}})
    assert refusing.read("/sys/x/y").refusal == "the kernel does not permit it (EPERM)"
    assert refusing.read("/sys/x/z") == sysfs_refusals.SysfsReading()


def test_a_gpu_that_is_reset_keeps_its_timer(tree):
    host = amd_hosts.observed(tree.root)
    converged = after(host, planned(host))
    record = converged["accelerators"]["amd"]["record"]
    path = "/sys/bus/pci/devices/0000:05:00.0/current_compute_partition"
    record["refused"][path] = errno.EPERM
    del record["texts"][path]
    assert planned(converged).changes == []


def test_a_record_survives_json_and_texts_that_are_not_utf_8(tree):
    tree.file("sys/bus/pci/devices/0000:05:00.0/product_name", b"Instinct \xff\xfe\xc3\xa9")
    host = json.loads(json.dumps(amd_hosts.observed(tree.root)))
    devices, _state = vendor_differences.observed(host, AMD)
    direct = amd_devices.read(sysfs_refusals.SysfsTree(tree.root), pci_functions.scan_all(tree.root), KERNEL)
    assert devices[0]["model"] == direct.devices[0]["model"]


def test_a_ready_driver_is_adopted_and_the_second_run_changes_nothing(tree):
    host = amd_hosts.observed(tree.root)
    first = planned(host, users=["alice", "bob"])
    assert first.reason == f"driver amdgpu {KERNEL} is adopted and drives 1 device"
    assert first.load is None
    assert first.changes == [
        "add alice, bob to group render",
        "add alice to group video",
        "write /var/lib/gpufleet/amd_cdi_refresh.py",
        f"write {SERVICE}",
        f"write {PATH}",
        f"write {TIMER}",
        "reload systemd",
        "enable gpufleet-amd-cdi.service",
        "enable gpufleet-amd-cdi.path",
        "enable gpufleet-amd-cdi.timer",
        f"refresh the CDI specification {SPECIFICATION}",
    ]
    second = planned(after(host, first), users=["alice", "bob"])
    assert (second.changes, second.acts, second.problems) == ([], False, [])
    # Bob was in group video before, so his membership there is not ours.
    assert second.users.record == [["alice", "render"], ["alice", "video"], ["bob", "render"]]


def test_users_that_are_no_longer_requested_leave_only_what_the_role_gave_them(tree):
    host = amd_hosts.observed(tree.root)
    host = after(host, planned(host, users=["alice", "bob"]))
    assert planned(host, users=["alice"]).changes == ["remove bob from group render"]
    gone = planned(host, state="absent")
    assert gone.changes[:2] == ["remove alice, bob from group render", "remove alice from group video"]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        # Bob was a member of group video before, so the record does not name him.
        ([["alice", "render"], ["bob", "render"]], ["remove bob from group render"]),
        ([["bob", "video"]], ["remove bob from group video"]),
        # Somebody else has removed her.
        ([["alice", "render"]], [f"remove {owned.ACCELERATOR_USERS['amd']}"]),
        (None, []),
    ],
)
def test_absent_removes_the_memberships_also_when_the_gpus_are_gone(tmp_path, monkeypatch, members, expected):
    tree = AmdTree(tmp_path / "root")
    if members:
        tree.file(owned.ACCELERATOR_USERS["amd"].lstrip("/"), json.dumps({"members": members}))
    monkeypatch.setattr(amd_hosts, "GROUPS", "root:x:0:\nvideo:x:44:bob\nrender:x:992:bob\n")
    host = amd_hosts.observed(tree.root)
    assert host["accelerators"]["amd"] is None
    assert planned(host).changes == []
    result = planned(host, state="absent")
    assert (result.changes, result.users.record) == (expected, [])


def test_absent_removes_what_the_role_wrote_and_keeps_the_driver(tree):
    host = amd_hosts.observed(tree.root)
    host = after(host, planned(host))
    result = planned(host, state="absent")
    assert result.changes == [
        *(f"disable {unit}" for unit in amd_hosts.UNITS),
        f"remove {SPECIFICATION}, {SERVICE}, {PATH}, {TIMER}, /var/lib/gpufleet/amd_cdi_refresh.py",
        "reload systemd",
    ]
    assert planned(amd_hosts.observed(tree.root), state="absent").acts is False


@pytest.mark.parametrize(
    ("partitions", "mode", "change"),
    [(8, "CPX", "refresh"), (1, "SPX", None)],
)
def test_a_repartitioned_gpu_makes_the_specification_stale(tmp_path, partitions, mode, change):
    before, now = AmdTree(tmp_path / "before"), AmdTree(tmp_path / "now")
    before.gpu("0000:05:00.0", 128, unique_id=ID, mode="SPX")
    now.gpu("0000:05:00.0", 128, unique_id=ID, mode=mode, partitions=partitions)
    host = amd_hosts.observed(before.root)
    host = after(host, planned(host))
    new = amd_hosts.observed(now.root)
    for key in ("files", "services", "accelerator_specs"):
        new[key] = host[key]
    result = planned(new)
    assert result.changes == ([f"refresh the CDI specification {SPECIFICATION}"] if change else [])
    spec = new["accelerator_specs"][0]
    found = cdi_specification_check.differences(spec, vendor_differences.observed(new, AMD)[0])
    if change:
        every = [f"/dev/dri/card{1 + number}" for number in range(8)]
        every += [f"/dev/dri/renderD{128 + number}" for number in range(8)] + ["/dev/kfd"]
        assert cdi_specification_check.message(AMD, spec, found) == (
            f"the CDI specification {SPECIFICATION} is stale: it names {ID}, which no longer exists, and it lacks "
            f"{ID}-0, 1, {ID}-1 and 12 more, and device all has the nodes /dev/dri/card1, /dev/dri/renderD128, "
            f"/dev/kfd instead of {', '.join(every)}; run `systemctl restart gpufleet-amd-cdi.service`"
        )
    else:
        assert found == []


@pytest.mark.parametrize(
    ("driver", "values", "load", "text"),
    [
        ("installed", {}, "amdgpu", "module amdgpu is installed, but not loaded"),
        # Azure's images: a service loads the driver minutes after the boot.
        ("blacklisted", {}, None, "/etc/modprobe.d/blacklist.conf blacklists it"),
        ("installed", {"activate": False}, None, "amd_driver_activate is false"),
        (None, {}, None, "has no module amdgpu. Install the distribution's package"),
        (None, {"source": "none"}, None, "amd_driver_source is none"),
        ("loaded", {}, None, "Kernel module amdgpu is loaded, but does not drive MI300X 0000:05:00.0"),
    ],
)
def test_a_driver_that_is_not_loaded(tmp_path, driver, values, load, text):
    tree = AmdTree(tmp_path / "root", loaded=driver == "loaded", kfd=False)
    tree.function("0000:05:00.0", MI300X, vendor="0x1002", class_id="0x120000")
    if driver:
        tree.file(f"lib/modules/{KERNEL}/modules.dep", "kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko:\n")
    if driver == "blacklisted":
        tree.file("etc/modprobe.d/blacklist.conf", "blacklist amdgpu\n")
    result = planned(amd_hosts.observed(tree.root), **values)
    assert result.load == load
    assert text in " ".join([*result.reasons, *result.problems])
    assert (f"load kernel module {load}" in result.changes) == bool(load)
    assert not result.cdi.restart or load


def test_missing_firmware_is_named_from_the_kernel_log(tmp_path):
    tree = AmdTree(tmp_path / "root", kfd=False)
    tree.function("0000:05:00.0", MI300X, vendor="0x1002", class_id="0x120000")
    log = (
        "[    9.1] amdgpu 0000:05:00.0: amdgpu: initializing\n"
        "[    9.2] amdgpu 0000:05:00.0: Direct firmware load for amdgpu/gc_9_4_3_mec.bin failed with error -2\n"
        "[    9.3] amdgpu 0000:05:00.0: probe with driver amdgpu failed with error -2\n"
        "[    9.4] iwlwifi 0000:02:00.0: Direct firmware load for iwlwifi.ucode failed with error -2\n"
    )
    (problem,) = planned(amd_hosts.observed(tree.root, log=log)).problems
    assert problem == (
        "The kernel did not find the firmware amdgpu/gc_9_4_3_mec.bin for module amdgpu; install the package that "
        "contains it: firmware-amd-graphics (component non-free-firmware), and reload the module or reboot."
    )
    rpm = amd_hosts.observed(tree.root, log=log, os={"family": "redhat", "key": "el-9"})
    assert "that contains it, and reload" in planned(rpm).problems[0]


@pytest.mark.parametrize(
    ("path", "content", "is_left_alone"),
    [
        ("etc/modprobe.d/azure.conf", "blacklist amdgpu # loaded by rocmstartup\n", True),
        ("usr/lib/modprobe.d/azure.conf", "install amdgpu /bin/false\n", True),
        ("proc/cmdline", "BOOT_IMAGE=/vmlinuz modprobe.blacklist=nouveau,amdgpu quiet\n", True),
        ("proc/cmdline", "BOOT_IMAGE=/vmlinuz module_blacklist=amdgpu\n", True),
        ("proc/cmdline", "BOOT_IMAGE=/vmlinuz modprobe.blacklist=nouveau amdgpu.dc=0\n", False),
        (
            "etc/modprobe.d/other.conf",
            "blacklist amdgpu_other\n# blacklist amdgpu\ninstall amdgpu /sbin/special\n",
            False,
        ),
    ],
)
def test_a_driver_that_the_image_keeps_from_loading_is_left_alone(tmp_path, path, content, is_left_alone):
    tree = AmdTree(tmp_path / "root", loaded=False, kfd=False)
    tree.module("6.1", kernel="6.1.0-49-amd64", name="amdgpu")
    tree.function("0000:05:00.0", MI300X, vendor="0x1002", class_id="0x120000")
    tree.file(path, content)
    result = planned(amd_hosts.observed(tree.root))
    assert (result.load, result.problems) == (None if is_left_alone else "amdgpu", [])
    assert (f"/{path} blacklists it" in result.reason) is is_left_alone


def test_a_host_without_gpus_of_amd_needs_nothing(tmp_path):
    tree = AmdTree(tmp_path / "root")
    assert planned(amd_hosts.observed(tree.root)).reason == "this host has no AMD GPUs"
    tree.gpu("0000:c5:00.0", 128, APU, attributes={"hwmon/hwmon2/name": "amdgpu", "hwmon/hwmon2/in1_label": "vddnb"})
    result = planned(amd_hosts.observed(tree.root))
    assert (result.acts, result.problems, result.reason) == (False, [], "this host has no AMD GPUs")


def test_another_specification_of_the_kind_stays_the_only_one(tree):
    tree.file("etc/cdi/amd.json", '{"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": []}')
    assert planned(amd_hosts.observed(tree.root)).cdi.restart
    host = amd_hosts.observed(tree.root)
    result = planned(host, cdi_kind="amd.com/gpu")
    assert result.reasons[-1] == (
        f"/etc/cdi/amd.json already describes amd.com/gpu, so {SPECIFICATION} is not written; to get a second "
        "specification, set another amd_driver_cdi_kind"
    )
    second = planned(after(host, result), cdi_kind="amd.com/gpu")
    assert not second.acts


@pytest.mark.parametrize(
    ("changes", "problem", "reason"),
    [
        ({"root_python": None}, "users other than root can replace /usr/bin/python3", None),
        ({"services": {}}, None, "systemd is not running"),
        ({"uid": 1000}, "root", None),
    ],
)
def test_hosts_on_which_the_unit_cannot_run(tree, changes, problem, reason):
    result = planned(amd_hosts.observed(tree.root, **changes))
    assert problem is None or problem in result.problems[0]
    assert reason is None or reason in result.reasons[-1]


def test_a_gpu_without_partitions_needs_no_timer_and_keeps_it_while_the_driver_is_not_loaded(tmp_path):
    tree = AmdTree(tmp_path / "root")
    tree.gpu("0000:05:00.0", 128, MI210, unique_id=ID)
    assert TIMER not in planned(amd_hosts.observed(tree.root)).cdi.files
    unloaded = AmdTree(tmp_path / "unloaded", loaded=False, kfd=False)
    unloaded.function("0000:05:00.0", MI300X, vendor="0x1002", class_id="0x120000")
    unloaded.file(f"lib/modules/{KERNEL}/modules.dep", "amdgpu/amdgpu.ko:\n")
    unloaded.file(TIMER.lstrip("/"), "old")
    result = cdi_units.plan(amd_hosts.observed(unloaded.root), AMD, [], "gpufleet-amd/gpu", digest, is_ready=False)
    assert result.files[TIMER] is not None
