# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An LXC, LXD or Incus guest gets the user space of the driver that its node has loaded, and nothing of the kernel."""

from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import (
    driver_removal,
    lxc_guest_driver,
    reboot_decision,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import network_kernel_modules
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import reboot_reasons
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import selectors_of_allowed_packages
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    FROM_DEBIAN,
    FROM_NVIDIA,
    FROM_UBUNTU,
    H100,
    all_files,
    host,
    platform,
)

NODE = "6.8.12-4-pve"
LOADED, OTHER = "580.95.05", "580.126.09"
# What a guest must never get, by the names of packages on all platforms.
OF_KERNEL = re.compile(r"dkms|^linux-|^kernel|kmod|-kmp|headers|modules")


def guest(key: str, loaded: str | None = LOADED, **changes) -> dict:
    """Describe a guest, which sees the PCI bus, the kernel and the loaded module of its node."""
    driver = {"loaded": loaded, "kernel_module_flavor": "open", **changes.pop("driver", {})}
    more = {"kernel": NODE, "modules_loaded": ["nvidia", "nvidia_uvm"], "os": {"variant": "lxc"}, **changes}
    return host(key, (H100,), driver=driver, **more)


def plan(there: dict, key: str, request: dict | None = None, *versions: str) -> DriverPlan:
    """Plan with an answer of the repositories: every package that the plan asks for, in these versions."""
    rejected: dict[str, str] = {}
    result = driver_plan.plan(there, request or {}, platform(key))
    for _source in range(2 if versions else 0):
        available = {name: [f"{version}-1" for version in versions] for name in result.todo.query}
        if not result.errors:
            answered = driver_plan.plan(there, request or {}, platform(key), available, rejected_sources=rejected)
            if answered.rejected_sources == rejected:
                return answered
            # Another source needs another query.
            result, rejected = answered, answered.rejected_sources
    return result


def installed(result: DriverPlan) -> dict[str, str]:
    """Return the packages of a plan with their versions."""
    return dict(item.partition("=")[::2] for item in result.todo.transaction.install)


PLATFORMS = [
    ("debian-12", {}, {"libcuda1", "libnvidia-ml1", "nvidia-driver-cuda"}),
    ("debian-13", {}, {"libcuda1", "libnvidia-ml1", "nvidia-driver-cuda"}),
    ("ubuntu-22.04", {}, {"libnvidia-compute-580-server", "nvidia-utils-580-server"}),
    ("ubuntu-24.04", {}, {"libnvidia-compute-580-server", "nvidia-utils-580-server"}),
    ("ubuntu-24.04", {"source": "nvidia"}, {"libnvidia-compute-580", "nvidia-utils-580"}),
    ("el-8", {}, {"nvidia-driver-cuda-libs", "libnvidia-ml"}),
    ("el-9", {}, {"nvidia-driver-cuda-libs", "libnvidia-ml"}),
    ("el-10", {}, {"nvidia-driver-cuda-libs", "libnvidia-ml"}),
    ("amazon-2023", {}, {"nvidia-driver-cuda-libs", "libnvidia-ml"}),
    ("sles-15", {}, {"nvidia-compute-G06"}),
]


@pytest.mark.parametrize(("key", "request_", "expected"), PLATFORMS)
def test_guest_gets_the_user_space_of_the_loaded_version_and_no_kernel_package(key, request_, expected):
    there = guest(key)
    result = plan(there, key, request_, OTHER, LOADED)
    assert result.errors == []
    found = installed(result)
    assert expected <= set(found)
    assert [name for name in found if OF_KERNEL.search(name)] == []
    driver = {version for version in found.values() if version}
    assert driver == {f"{LOADED}-1"}
    todo = result.todo
    assert (todo.build, todo.register, todo.initramfs, todo.services, todo.reload_udev) == ([], None, [], [], False)
    assert todo.modules == {"load": [], "unload": [], "services": []}
    # Nothing for the kernel, either.
    paths = [file["path"] for file in all_files(result)]
    assert [path for path in paths if re.search(r"mod(ules|probe)|udev", path)] == []
    assert [name for name in todo.query if OF_KERNEL.search(name)] == []


@pytest.mark.parametrize(("key", "request_", "_expected"), PLATFORMS)
def test_second_run_changes_nothing_and_a_new_driver_of_the_node_is_followed(key, request_, _expected):
    packages = {name: f"{LOADED}-1" for name, version in installed(plan(guest(key), key, request_, LOADED)).items()}
    of = FROM_UBUNTU if key.startswith("ubuntu") and not request_ else FROM_NVIDIA
    origins = {name: [of] for name in packages}
    library = {"library": LOADED, "library_path": f"/usr/lib64/libnvidia-ml.so.{LOADED}"}
    more = {"packages": packages, "package_origins": origins, "driver": library}
    result = plan(guest(key, **more), key, {**request_, "hold": False})
    assert result.errors == []
    assert (result.todo.query, result.todo.transaction.install, result.todo.files) == ([], [], [])
    # The node was upgraded.
    upgraded = guest(key, loaded=OTHER, **more)
    result = plan(upgraded, key, request_, LOADED, OTHER)
    assert result.errors == []
    assert set(installed(result).values()) == {f"{OTHER}-1"}
    upgraded["reboot_reasons"] = reboot_reasons.reasons(upgraded)
    decision = reboot_decision.decision(upgraded, "when_required", False)
    assert (decision["reasons"], decision["go"]) == ([], False)


@pytest.mark.parametrize("key", ["debian-12", "ubuntu-24.04", "el-9", "sles-15"])
def test_missing_version_is_named_before_any_change(key):
    result = plan(guest(key), key, {}, OTHER)
    assert result.errors
    for word in (f"exactly driver {LOADED}", OTHER, "load another driver on the node"):
        assert word in result.errors[0]
    assert "nvidia_driver_version is" not in result.errors[0]


def test_branch_without_source_is_named():
    result = plan(guest("sles-15", loaded="390.157"), "sles-15", {}, OTHER)
    assert "exactly driver 390.157" in result.errors[0]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"version": OTHER}, [f"nvidia_driver_version is {OTHER}", LOADED]),
        ({"branch": "595"}, ["nvidia_driver_branch is 595", LOADED]),
        ({"minimum_version": "590"}, ["nvidia_driver_minimum_version is 590", LOADED]),
        ({"fabric_manager": "enabled"}, ["nvidia_driver_fabric_manager is enabled"]),
        ({"imex": True}, ["nvidia_driver_imex is true"]),
        ({"extra_packages": ["nvtop", "dkms"]}, ["nvidia_driver_extra_packages contains dkms, but"]),
        (
            {"source": "runfile", "version": LOADED, "runfile_checksum": "sha256:" + "0" * 64},
            ["nvidia_driver_source is runfile", "--no-kernel-module"],
        ),
    ],
)
def test_settings_that_contradict_the_node_are_refused(request_, words):
    (error,) = plan(guest("ubuntu-24.04"), "ubuntu-24.04", request_).errors
    for word in words:
        assert word in error


def test_equal_settings_are_accepted_and_settings_of_modules_are_reported():
    request = {
        "version": LOADED,
        "branch": "580",
        "minimum_version": "570",
        "module_options": {"nvidia": {"NVreg_X": 1}},
        "peermem": True,
    }
    result = plan(guest("ubuntu-24.04"), "ubuntu-24.04", request, LOADED)
    assert result.errors == []
    assert any("nvidia_driver_module_options and nvidia_driver_peermem is ignored" in text for text in result.reasons)
    assert [file["path"] for file in result.todo.files if "mod" in file["path"]] == []


def test_libraries_from_the_node_are_adopted():
    library = {"library": LOADED, "library_path": f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{LOADED}"}
    result = plan(guest("ubuntu-24.04", driver=library), "ubuntu-24.04")
    assert (result.errors, result.action, result.acts) == ([], "adopt", False)
    stale = plan(guest("ubuntu-24.04", loaded=OTHER, driver=library), "ubuntu-24.04")
    assert f"exactly driver {OTHER}" in stale.errors[0]
    assert LOADED in stale.errors[0]


def test_node_without_driver_is_named():
    (error,) = plan(guest("ubuntu-24.04", loaded=None), "ubuntu-24.04").errors
    assert "LXC guest" in error
    assert "Load the driver on the node first" in error


def test_removal_does_not_touch_the_modules_of_the_node():
    packages = {"libnvidia-compute-580-server": f"{LOADED}-1"}
    there = guest("ubuntu-24.04", packages=packages, package_origins={name: [FROM_UBUNTU] for name in packages})
    result = driver_removal.plan(there, platform("ubuntu-24.04"))
    assert (result["unload"], result["initramfs"], result["services"], result["errors"]) == ([], [], [], [])


@pytest.mark.parametrize(
    ("name", "is_kept_out"),
    [
        *((name, True) for name in ("dkms", "linux-image-6.1.0-47-amd64", "linux-headers-generic", "kernel-core")),
        *((name, True) for name in ("kernel", "kmod-nvidia-open-dkms", "nvidia-open-kmod", "akmod-nvidia")),
        *((name, True) for name in ("nvidia-dkms-580-server-open", "nvidia-kernel-open-dkms", "nvidia-kernel-support")),
        *((name, True) for name in ("linux-modules-nvidia-580-server-generic", "nvidia-driver-G06-kmp-default")),
        *((name, False) for name in ("libcuda1", "nvidia-kernel-common-580-server", "nvidia-alternative", "kmod")),
        *((name, False) for name in ("nvidia-compute-G06", "nvidia-modprobe", "linux-libc-dev", "libnvidia-ml1")),
    ],
)
def test_the_transaction_installs_no_kernel_package_as_a_dependency(name, is_kept_out):
    result = plan(guest("debian-12"), "debian-12", {}, LOADED)
    selectors = [selectors_of_allowed_packages.parse(text) for text in result.todo.keep]
    assert selectors_of_allowed_packages.is_selected(selectors, name, None, "1") is is_kept_out
    assert plan(host("debian-12"), "debian-12", {}, "535.309.01").todo.keep == []


def test_engine_plans_no_kernel_package_in_a_guest():
    rules = [{"match": r"^(?P<version>.+)\.x86_64$", "package": "kernel-modules-extra"}]
    machine = host("el-10")
    assert network_kernel_modules.missing(machine, rules, {}) != []
    assert network_kernel_modules.missing({**machine, "os": {**machine["os"], "variant": "lxc"}}, rules, {}) == []


def test_debian_driver_of_the_distribution_is_found():
    there = guest("debian-12", loaded="535.309.01", kernel="6.1.0-47-amd64")
    result = plan(there, "debian-12", {}, "535.309.01")
    assert (result.errors, result.source) == ([], "distribution")
    assert FROM_DEBIAN["vendor"] == "Debian"
    assert lxc_guest_driver.is_guest(there)
