# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""EPEL on Enterprise Linux: added for DKMS, if no other repository has DKMS."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import KERNELS, add_package, host, platform

KEYS = ["el-8", "el-9", "el-10"]
VERSION = "580.95.05"
NVIDIA = {"source": "nvidia"}
RUNFILE = {"source": "runfile", "version": VERSION, "runfile_checksum": "sha256:" + "0" * 64}
PLUGIN = "python3-dnf-plugin-versionlock"


def planned(key: str, request: dict, packages: tuple[str, ...] = (), **offered: list[str]) -> DriverPlan:
    """Plan with repositories that have every queried package, except as `offered` says."""
    there = host(key, packages=dict.fromkeys((PLUGIN, *packages), "1-1"), headers=(KERNELS[key],))
    asked = driver_plan.plan(there, request, platform(key)).todo.query
    answers = {name.replace("-", "_"): name for name in asked}
    available = {name: offered.get(word, [f"{VERSION}-1"]) for word, name in answers.items()}
    return driver_plan.plan(there, request, platform(key), available)


@pytest.mark.parametrize("request_", [NVIDIA, RUNFILE], ids=["nvidia", "runfile"])
@pytest.mark.parametrize("key", KEYS)
class TestEpel:
    def test_epel_is_not_added_if_dkms_is_available(self, key, request_):
        result = planned(key, request_, epel_release=[])
        assert result.errors == []
        assert result.todo.prerequisites == []
        assert "dkms" in result.todo.transaction.install

    def test_epel_is_added_for_dkms(self, key, request_):
        result = planned(key, request_, dkms=[])
        assert result.errors == []
        assert result.todo.prerequisites == ["epel-release"]
        assert "dkms" in result.todo.transaction.install

    def test_missing_dkms_and_epel_are_refused(self, key, request_):
        result = planned(key, request_, dkms=[], epel_release=[])
        (error,) = result.errors
        assert error.startswith("No enabled repository provides dkms, which builds the driver's modules. ")
        for word in (
            "epel-release is also unavailable",
            "Enable EPEL or a mirror",
            f"epel-release-latest-{key[3:]}.noarch.rpm",
        ):
            assert word in error
        assert result.acts is False

    def test_disabled_epel_is_reported(self, key, request_):
        (error,) = planned(key, request_, ("epel-release",), dkms=[]).errors
        assert "which builds the driver's modules, although epel-release is installed. DKMS is in EPEL. Enable" in error


@pytest.mark.parametrize("key", KEYS)
def test_epel_is_not_queried_with_dkms(key):
    there = host(key, packages={"dkms": "3.2.1-1", PLUGIN: "4.0"}, headers=(KERNELS[key],))
    todo = driver_plan.plan(there, NVIDIA, platform(key)).todo
    assert todo.prerequisites == []
    assert "epel-release" not in todo.query
    assert driver_plan.plan(there, RUNFILE, platform(key)).todo.prerequisites == []


@pytest.mark.parametrize("key", KEYS)
def test_lock_plugin_is_always_planned(key):
    there = host(key, packages={"dkms": "3.2.1-1"})
    assert driver_plan.plan(there, NVIDIA, platform(key)).todo.prerequisites == [PLUGIN]


def test_an_installed_prerequisite_with_any_name_is_not_planned_again():
    data = platform("el-9")
    data["sources"]["nvidia"].update(prerequisites=["rpmfusion-release"], hold_needs=["lock-plugin"])
    there = host("el-9", packages={"rpmfusion-release": "9-1"}, headers=(KERNELS["el-9"],))
    assert driver_plan.plan(there, NVIDIA, data).todo.prerequisites == ["lock-plugin"]
    add_package(there, "lock-plugin", "1-1")
    assert driver_plan.plan(there, NVIDIA, data).todo.prerequisites == []


def test_unqueried_packages_may_be_available():
    result = driver_plan.plan(host("el-9", headers=(KERNELS["el-9"],)), RUNFILE, platform("el-9"), {})
    assert result.errors == []
    assert result.todo.prerequisites == ["epel-release"]


@pytest.mark.parametrize("key", ["el-9", "amazon-2023"])
def test_headers_are_installed_in_the_version_of_the_kernel(key):
    there = host(key, packages={PLUGIN: "4.0", "dkms": "3.2.1-1"})
    release = KERNELS[key].replace(".x86_64", "")
    asked = driver_plan.plan(there, NVIDIA, platform(key)).todo.query
    headers = [name for name in asked if name in ("kernel-devel", "kernel6.12-devel")]
    available = {name: [f"{VERSION}-1"] for name in asked}
    available.update({name: ["9.9.9-1", release] for name in asked if name.startswith("kernel")})
    result = driver_plan.plan(there, NVIDIA, platform(key), available)
    assert (result.errors, len(headers)) == ([], 1)
    assert f"{headers[0]}={release}" in result.todo.transaction.install
    (error,) = driver_plan.plan(there, NVIDIA, platform(key), {**available, headers[0]: ["9.9.9-1"]}).errors
    assert f"have no {headers[0]}-{KERNELS[key]}" in error
