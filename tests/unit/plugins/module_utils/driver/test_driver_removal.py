# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    record_of_role,
    selectors_of_allowed_packages,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import add_package, host, platform

V = "535.309.01-0+deb12u1"
DRIVER = {"library": "535.309.01", "loaded": "535.309.01"}
OURS = {"nvidia-kernel-dkms": V, "libcuda1": V, "nvidia-alternative": V, "dkms": "3.0.10-8", "gcc-12": "12.2"}


def installed(recorded=None, **changes) -> dict:
    """Describe a host with a driver; `recorded` has the packages in the role's record."""
    there = host("debian-12", packages={**OURS, "zfs-dkms": "2.1"}, driver=DRIVER, held=("libcuda1",), **changes)
    there["files"] = {owned.MODULES_LOAD: {"exists": True, "content": "x"}, **changes.get("files", {})}
    if recorded is not None:
        there["files"][owned.DRIVER_RECORD] = {"exists": True, "content": json.dumps(recorded)}
    return there


def test_recorded_packages_are_removed():
    plan = driver_removal.plan(installed({"packages": list(OURS)}), platform("debian-12"))
    assert (plan["acts"], plan["record"], plan["errors"]) == (True, True, [])
    # The dependencies go only if nothing else needs them.
    assert plan["packages"] == ["libcuda1", "nvidia-alternative", "nvidia-kernel-dkms"]
    # The transaction's record has its own files.
    assert plan["files"] == [owned.MODULES_LOAD]


@pytest.mark.parametrize("package", ["dracut", None])
def test_removal_rebuilds_initramfs(package):
    there = installed({"packages": list(OURS)})
    there["files"][owned.MODPROBE] = {"exists": True, "content": "blacklist nouveau"}
    if package:
        add_package(there, package, "1", arch="all")
    commands = [["dracut", "--force", "--kver", there["kernel"]["running"]]] if package else []
    assert driver_removal.plan(there, platform("debian-12"))["initramfs"] == commands
    # The files after a run whose rebuild failed.
    there["files"] = {owned.DRIVER_INITRAMFS_MARKER: {"exists": True, "content": ""}}
    plan = driver_removal.plan(there, platform("debian-12"))
    assert (plan["acts"], plan["files"], plan["initramfs"]) == (True, [owned.DRIVER_INITRAMFS_MARKER], commands)
    assert plan["record"] is False


def test_earlier_package_stays():
    plan = driver_removal.plan(installed({"packages": ["nvidia-kernel-dkms"], "files": {}}), platform("debian-12"))
    assert plan["packages"] == ["nvidia-kernel-dkms"]
    assert plan["reasons"] == ["packages that this role did not install are kept: libcuda1, nvidia-alternative"]


@pytest.mark.parametrize("recorded", [None, {}, {"packages": [], "files": {}}, {"pending": ["zfs-dkms", *OURS]}])
def test_packages_of_other_driver_stay(recorded):
    plan = driver_removal.plan(installed(recorded), platform("debian-12"))
    kept = ("packages", "unload", "services", "disable")
    assert [plan[name] for name in kept] == [[]] * len(kept)
    assert plan["reasons"] == [
        "packages that this role did not install are kept: libcuda1, nvidia-alternative, nvidia-kernel-dkms"
    ]


def test_interrupted_installation_can_be_removed():
    there = installed({"pending": ["vim", "libcuda1"], "packages": ["make"], "asked": ["dkms", "nvidia-kernel-dkms"]})
    there["installed_packages"] = dict.fromkeys(["vim", *OURS, "make", "tmux"], "1 all")
    plan = driver_removal.plan(there, platform("debian-12"))
    assert plan["packages"] == ["nvidia-alternative", "nvidia-kernel-dkms"]


def test_driver_of_other_origin_stays():
    there = host("debian-12", driver={**DRIVER, "runfile": True})
    plan = driver_removal.plan(there, platform("debian-12"))
    assert (plan["packages"], plan["runfile"], plan["acts"]) == ([], [], False)
    assert "this role did not install" in plan["reasons"][0]


@pytest.mark.parametrize(
    ("driver", "removed"),
    [
        ({"packages": list(OURS)}, ["libcuda1", "nvidia-alternative", "nvidia-kernel-dkms", "nvidia-persistenced"]),
        # The driver is not the role's, so only the daemon leaves, and the modules stay loaded.
        (None, ["nvidia-persistenced"]),
    ],
)
def test_the_daemon_leaves_with_the_driver(driver, removed):
    there = installed(driver, modules_loaded=["nvidia"])
    for name in ("nvidia-persistenced", "libnvidia-cfg1", "adduser"):
        add_package(there, name, V)
    record = {"packages": ["nvidia-persistenced", "adduser"], "requested": ["nvidia-persistenced"]}
    there["files"][owned.PERSISTENCED_RECORD] = {"exists": True, "content": json.dumps(record)}
    there["services"]["nvidia-persistenced.service"] = {"unit_file_state": "enabled", "active_state": "active"}
    plan = driver_removal.plan(there, platform("debian-12"))
    assert (plan["acts"], plan["errors"], plan["together_with"]) == (True, [], ["nvidia_persistenced"])
    # What the transaction of the daemon only brought along goes if nothing else needs it.
    assert plan["packages"] == removed
    assert plan["disable"] == ["nvidia-persistenced.service"]
    assert plan["unload"] == (["nvidia"] if driver else [])
    kept = next(text for text in plan["reasons"] if "did not install are kept" in text)
    assert "nvidia-persistenced" not in kept
    assert "libnvidia-cfg1" in kept


R = "580.95.05"
UNINSTALL = ["nvidia-uninstall", "--silent"]
BEGUN = [f"/var/cache/gpufleet/nvidia-{R}.run", "--uninstall", "--silent"]


@pytest.mark.parametrize(
    ("recorded", "driver", "expected"),
    [
        ({"installed": R}, {"library": R, "runfile": True}, UNINSTALL),
        # The user's own driver.
        ({}, {"library": R, "runfile": True}, []),
        # The user installed another version.
        ({"installed": "570.86.15"}, {"library": R, "runfile": True}, []),
        # Interrupted: with and without an uninstaller, and before the former driver was removed.
        ({"pending": R}, {"library": R, "runfile": True}, UNINSTALL),
        ({"pending": R}, {"library": R}, BEGUN),
        ({"pending": R, "installed": "570.86.15"}, {"library": "570.86.15", "runfile": True}, UNINSTALL),
        ({"pending": R}, {"runfile": True}, UNINSTALL),
        ({"pending": R}, {"library": "570.86.15"}, []),
        ({"pending": R}, {}, []),
    ],
)
def test_only_own_installer_is_uninstalled(recorded, driver, expected):
    content = {"exists": True, "content": json.dumps(recorded)}
    there = host("debian-12", driver=driver, files={owned.DRIVER_RUNFILE_RECORD: content})
    plan = driver_removal.plan(there, platform("debian-12"))
    assert (plan["runfile"], plan["record"], plan["files"]) == (expected, False, [owned.DRIVER_RUNFILE_RECORD])
    assert (f"run {' '.join(expected)}" in plan["changes"]) is bool(expected)
    left_alone = "the driver is kept because this role did not install it"
    assert (left_alone in plan["reasons"]) is (bool(driver) and not expected)


def test_summary_lists_all_steps():
    there = installed({"packages": list(OURS)}, modules_loaded=["nvidia"])
    assert driver_removal.plan(there, platform("debian-12"))["changes"] == [
        "unload nvidia",
        "remove libcuda1, nvidia-alternative, nvidia-kernel-dkms",
        "remove the dependencies, repositories, pins and holds that this role recorded",
        f"remove {owned.MODULES_LOAD}",
    ]


def test_nothing_to_do_is_reported():
    plan = driver_removal.plan(host("debian-12"), platform("debian-12"))
    assert (plan["changes"], plan["reasons"]) == ([], ["this role has not installed anything on this host"])


def test_empty_host_has_empty_plan():
    assert not driver_removal.plan(host("debian-12"), platform("debian-12"))["acts"]
    assert not driver_removal.plan(host("gentoo-2"), None)["acts"]


def test_removal_is_refused_while_in_use():
    job = {"pid": 812, "command": "python3", "devices": ["/dev/nvidia0"], "open": True, "container": None}
    plan = driver_removal.plan(installed({"packages": list(OURS)}, holders=[job]), platform("debian-12"))
    (error,) = plan["errors"]
    assert "process 812 (python3)" in error
    assert "Stop the processes first" in error
    assert not plan["acts"]


def test_removal_is_refused_with_dependent_module():
    users = {"nvidia": ["gdrdrv", "nvidia_uvm"]}
    loaded = ["gdrdrv", "nvidia", "nvidia_uvm"]
    there = installed({"packages": list(OURS)}, modules_loaded=loaded, module_users=users)
    plan = driver_removal.plan(there, platform("debian-12"))
    (error,) = plan["errors"]
    assert "in use by module gdrdrv, which needs nvidia. Nothing was changed. Unload these modules first" in error
    assert (plan["acts"], plan["services"], plan["unload"]) == (False, [], [])


def test_dependent_modules_are_unloaded_first():
    there = installed({"packages": list(OURS)}, modules_loaded=["nvidia", "nvidia_modeset", "nvidia_uvm"])
    assert driver_removal.plan(there, platform("debian-12"))["unload"] == ["nvidia_uvm", "nvidia_modeset", "nvidia"]


def with_record(content: str) -> dict:
    there = installed()
    there["files"][owned.DRIVER_RECORD] = {"exists": True, "content": content}
    return there


@pytest.mark.parametrize("content", ["", "{", "[]", '{"packages": null}'])
def test_damaged_record_is_ignored(content):
    assert not any(record_of_role.read(with_record(content), owned.DRIVER_RECORD).values())


@pytest.mark.parametrize(("state", "expected"), [("enabled", ["nvidia-fabricmanager.service"]), ("disabled", [])])
def test_services_are_disabled(state, expected):
    packages = dict.fromkeys(["nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-fabricmanager"], "580.95.05-1")
    units = ("nvidia-fabricmanager.service", "docker.service")
    services = {unit: {"unit_file_state": state} for unit in units}
    record = {"exists": True, "content": json.dumps({"packages": list(packages)})}
    there = host("debian-12", packages=packages, driver={"library": "580.95.05"}, services=services)
    there["files"] = {owned.DRIVER_RECORD: record}
    assert driver_removal.plan(there, platform("debian-12"))["disable"] == expected
    assert driver_removal.plan(host("debian-12", services=services), platform("debian-12"))["disable"] == []


@pytest.mark.parametrize("toolkit", [{"key": "0" * 40}, {"repositories": [owned.REPOSITORY_ID]}, {"packages": ["g++"]}])
def test_a_repository_that_stays_for_the_toolkit_is_reported(toolkit):
    there = installed({"packages": list(OURS), "key": "0" * 40})
    there["files"][record_of_role.TOOLKIT] = {"exists": True, "content": json.dumps(toolkit)}
    reasons = driver_removal.plan(there, platform("debian-12"))["reasons"]
    assert ("NVIDIA's repository stays: the CUDA toolkit comes from it" in reasons) is ("packages" not in toolkit)


KERNEL_PACKAGES = [
    ("linux-image-6.12.94+deb13-amd64", True),
    ("linux-modules-6.8.0-88-generic", True),
    ("linux-image-unsigned-6.8.0-88-generic", True),
    ("linux-headers-6.12.94+deb13-amd64", False),
    ("linux-modules-nvidia-580-server-open-6.8.0-88-generic", False),
    ("kernel-devel", False),
]


@pytest.mark.parametrize(("name", "stays"), KERNEL_PACKAGES)
def test_headers_are_removed_and_kernels_stay(name, stays):
    keep = driver_removal.plan(installed({"packages": [*OURS, name]}), platform("debian-12"))["keep"]
    selectors = map(selectors_of_allowed_packages.parse, keep)
    assert selectors_of_allowed_packages.is_selected(selectors, name, "6.8.0-88.89") is stays


def test_a_removal_needs_root_but_a_host_without_the_driver_does_not():
    there = {**installed({"packages": list(OURS)}), "uid": 1000}
    (error,) = driver_removal.plan(there, platform("debian-12"))["errors"]
    assert error == "This task needs root, but it runs as uid 1000. Set `become: true`."
    assert driver_removal.plan(host(uid=1000), platform("debian-12"))["errors"] == []
