# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prebuilt modules that belong to one kernel and one driver version."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    A100,
    V100,
    add_package,
    host,
    platform,
    resolve,
)

KEY = "ubuntu-24.04"
# Three kernels. The archive has modules for each, built for three drivers, and the newest driver only.
OLD, MIDDLE, NEW = "6.8.0-60-generic", "6.8.0-75-generic", "6.8.0-88-generic"
BUILDS = {OLD: ("6.8.0-60.63", "580.65.06"), MIDDLE: ("6.8.0-75.75", "580.82.07"), NEW: ("6.8.0-88.89", "580.95.05")}
COMMON = "nvidia-kernel-common-580-server"
NAMES = {"open": "linux-modules-nvidia-580-server-open", "proprietary": "linux-modules-nvidia-580-server"}
GPUS = {"open": A100, "proprietary": V100}


def depends(flavor: str, kernel: str) -> str:
    """Return the dependencies of Ubuntu's prebuilt modules. Proprietary ones have no upper bound."""
    driver = BUILDS[kernel][1]
    upper = f", {COMMON} (<= {driver}-1)" if flavor == "open" else ""
    return f"linux-image-{kernel} | linux-image-unsigned-{kernel}{upper}, {COMMON} (>= {driver})"


def plan(there: dict, request: dict, flavor: str, drivers: tuple[str, ...] = ("580.95.05",)) -> DriverPlan:
    """Plan with the archive's answer: the modules of all kernels, and these drivers."""
    asked = driver_plan.plan(there, request, platform(KEY)).todo
    versions = {name: [f"{driver}-0ubuntu0.24.04.1" for driver in drivers] for name in asked.query}
    relations = {}
    for kernel, (build, _driver) in BUILDS.items():
        name = f"{NAMES[flavor]}-{kernel}"
        versions |= {name: [build], f"linux-headers-{kernel}": [build]}
        relations[name] = {build: depends(flavor, kernel)}
    meta = f"{NAMES[flavor]}-generic"
    build = BUILDS[NEW][0]
    versions |= {meta: [build], "linux-headers-generic": [build]}
    relations[meta] = {build: f"{NAMES[flavor]}-{NEW} (= {build}), {COMMON} (>= {BUILDS[NEW][1]})"}
    known = {name: relations.get(name, {}) for name in asked.query_dependencies}
    return driver_plan.plan(there, request, platform(KEY), versions, {}, dependencies=known)


def image(running: str, upcoming: str, flavor: str, **more) -> dict:
    """Describe a cloud image."""
    packages = {"linux-image-generic": BUILDS[upcoming][0], **more.pop("packages", {})}
    return host(KEY, (GPUS[flavor],), kernel=running, next_kernel=upcoming, packages=packages, **more)


# The running kernel, the next one, and what decides.
STATES = {
    "updated": (NEW, NEW, "precompiled", "prebuilt and signed by the distribution"),
    "outdated": (OLD, OLD, "dkms", f"the prebuilt module for kernel {OLD}, which boots next, is for driver 580.65.06"),
    "newest kernel waiting": (OLD, NEW, "precompiled", f"the driver works after a reboot into {NEW}"),
    "older kernel waiting": (OLD, MIDDLE, "dkms", "is for driver 580.82.07, but the archive"),
}


@pytest.mark.parametrize("flavor", ["open", "proprietary"])
@pytest.mark.parametrize("state", STATES)
def test_modules_of_the_next_kernel_decide(flavor, state):
    running, upcoming, build, reason = STATES[state]
    result = plan(image(running, upcoming, flavor), {}, flavor)
    assert (result.errors, result.module_build, result.version) == ([], build, "580.95.05")
    kernels = [NEW] if build == "precompiled" else []
    install = result.todo.transaction.install
    modules = [item for item in install if item.startswith(NAMES[flavor]) and "-generic=6" in item]
    expected = [f"{NAMES[flavor]}-{kernel}={BUILDS[kernel][0]}" for kernel in kernels]
    meta = [f"{NAMES[flavor]}-generic={BUILDS[NEW][0]}"] if kernels else []
    assert sorted(modules) == sorted([*expected, *meta])
    assert f"{COMMON}=580.95.05-0ubuntu0.24.04.1" in install
    assert any(reason in text for text in result.reasons)


def test_the_driver_of_the_next_kernels_modules_comes_before_a_newer_one():
    result = plan(image(OLD, OLD, "open"), {}, "open", ("580.95.05", "580.65.06"))
    assert (result.errors, result.module_build, result.version) == ([], "precompiled", "580.65.06")
    assert f"{NAMES['open']}-{OLD}=6.8.0-60.63" in result.todo.transaction.install
    # Its kernel's meta package is no longer available, so an upgrade could bring a kernel without a module.
    assert "linux-image-generic" in result.todo.transaction.hold


REFUSALS = [
    ({"module_build": "precompiled"}, {}, ["is for driver 580.65.06", "only driver 580.95.05", "Upgrade the kernel"]),
    ({"module_build": "precompiled", "version": "580.95.05"}, {}, ["is for driver 580.65.06", "Upgrade the kernel"]),
    ({}, {"secure_boot": {"enabled": True}}, [
        f"Prebuilt modules cannot be used: the prebuilt module for kernel {OLD}, which boots next, ",
        "is for driver 580.65.06",
        ". DKMS cannot build modules, either: Secure Boot is enabled",
        ". To get usable prebuilt modules, upgrade the kernel and reboot first.",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "more", "words"), REFUSALS)
def test_an_outdated_image_is_refused_with_the_reason(request_, more, words):
    (error,) = plan(image(OLD, OLD, "open", **more), request_, "open").errors
    assert [word for word in words if word not in error] == []


def installed(flavor: str, driver: str, module: str, kernel: str = NEW) -> dict:
    """Describe a host with a driver, and with a module of another version for its kernel."""
    there = image(kernel, kernel, flavor, modules={kernel: module}, driver={"library": driver, "loaded": module})
    for name in resolve(image(kernel, kernel, flavor), {}, platform(KEY)).packages:
        version = BUILDS[kernel][0] if name.startswith("linux-modules") else f"{driver}-0ubuntu0.24.04.1"
        add_package(there, name, version)
    return there


def test_a_pair_that_does_not_work_is_not_converged():
    there = installed("proprietary", "580.95.05", "580.65.06", OLD)
    result = plan(there, {}, "proprietary")
    assert (result.errors, result.module_build) == ([], "dkms")
    assert "nvidia-dkms-580-server=580.95.05-0ubuntu0.24.04.1" in result.todo.transaction.install
    # A matching pair needs no query.
    assert driver_plan.plan(installed("proprietary", "580.95.05", "580.95.05"), {}, platform(KEY)).todo.query == []


@pytest.mark.parametrize("flavor", ["open", "proprietary"])
def test_prebuilt_modules_of_the_former_driver_are_removed_when_newer_ones_are_built(flavor):
    there = installed(flavor, "580.82.07", "580.82.07", MIDDLE)
    result = plan(there, {"minimum_version": "580.95.05"}, flavor)
    assert (result.errors, result.module_build, result.version) == ([], "dkms", "580.95.05")
    assert result.todo.transaction.purge == [f"{NAMES[flavor]}-{MIDDLE}"]
    kept = plan(there, {"module_build": "dkms"}, flavor, ("580.95.05", "580.82.07"))
    assert (kept.errors, kept.version, kept.todo.transaction.purge) == ([], "580.82.07", [])


def test_a_new_kernel_that_needs_a_newer_driver_is_reported():
    there = installed("open", "580.65.06", "580.65.06", OLD)
    there["kernel"]["next_boot"] = NEW
    there["kernel"]["kernels"].insert(0, {"release": NEW, "bootable": True, "headers": False, "nvidia_module": None})
    there["accelerators"]["nvidia"]["driver"]["on_disk_next"] = None
    (error,) = plan(there, {}, "open").errors
    assert f"the prebuilt module for kernel {NEW}, which boots next, is for driver 580.95.05" in error
    assert "Set nvidia_driver_version to 580.95.05" in error
    result = plan(there, {"version": "580.95.05"}, "open")
    assert (result.errors, result.module_build) == ([], "precompiled")
    # The modules of the old kernel require the old driver, so apt removes them.
    assert f"{NAMES['open']}-{OLD}" in result.todo.transaction.may_change


def test_modules_of_both_kernels_are_installed_if_one_driver_serves_them(monkeypatch):
    monkeypatch.setitem(BUILDS, MIDDLE, (BUILDS[MIDDLE][0], "580.95.05"))
    result = plan(image(MIDDLE, NEW, "open"), {}, "open")
    modules = [item for item in result.todo.transaction.install if item.startswith(NAMES["open"])]
    assert {item.partition("=")[0] for item in modules} == {
        f"{NAMES['open']}-{name}" for name in (MIDDLE, NEW, "generic")
    }


# --- holds of the kernel ---


HOLDS = [
    ({}, "open", NEW, ["linux-image-generic", f"{NAMES['open']}-generic"]),
    ({"hold": False}, "open", NEW, []),
    # DKMS builds the module of a kernel that comes with its headers.
    ({"module_build": "dkms"}, "open", NEW, []),
    # The archive no longer has the headers' meta package of this kernel.
    ({"module_build": "dkms"}, "open", OLD, ["linux-image-generic"]),
]


@pytest.mark.parametrize(("request_", "flavor", "kernel", "held"), HOLDS)
def test_kernel_is_held_if_an_upgrade_could_bring_one_without_module(request_, flavor, kernel, held):
    result = plan(image(kernel, kernel, flavor), request_, flavor)
    assert result.errors == []
    assert [name for name in result.todo.transaction.hold if name.startswith("linux-")] == held
    reasons = [reason for reason in result.reasons if "is held" in reason]
    command = "To upgrade it, release it first (apt-mark unhold linux-image-generic)"
    assert [reason for reason in reasons if command not in reason] == []
    assert len(reasons) == (1 if held else 0)


@pytest.mark.parametrize(
    ("request_", "kernel", "words"),
    [
        ({}, NEW, "a newer kernel may need a newer driver"),
        # The fallback to DKMS, without headers of later kernels.
        ({}, OLD, "linux-headers-generic is not installed, so DKMS could not build modules for a newer kernel"),
    ],
)
def test_the_reason_says_why_the_kernel_is_held(request_, kernel, words):
    (reason,) = [text for text in plan(image(kernel, kernel, "open"), request_, "open").reasons if "is held" in text]
    assert reason.startswith("kernel linux-image-generic is held: ")
    assert words in reason


RELEASE_FIRST = "The kernel is held. Run 'apt-mark unhold linux-image-generic' before you upgrade it."


@pytest.mark.parametrize("held", [["linux-image-generic"], []])
@pytest.mark.parametrize(
    ("request_", "more", "missing"),
    [
        # The module is for another driver.
        ({"module_build": "precompiled"}, {}, None),
        ({}, {"secure_boot": {"enabled": True}}, None),
        # The archive has no module, or no headers.
        ({"module_build": "precompiled"}, {}, f"{NAMES['open']}-{OLD}"),
        ({"module_build": "dkms"}, {}, f"linux-headers-{OLD}"),
    ],
)
def test_a_refusal_that_advises_to_upgrade_a_held_kernel_says_how(request_, more, missing, held):
    there = host(
        KEY,
        (A100,),
        kernel=OLD,
        packages={"linux-image-generic": "6.8.0-60.63", "linux-image-6.8.0-60-generic": "6.8.0-60.63"},
        held=[*held, "linux-image-6.8.0-60-generic"],
        **more,
    )
    if missing:
        asked = driver_plan.plan(there, request_, platform(KEY)).todo.query
        versions = {name: [] if name == missing else ["580.95.05-0ubuntu0.24.04.1"] for name in asked}
        (error,) = driver_plan.plan(there, request_, platform(KEY), versions, {}, dependencies={}).errors
        assert f"have no {missing}" in error
    else:
        (error,) = plan(there, request_, "open").errors
    assert "pgrade the kernel and reboot first" in error
    assert (RELEASE_FIRST in error) is bool(held)


def test_other_refusals_do_not_name_the_held_kernel():
    there = image(NEW, NEW, "open", held=["linux-image-generic"])
    (error,) = plan(there, {"source": "distribution", "version": "580.11.11"}, "open").errors
    assert "unhold" not in error


@pytest.mark.parametrize("request_", [{"hold": False}, {"module_build": "dkms"}])
def test_holds_of_the_kernel_are_released_when_no_longer_needed(request_):
    there = image(NEW, NEW, "open", packages={"linux-headers-generic": BUILDS[NEW][0]})
    there["packages"]["linux-image-generic"]["held"] = True
    assert "linux-image-generic" not in plan(there, request_, "open").todo.transaction.release
    record = json.dumps({"schema": 1, "holds": ["linux-image-generic"]})
    there["files"][owned.DRIVER_RECORD] = {"exists": True, "content": record, "mode": "0600"}
    assert "linux-image-generic" in plan(there, request_, "open").todo.transaction.release


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (depends("open", NEW), "580.95.05"),
        (depends("proprietary", OLD), "580.65.06"),
        (f"{COMMON} (>= 1:580.95.05-0ubuntu1)", "580.95.05"),
        ("linux-image-6.8.0-88-generic, nvidia-kernel-common-595-server (>= 595.84)", None),
        (f"{COMMON}", None),
        ("", None),
    ],
)
def test_driver_version_of_modules(text, version):
    assert kernel_packages.driver_version(text, COMMON) == version
