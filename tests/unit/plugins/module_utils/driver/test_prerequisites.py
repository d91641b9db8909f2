# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""EPEL on Enterprise Linux: it comes for DKMS, and only where DKMS is not to be had without it."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import KERNELS, host, platform

KEYS = ["el-8", "el-9", "el-10"]
VERSION = "580.95.05"
NVIDIA = {"source": "nvidia"}
RUNFILE = {"source": "runfile", "version": VERSION, "runfile_checksum": "sha256:" + "0" * 64}
PLUGIN = "python3-dnf-plugin-versionlock"


def planned(key: str, request: dict, packages: tuple[str, ...] = (), **offered: list[str]) -> dict:
    """Plan with repositories that have all that is asked about but for what is `offered` otherwise."""
    there = host(key, packages=dict.fromkeys((PLUGIN, *packages), "1-1"), headers=(KERNELS[key],))
    asked = driver_plan.plan(there, request, platform(key))["todo"]["query"]
    answers = {name.replace("-", "_"): name for name in asked}
    available = {name: offered.get(word, [f"{VERSION}-1"]) for word, name in answers.items()}
    return driver_plan.plan(there, request, platform(key), available)


@pytest.mark.parametrize("request_", [NVIDIA, RUNFILE], ids=["nvidia", "runfile"])
@pytest.mark.parametrize("key", KEYS)
class TestEpel:
    def test_it_stays_away_where_another_repository_has_dkms(self, key, request_):
        result = planned(key, request_, epel_release=[])
        assert result["errors"] == []
        assert result["todo"]["prerequisites"] == []
        assert "dkms" in result["todo"]["install"]

    def test_it_comes_where_dkms_is_nowhere_else(self, key, request_):
        result = planned(key, request_, dkms=[])
        assert result["errors"] == []
        assert result["todo"]["prerequisites"] == ["epel-release"]
        assert "dkms" in result["todo"]["install"]

    def test_a_host_that_can_have_neither_is_refused_before_anything_is_done(self, key, request_):
        result = planned(key, request_, dkms=[], epel_release=[])
        (error,) = result["errors"]
        assert error.startswith("dkms, which builds the driver's modules, is in no enabled repository of this host, ")
        for word in ("neither is epel-release", "Enable EPEL or a mirror", f"epel-release-latest-{key[3:]}.noarch.rpm"):
            assert word in error
        assert result["acts"] is False

    def test_a_host_whose_epel_is_disabled_is_told_so(self, key, request_):
        (error,) = planned(key, request_, ("epel-release",), dkms=[])["errors"]
        assert "no enabled repository of this host, though epel-release is installed. DKMS is in EPEL. Enable" in error


@pytest.mark.parametrize("key", KEYS)
def test_it_is_not_even_asked_about_where_dkms_is_installed(key):
    there = host(key, packages={"dkms": "3.2.1-1", PLUGIN: "4.0"}, headers=(KERNELS[key],))
    todo = driver_plan.plan(there, NVIDIA, platform(key))["todo"]
    assert todo["prerequisites"] == []
    assert "epel-release" not in todo["query"]
    assert driver_plan.plan(there, RUNFILE, platform(key))["todo"]["prerequisites"] == []


@pytest.mark.parametrize("key", KEYS)
def test_the_lock_comes_in_any_case(key):
    there = host(key, packages={"dkms": "3.2.1-1"})
    assert driver_plan.plan(there, NVIDIA, platform(key))["todo"]["prerequisites"] == [PLUGIN]


def test_repositories_that_were_not_asked_about_it_prove_nothing():
    result = driver_plan.plan(host("el-9", headers=(KERNELS["el-9"],)), RUNFILE, platform("el-9"), {})
    assert result["errors"] == []
    assert result["todo"]["prerequisites"] == ["epel-release"]
