# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts whose driver the role must not install: vGPUs, Tegra boards, WSL and unknown distributions."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform

A10, ADDRESS = "0x2236", "0002:00:00.0"
LOADED = {"loaded": "570.172.07", "library": "570.172.07", "on_disk": "570.172.07", "kernel_module_flavor": "open"}
GUEST = {**LOADED, "runfile": True}
LICENSE = {"nvidia-gridd.service": {"load_state": "loaded", "active_state": "active"}}
SUM = "sha256:" + "0" * 64


def vgpu_host(bound: str | None = None, version: str | None = "570.172.07", **changes) -> dict:
    """Describe a virtual machine with a vGPU. `bound`: the kernel driver that is bound to it."""
    nvidia = {
        "gpus": [ADDRESS],
        "vgpus": [{"address": ADDRESS, "manager_version": version}],
        "pci_devices": [{"address": ADDRESS, "kernel_driver": bound, "kind": "gpu"}],
    }
    loaded = ["nvidia", "nvidia_uvm"] if bound == "nvidia" else []
    return host("ubuntu-24.04", (A10,), nvidia=nvidia, modules_loaded=loaded, **changes)


def plan(there: dict, **request: str) -> driver_plan.DriverPlan:
    return driver_plan.plan(there, request, platform(there["os"]["key"]) if there["os"]["key"] else None)


INSTALLING = [{"source": "distribution"}, {"source": "nvidia"}, {"source": "runfile", "version": "570.172.08"}]


@pytest.mark.parametrize("request_", [{}, {"source": "preinstalled"}, *INSTALLING], ids=str)
def test_a_vgpu_without_a_driver_is_refused(request_):
    result = plan(vgpu_host(), **request_)
    (error,) = result.errors
    assert not result.acts
    for word in (
        f"{ADDRESS} is a vGPU (vGPU manager of the hypervisor: 570.172.07)",
        "licensing portal or the cloud provider",
        "must match the vGPU manager",
        "nvidia_driver_source auto or preinstalled",
        "runfile and nvidia_driver_runfile_url",
    ):
        assert word in error
    assert "vGPU manager of the hypervisor:" not in plan(vgpu_host(version=None), **request_).errors[0]


def test_the_installer_of_the_guest_driver_may_be_run():
    request = {"source": "runfile", "version": "570.172.08", "runfile_checksum": SUM}
    request["runfile_url"] = "https://mirror.example/NVIDIA-Linux-x86_64-570.172.08-grid.run"
    result = plan(vgpu_host(headers=("6.8.0-88-generic",)), **request)
    assert (result.errors, result.todo.runfile["url"]) == ([], request["runfile_url"])


@pytest.mark.parametrize("source", ["auto", "preinstalled"])
@pytest.mark.parametrize(
    "there",
    [
        vgpu_host("nvidia", driver=GUEST),
        vgpu_host("nvidia", driver=LOADED, services=LICENSE),
        # After an upgrade of the kernel, the module is not built yet.
        vgpu_host(None, driver={**GUEST, "loaded": None, "on_disk": None}, services=LICENSE),
    ],
    ids=["bound", "licensed", "not loaded"],
)
def test_a_guest_driver_is_adopted(there, source):
    result = plan(there, source=source)
    assert (result.errors, result.action, result.source, result.acts) == ([], "adopt", "preinstalled", False)
    (reason,) = [text for text in result.reasons if "vGPU" in text]
    assert "the installed vGPU guest driver and its license service are kept" in reason


@pytest.mark.parametrize("request_", INSTALLING, ids=str)
def test_a_guest_driver_is_not_replaced(request_):
    (error,) = plan(vgpu_host("nvidia", driver=GUEST, services=LICENSE), **request_).errors
    assert f"; source {request_['source']} does not contain a vGPU guest driver" in error


def test_a_driver_for_whole_gpus_is_not_adopted_for_a_vgpu():
    packages = {"nvidia-utils-570-server": "570.172.08-0ubuntu0.24.04.1"}
    (error,) = plan(vgpu_host(None, driver=LOADED, packages=packages)).errors
    assert "which the installed driver 570.172.07 does not support" in error


def test_a_whole_gpu_with_a_grid_driver_is_adopted_as_before():
    there = host("ubuntu-24.04", ("0x1eb8",), driver=GUEST, services=LICENSE, modules_loaded=["nvidia", "nvidia_uvm"])
    result = plan(there)
    assert (result.errors, result.action, result.acts) == ([], "adopt", False)
    assert not any("vGPU" in reason for reason in result.reasons)


def test_a_whole_gpu_beside_a_license_service_gets_a_driver():
    assert plan(host("ubuntu-24.04", ("0x1eb8",), services=LICENSE)).action == "install"


# --- Tegra and WSL ---

TEGRA, WSL = {"variant": "tegra", "arch": "aarch64"}, {"variant": "wsl"}
L4T = {"packages": {"nvidia-l4t-core": "36.4.4-20250616085344"}}
RELEASE = {"files": {"/etc/nv_tegra_release": {"exists": True, "content": "# R36 (release)", "mode": "0644"}}}


@pytest.mark.parametrize("source", ["auto", "preinstalled"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"os": WSL},
            ["Windows Subsystem for Linux", "Windows provides the NVIDIA driver", "this role changes nothing"],
        ),
        ({"os": TEGRA, **L4T}, ["Tegra board", "Jetson Linux (L4T)", "this role changes nothing"]),
        ({"os": TEGRA, **RELEASE}, ["Tegra board"]),
    ],
    ids=["wsl", "tegra by its packages", "tegra by its release"],
)
def test_the_driver_of_another_system_is_kept(changes, words, source):
    result = plan(host("ubuntu-22.04", (), **changes), source=source)
    assert (result.errors, result.action, result.acts) == ([], "none", False)
    (reason,) = result.reasons
    for word in words:
        assert word in reason


@pytest.mark.parametrize("request_", INSTALLING, ids=str)
@pytest.mark.parametrize(
    ("gpus", "changes", "word"),
    [
        ((), {"os": WSL}, "Windows provides the NVIDIA driver"),
        ((), {"os": TEGRA, **L4T}, "part of Jetson Linux"),
        ((A10,), {"os": TEGRA, **L4T, "driver": LOADED}, "part of Jetson Linux"),
    ],
    ids=["wsl", "tegra", "tegra with a GPU on the PCI bus"],
)
def test_a_driver_is_not_installed_beside_that_of_another_system(gpus, changes, word, request_):
    (error,) = plan(host("ubuntu-22.04", gpus, **changes), **request_).errors
    for part in (f"nvidia_driver_source is {request_['source']}", word, "Remove the setting"):
        assert part in error


@pytest.mark.parametrize("gpus", [(), (A10,)])
def test_a_tegra_board_without_its_driver_is_refused(gpus):
    (error,) = plan(host("ubuntu-22.04", gpus, os=TEGRA)).errors
    assert "The NVIDIA driver of this host is missing, and this role cannot install it" in error
    assert "Jetson Linux (L4T)" in error


def test_the_driver_of_a_tegra_board_with_a_gpu_on_the_pci_bus_is_adopted():
    there = host("ubuntu-22.04", (A10,), os=TEGRA, driver=LOADED, modules_loaded=["nvidia", "nvidia_uvm"])
    result = plan(there)
    assert (result.errors, result.action, result.acts) == ([], "adopt", False)


# --- unknown distributions ---


def arch_linux(**changes) -> dict:
    there = host("arch-", ("0x20b0",), modules_loaded=["nvidia", "nvidia_uvm"], **changes)
    there["os"].update(key=None, version=None, name="Arch Linux", package_manager=None)
    return there


@pytest.mark.parametrize("source", ["auto", "preinstalled"])
def test_the_driver_of_an_unknown_distribution_is_adopted(source):
    result = plan(arch_linux(driver=LOADED), source=source)
    assert (result.errors, result.action, result.acts) == ([], "adopt", False)


@pytest.mark.parametrize(
    ("driver", "source"),
    [({}, "auto"), ({}, "distribution"), ({}, "nvidia"), (LOADED, "distribution"), (LOADED, "nvidia")],
)
def test_no_driver_is_installed_on_an_unknown_distribution(driver, source):
    (error,) = plan(arch_linux(driver=driver), source=source).errors
    assert "This role has no driver packages for Arch Linux" in error
    assert "(no version)" not in error
