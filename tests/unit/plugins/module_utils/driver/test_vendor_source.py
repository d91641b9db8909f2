# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver of the distribution's vendor as a source: signed modules of Red Hat and AlmaLinux, Amazon's mirror.

The data of the platforms names the sources of the names. test_vendor_drivers.py has the drivers that others installed.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    B200,
    H100,
    T4,
    V100,
    host,
    origin,
    platform,
    remove_package,
)

SECURE_BOOT = {"enabled": True, "trusted_signers": ["Red Hat Enterprise Linux kernel signing key"]}
OLD, NEW, NEXT = "580.105.08", "580.159.04", "595.58.03"
USER_SPACE = (
    *("nvidia-driver-cuda", "nvidia-driver-cuda-libs", "libnvidia-ml", "libnvidia-cfg", "nvidia-kmod-common"),
    *("nvidia-modprobe", "nvidia-persistenced"),
)
OF_SWITCHES = ("nvidia-fabricmanager", "libnvidia-nscq")
FIRST, SECOND = "6.12.0-124.20.1", "6.12.0-124.27.1"
RHEL, ALMA, AMAZON = "RHEL 10", "AlmaLinux 10", "Amazon Linux 2023"
SYSTEMS: dict[str, tuple[str, dict, str]] = {
    RHEL: ("el-10", {"id": "rhel", "version": "10.1"}, f"{FIRST}.el10_1.x86_64"),
    ALMA: ("el-10", {"id": "almalinux", "version": "10.1"}, f"{FIRST}.el10_1.x86_64"),
    "AlmaLinux 9": ("el-9", {"id": "almalinux", "version": "9.7"}, "5.14.0-611.5.1.el9_7.x86_64"),
    AMAZON: ("amazon-2023", {"id": "amzn", "version": "2023"}, "6.1.155-176.282.amzn2023.x86_64"),
}
ALMA_RELEASE, ALMA_MODULES = "almalinux-release-nvidia-driver", ("kmod-nvidia-open", "nvidia-open-kmod")
PLUGIN = {"python3-dnf-plugin-versionlock": "4.3.0-16.el9"}
Repository = dict[str, list[str]]


def on(name: str, gpu: str = H100, **changes: Any) -> dict:
    """Describe a host with Secure Boot that trusts only the vendor's key."""
    key, system, kernel = SYSTEMS[name]
    changes = {"os": system, "kernel": kernel, "secure_boot": SECURE_BOOT, "packages": PLUGIN, **changes}
    return host(key, (gpu,), **changes)


def red_hat(*builds: tuple[str, str], user_space: tuple[str, ...] = (OLD, NEW, NEXT)) -> Repository:
    """Return Red Hat's repositories with modules, each for a driver and a kernel."""
    modules = {f"kmod-nvidia-open-{driver}-{kernel}": [f"3:{driver}-3.el10_1"] for driver, kernel in builds}
    return {**modules, **of_user_space(*user_space)}


def of_user_space(*drivers: str) -> Repository:
    return {name: [f"3:{driver}-1.el10" for driver in drivers] for name in (*USER_SPACE, *OF_SWITCHES)}


def almalinux(*modules: str) -> Repository:
    """Return the repositories that AlmaLinux' release package enables."""
    builds = [f"3:{driver}-2.el10_1" for driver in modules]
    return {**dict.fromkeys(ALMA_MODULES, builds), **of_user_space(OLD, NEW, NEXT), ALMA_RELEASE: ["10-5.el10"]}


def almalinux_builds(*builds: str) -> Repository:
    """Return AlmaLinux's repositories with these builds of the modules."""
    found = [f"3:{build}.el10_1" for build in builds]
    return {**almalinux(), **dict.fromkeys(ALMA_MODULES, found)}


def of_nvidia() -> Repository:
    dkms = {"dkms": ["3.2.2-1.el10"], "epel-release": ["10-6.el10"], "kmod-nvidia-open-dkms": [f"3:{NEW}-1.el10"]}
    return {**dkms, **of_user_space(NEW)}


def ask(names: list[str], repository: Repository) -> Repository:
    """Answer a query as dnf does: a pattern gives the packages that it matches."""
    found = {name: repository.get(name, []) for name in names if "*" not in name and "[" not in name}
    matches = [name for name in repository for item in names if fnmatch.fnmatchcase(name, item)]
    kernels = [kernel.rpartition(".")[0] for _key, _system, kernel in SYSTEMS.values()]
    headers = {name: kernels for name in names if "-devel" in name}
    return {**found, **headers, **{name: repository[name] for name in matches}}


def plan(there: dict, request: dict, repository: Repository, streams: dict | None = None) -> DriverPlan:
    """Plan as the site does: query the repositories of each source until a plan has its answer."""
    data = platform(there["os"]["key"], there["os"])
    rejected: dict[str, str] = {}
    for _attempt in range(4):
        first = driver_plan.plan(there, request, data, rejected_sources=rejected)
        if first.errors or not first.todo.query:
            return first
        # The role adds NVIDIA's repository before it queries it.
        is_of_nvidia = first.source == "nvidia"
        versions = ask(first.todo.query, {**repository, **(of_nvidia() if is_of_nvidia else {})})
        offered = {"nvidia-driver": ["580-open"]} if is_of_nvidia else streams or {}
        result = driver_plan.plan(there, request, data, versions, offered, rejected_sources=rejected)
        if result.rejected_sources == rejected:
            return result
        rejected = result.rejected_sources
    raise AssertionError(f"the plans reject the sources {rejected} without end")


def modules(result: DriverPlan) -> list[str]:
    return sorted(name for name in result.todo.transaction.install if "kmod" in name and "common" not in name)


def versions(result: DriverPlan) -> set[str]:
    return {item.partition("=3:")[2].partition("-")[0] for item in result.todo.transaction.install if "=3:" in item}


# --- the choice of the source -----------------------------------------------------------------------------------------

CHOSEN = [
    # The host, its GPU, the request, the repositories, the modules and the driver.
    (RHEL, H100, {}, red_hat((OLD, FIRST)), [f"kmod-nvidia-open-{OLD}-{FIRST}=3:{OLD}-3.el10_1"], OLD),
    (RHEL, T4, {}, red_hat((OLD, FIRST), (NEW, FIRST)), [f"kmod-nvidia-open-{NEW}-{FIRST}=3:{NEW}-3.el10_1"], NEW),
    (RHEL, B200, {"source": "distribution"}, red_hat((OLD, FIRST), (OLD, SECOND)),
     [f"kmod-nvidia-open-{OLD}-{FIRST}=3:{OLD}-3.el10_1"], OLD),
    (RHEL, H100, {"version": OLD}, red_hat((OLD, FIRST), (NEW, FIRST)),
     [f"kmod-nvidia-open-{OLD}-{FIRST}=3:{OLD}-3.el10_1"], OLD),
    # Without modules of the default branch, its libraries are useless.
    (RHEL, H100, {}, red_hat((NEXT, FIRST)), [f"kmod-nvidia-open-{NEXT}-{FIRST}=3:{NEXT}-3.el10_1"], NEXT),
    (ALMA, H100, {}, almalinux(NEXT), [f"{name}=3:{NEXT}-2.el10_1" for name in ALMA_MODULES], NEXT),
    (ALMA, H100, {"branch": "580"}, almalinux(OLD, NEXT), [f"{name}=3:{OLD}-2.el10_1" for name in ALMA_MODULES], OLD),
    ("AlmaLinux 9", T4, {}, almalinux(NEW), [f"{name}=3:{NEW}-2.el10_1" for name in ALMA_MODULES], NEW),
]  # fmt: skip


@pytest.mark.parametrize("case", CHOSEN, ids=str)
def test_signed_modules_are_installed_with_the_libraries_of_their_version(case):
    name, gpu, request, repository, expected, version = case
    result = plan(on(name, gpu), request, repository)
    assert (result.errors, result.source, result.module_build, result.flavor) == (
        [],
        "distribution",
        "precompiled",
        "open",
    )
    assert (modules(result), result.version, versions(result)) == (expected, version, {version})
    installed = {item.partition("=")[0] for item in result.todo.transaction.install}
    assert {*USER_SPACE} <= installed
    assert not {"dkms", "kmod-nvidia-open-dkms", "kernel-devel"} & installed
    assert result.todo.transaction.repositories == []
    # Red Hat's modules have the driver's version in their names, so that no upgrade replaces them. AlmaLinux's need a
    # lock: the libraries of the locked version require them.
    held = {*result.todo.transaction.hold}
    assert {*USER_SPACE} <= held
    assert {item for item in held if "kmod" in item and "common" not in item and not item.startswith("~")} == (
        set() if name == RHEL else {*ALMA_MODULES}
    )
    assert any("Run this role again after an upgrade of the kernel" in reason for reason in result.reasons)


@pytest.mark.parametrize("name", [RHEL, ALMA, "AlmaLinux 9"])
@pytest.mark.parametrize(
    ("changes", "request_"),
    [
        ({"secure_boot": {"enabled": False}}, {}),
        ({"secure_boot": {"enabled": True, "trusted_signers": ["DKMS module signing key"]}}, {}),
        ({}, {"secure_boot_key_enrolled": True}),
    ],
)
def test_auto_stays_with_nvidia_where_the_kernel_loads_its_modules(name, changes, request_):
    result = plan(on(name, **changes), request_, {**red_hat((OLD, FIRST)), **almalinux(NEXT)})
    assert (result.errors, result.source, result.module_build) == ([], "nvidia", "dkms")


def test_auto_names_the_reason():
    result = plan(on(RHEL), {}, red_hat((OLD, FIRST)))
    assert (
        "source distribution: Secure Boot is enabled, and Red Hat signs kernel modules that this host's kernel trusts"
        in result.reasons
    )


# --- the kernel -------------------------------------------------------------------------------------------------------

WAITING = [
    # The modules on offer, the modules to install, the driver, and whether the running kernel stays without a module.
    (((OLD, FIRST), (OLD, SECOND)), (FIRST, SECOND), OLD, False),
    (((OLD, FIRST), (NEW, SECOND)), (SECOND,), NEW, True),
    (((NEW, SECOND),), (SECOND,), NEW, True),
    (((OLD, FIRST), (NEW, FIRST), (OLD, SECOND)), (FIRST, SECOND), OLD, False),
]


@pytest.mark.parametrize("case", WAITING, ids=str)
def test_kernel_that_boots_next_decides_the_version(case):
    builds, kernels, version, is_dropped = case
    result = plan(on(RHEL, next_kernel=f"{SECOND}.el10_1.x86_64"), {}, red_hat(*builds))
    assert (result.errors, result.version) == ([], version)
    assert modules(result) == [f"kmod-nvidia-open-{version}-{kernel}=3:{version}-3.el10_1" for kernel in kernels]
    assert any("no module for the running kernel" in reason for reason in result.reasons) == is_dropped


UNSERVED = [
    (RHEL, {"kernel": "6.12.0-124.20.1.el10_1.x86_64+rt"}),
    (RHEL, {"kernel": "6.12.0-124.20.1.rt14.5.el10_1.x86_64"}),
    (ALMA, {"kernel": "6.12.0-100.28.2.el10uek.x86_64"}),
]


@pytest.mark.parametrize("case", UNSERVED, ids=str)
def test_other_kernels_have_no_signed_modules(case):
    name, changes = case
    (error,) = plan(on(name, **changes), {}, {**red_hat((OLD, FIRST)), **almalinux(NEXT)}).errors
    assert "Secure Boot is enabled" in error
    assert "signs kernel modules" not in error
    (error,) = plan(on(name, **changes), {"source": "distribution"}, red_hat((OLD, FIRST))).errors
    assert "Source distribution provides only prebuilt modules, but none for kernel" in error


def test_version_without_a_module_for_the_next_kernel_is_refused():
    result = plan(on(RHEL), {"source": "distribution", "version": NEW}, red_hat((OLD, FIRST), (NEW, SECOND)))
    (error,) = result.errors
    assert f"kernel {FIRST}.el10_1.x86_64, which boots next, is for driver {OLD}" in error
    assert "module_build" not in error
    assert "subscription-manager repos --enable" in error


# --- missing repositories ---------------------------------------------------------------------------------------------

SUBSCRIPTION = "subscription-manager repos --enable rhel-10-for-x86_64-extensions-rpms --enable"
MISSING = [
    (RHEL, {}, SUBSCRIPTION, True),
    (RHEL, {"source": "distribution"}, SUBSCRIPTION, False),
    (ALMA, {}, f"dnf install {ALMA_RELEASE}", True),
    (ALMA, {"source": "distribution"}, f"dnf install {ALMA_RELEASE}", False),
    (RHEL, {"source": "distribution", "module_build": "precompiled"}, SUBSCRIPTION, False),
    (AMAZON, {"source": "distribution"}, "dnf install nvidia-release", False),
]


@pytest.mark.parametrize("case", MISSING, ids=str)
def test_refusal_names_the_command_that_enables_the_repositories(case):
    name, request, command, is_mok_offered = case
    result = plan(on(name, secure_boot={"enabled": name != AMAZON}), request, {})
    (error,) = result.errors
    assert command in error
    assert "nvidia_driver_module_build" not in error
    assert ("mokutil --import" in error) == is_mok_offered
    if is_mok_offered:
        assert error.index(command) < error.index("mokutil --import")


RELEASES = [
    (ALMA, {}, ALMA_RELEASE, almalinux(NEXT), NEXT),
    (ALMA, {"source": "distribution"}, ALMA_RELEASE, almalinux(NEXT), NEXT),
    (AMAZON, {"source": "distribution"}, "nvidia-release", {**of_nvidia(), "nvidia-release": ["2023-1"]}, NEW),
]


@pytest.mark.parametrize("case", RELEASES, ids=str)
def test_release_package_comes_before_the_choice_of_the_version(case):
    name, request, release, repository, version = case
    there = on(name, secure_boot={"enabled": name != AMAZON}, headers=(SYSTEMS[name][2],))
    first = plan(there, request, {release: repository[release], "dkms": ["3.2.2-1"]})
    assert (first.errors, first.source) == ([], "distribution")
    assert (first.todo.prerequisites, first.todo.plans_again, first.version) == ([release], True, None)
    # The host after the release package.
    there["packages"][release] = {"version": "1", "held": False, "arch": "noarch"}
    there["installed_packages"][release] = "1 noarch"
    second = plan(there, request, repository)
    assert (second.errors, second.source, second.todo.prerequisites) == ([], "distribution", [])
    assert (second.todo.plans_again, second.version, versions(second)) == (False, version, {version})


def test_enabled_repository_needs_no_release_package():
    result = plan(on(ALMA), {}, almalinux(NEXT))
    assert (result.errors, result.todo.prerequisites, result.todo.plans_again) == ([], [], False)


@pytest.mark.parametrize(("offered", "stream"), [(["580-open", "595-open"], ["nvidia-driver:595-open"]), ([], [])])
def test_stream_of_nvidias_repository_is_enabled_if_it_exists(offered, stream):
    result = plan(on("AlmaLinux 9"), {}, almalinux(NEXT), {"nvidia-driver": offered})
    assert (result.errors, result.version, result.todo.transaction.module_streams) == ([], NEXT, stream)


# --- refusals ---------------------------------------------------------------------------------------------------------

REFUSED = [
    (RHEL, {"os": {"id": "rhel", "version": "10.0"}}, H100, "knows no other packages of this distribution's vendor"),
    (RHEL, {"os": {"id": "rocky", "version": "10.1"}}, H100, "knows no other packages of this distribution's vendor"),
    (RHEL, {}, V100, "has no proprietary kernel modules"),
    (ALMA, {}, V100, "has no proprietary kernel modules"),
    (RHEL, {"arch": "aarch64"}, H100, "no driver from source distribution for the architecture aarch64"),
    (AMAZON, {"arch": "aarch64"}, H100, "no driver from source distribution for the architecture aarch64"),
]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_distribution_without_such_modules_is_refused(case):
    name, changes, gpu, expected = case
    (error,) = plan(on(name, gpu, **changes), {"source": "distribution"}, red_hat((OLD, FIRST))).errors
    assert expected in error


UNFIT = [(V100, {}), (H100, {"flavor": "proprietary"}), (H100, {"module_build": "dkms"})]


@pytest.mark.parametrize("name", [RHEL, ALMA])
@pytest.mark.parametrize("case", UNFIT, ids=str)
def test_auto_offers_no_signed_modules_that_do_not_fit(name, case):
    gpu, request = case
    (error,) = plan(on(name, gpu), request, {**red_hat((OLD, FIRST)), **almalinux(NEXT)}).errors
    assert "mokutil --import" in error
    assert "signs kernel modules" not in error


@pytest.mark.parametrize(
    ("name", "request_", "is_offered"),
    [(RHEL, {"source": "nvidia"}, True), (ALMA, {"source": "nvidia", "branch": "580"}, True), (AMAZON, {}, False)],
)
def test_secure_boot_refusal_of_nvidia_names_the_source_with_signed_modules(name, request_, is_offered):
    (error,) = plan(on(name), request_, {}).errors
    assert "Secure Boot is enabled" in error
    assert ("trusts without another key: set nvidia_driver_source to distribution" in error) == is_offered


@pytest.mark.parametrize("driver", ["610.43.02", "620.10.01"])
def test_auto_names_the_branch_that_the_vendor_has(driver):
    branch, repository = driver[:3], {**almalinux(driver), **of_user_space(driver)}
    (error,) = plan(on(ALMA), {}, repository).errors
    advice = f"set nvidia_driver_branch to {branch}. Then run the role again"
    assert f"only for driver {driver}; to use these modules, {advice}" in error
    result = plan(on(ALMA), {"branch": branch}, repository)
    assert (result.errors, result.source, result.version) == ([], "distribution", driver)


EXCLUDED = [
    ({"version": OLD}, f"set nvidia_driver_version to {NEW}"),
    ({"minimum_version": NEXT}, f"set nvidia_driver_minimum_version to {NEW} or lower"),
    ({"branch": "595"}, "set nvidia_driver_branch to 580"),
]


@pytest.mark.parametrize(("request_", "remedy"), EXCLUDED, ids=str)
def test_auto_names_the_setting_that_excludes_the_vendors_driver(request_, remedy):
    (error,) = plan(on(ALMA), request_, almalinux(NEW)).errors
    assert f"only for driver {NEW}; to use these modules, {remedy}. Then run the role again" in error


def test_auto_takes_the_branch_whose_user_space_is_complete():
    there = on(RHEL, nvidia={"nvswitches": ["0000:83:00.0"]})
    repository = {**red_hat((OLD, FIRST), (NEXT, FIRST)), **dict.fromkeys(OF_SWITCHES, (f"3:{NEXT}-1.el10",))}
    for request in ({}, {"source": "distribution"}):
        result = plan(there, request, repository)
        assert (result.errors, result.source, result.version) == ([], "distribution", NEXT)


def test_missing_fabric_manager_of_the_vendor_is_named():
    there = on(RHEL, nvidia={"nvswitches": ["0000:83:00.0"]})
    complete = red_hat((OLD, FIRST))
    lacking = {name: builds for name, builds in complete.items() if name not in OF_SWITCHES}
    for request in ({}, {"source": "distribution"}):
        (error,) = plan(there, request, lacking).errors
        assert all(name in error for name in OF_SWITCHES)
        assert "nable a repository that has" in error
        # Neither source is named as the way out without its condition.
        assert "set nvidia_driver_source to distribution" not in error
        assert "key" in error
        assert plan(there, request, complete).errors == []


# --- later runs -------------------------------------------------------------------------------------------------------

ORIGINS = {
    RHEL: origin("Red Hat, Inc.", "rhel-10-for-x86_64-extensions-rpms", "199e2f91fd431d51"),
    ALMA: origin("AlmaLinux", "almalinux-nvidia", "2ae81e8aced7258b"),
    AMAZON: origin("NVIDIA", "amazonlinux-nvidia", "9cd0a493d42d0685"),
}
INSTALLED = {
    RHEL: {f"kmod-nvidia-open-{OLD}-{FIRST}": f"3:{OLD}-3.el10_1"},
    ALMA: dict.fromkeys(ALMA_MODULES, f"3:{OLD}-2.el10_1"),
    AMAZON: {"dkms": "3.2.2-1", "kmod-nvidia-open-dkms": f"3:{OLD}-1.amzn2023", "nvidia-release": "2023-1"},
}


def converged(name: str, *, is_recorded: bool = True, **changes: Any) -> dict:
    """Describe a host on which this role installed the vendor's driver, or the user."""
    kernel = SYSTEMS[name][2]
    driver = {**INSTALLED[name], **dict.fromkeys(USER_SPACE, f"3:{OLD}-1.el10")}
    record = json.dumps({"packages": sorted(driver), "requested": sorted(driver), "files": {}, "holds": sorted(driver)})
    held = [*USER_SPACE, *(() if name == RHEL else INSTALLED[name])]
    settings: dict[str, Any] = {
        "packages": {**driver, **PLUGIN},
        "held": [item for item in held if item not in ("dkms", "nvidia-release")],
        "package_origins": {item: [ORIGINS[name]] for item in driver},
        "driver": {"loaded": OLD, "kernel_module_flavor": "open", "library": OLD, "on_disk_flavor": "open"},
        "modules": {kernel: OLD},
        "modules_loaded": ["nvidia", "nvidia_uvm"],
        "headers": (kernel,),
        **changes,
    }
    if is_recorded:
        settings["files"] = {owned.DRIVER_RECORD: {"exists": True, "content": record}}
    if name == AMAZON:
        settings["secure_boot"] = {"enabled": False}
    return on(name, T4, **settings)


@pytest.mark.parametrize("source", ["auto", "distribution"])
@pytest.mark.parametrize("name", INSTALLED)
def test_second_run_changes_nothing(name, source):
    result = plan(converged(name), {"source": source}, {})
    assert (result.errors, result.source, result.action, result.todo.query) == ([], "distribution", "install", [])
    assert (result.todo.transaction.install, result.todo.transaction.remove, result.todo.prerequisites) == ([], [], [])
    assert not result.applies["packages"]


@pytest.mark.parametrize("name", INSTALLED)
def test_driver_that_the_user_installed_is_adopted(name):
    result = plan(converged(name, is_recorded=False), {}, {})
    assert (result.errors, result.source, result.action) == ([], "preinstalled", "adopt")


@pytest.mark.parametrize("name", INSTALLED)
def test_installed_vendor_driver_is_not_mixed_with_nvidias(name):
    (error,) = plan(converged(name), {"source": "nvidia"}, {}).errors
    assert "driver packages from source distribution are installed" in error


@pytest.mark.parametrize("name", INSTALLED)
def test_absent_removes_the_vendor_driver_of_the_role(name):
    result = driver_removal.plan(converged(name), platform(SYSTEMS[name][0], converged(name)["os"]))
    assert result["errors"] == []
    others = {"dkms", "nvidia-release"}
    assert {*INSTALLED[name], *USER_SPACE} - others <= {*result["packages"]}


def interrupted(name: str, left: Callable[[str], bool]) -> dict:
    """Describe a host on which the role's first installation was killed, with the packages that it left."""
    host = converged(name)
    asked = sorted({*INSTALLED[name], *USER_SPACE})
    before = ["bash", "rpm"]
    record = {"packages": [], "requested": [], "files": {}, "holds": [], "asked": asked, "pending": before}
    host["files"][owned.DRIVER_RECORD] = {"exists": True, "content": json.dumps(record)}
    for names in (host["packages"], host["installed_packages"]):
        for package in [item for item in names if item in asked and not left(item)]:
            del names[package]
    return host


@pytest.mark.parametrize("left", [lambda _name: True, lambda name: "kmod" not in name], ids=["all", "libraries"])
@pytest.mark.parametrize("source", ["auto", "distribution"])
@pytest.mark.parametrize("name", [name for name in INSTALLED if name != AMAZON])
def test_an_interrupted_installation_is_completed(name, source, left):
    offers = red_hat((OLD, FIRST), (NEW, FIRST)) if name == RHEL else almalinux(OLD, NEW)
    result = plan(interrupted(name, left), {"source": source}, offers)
    assert (result.errors, result.source, result.version) == ([], "distribution", OLD)


LATER = [
    # The request, the modules on offer for the new kernel, the modules to install, the removed ones, and the error.
    ({}, (OLD,), [(OLD, SECOND)], [], None),
    ({}, (OLD, NEW), [(OLD, SECOND)], [], None),
    ({}, (NEW,), None, [], f"Set nvidia_driver_version to {NEW}"),
    ({"version": NEW}, (NEW,), [(NEW, SECOND)], [(OLD, FIRST)], None),
    ({}, (), None, [], SUBSCRIPTION),
]


@pytest.mark.parametrize("case", LATER, ids=str)
def test_upgraded_kernel_gets_a_module_of_the_installed_driver(case):
    request, drivers, expected, removed, message = case
    there = converged(RHEL, next_kernel=f"{SECOND}.el10_1.x86_64")
    result = plan(there, request, red_hat((OLD, FIRST), *((driver, SECOND) for driver in drivers)))
    if message:
        (error,) = result.errors
        assert message in error
        return
    names = [f"kmod-nvidia-open-{driver}-{kernel}=3:{driver}-3.el10_1" for driver, kernel in expected]
    assert (result.errors, modules(result)) == ([], names)
    assert result.todo.transaction.remove == [f"kmod-nvidia-open-{driver}-{kernel}" for driver, kernel in removed]


REBUILT = [
    # The builds of AlmaLinux's modules on offer, the request, the modules to install, and the error.
    ((f"{OLD}-2", f"{OLD}-3"), {}, f"{OLD}-3", None),
    ((f"{OLD}-3", f"{NEW}-1"), {}, f"{OLD}-3", None),
    ((f"{OLD}-2", f"{NEW}-1"), {"version": NEW}, f"{NEW}-1", None),
    ((f"{OLD}-2",), {}, None, f"no newer build for driver {OLD}"),
    ((f"{NEW}-1",), {}, None, f"Set nvidia_driver_version to {NEW}"),
]


@pytest.mark.parametrize("case", REBUILT, ids=str)
def test_upgraded_kernel_with_other_symbols_gets_rebuilt_modules(case):
    builds, request, expected, message = case
    there = converged(ALMA, next_kernel=f"{SECOND}.el10_1.x86_64")
    result = plan(there, request, almalinux_builds(*builds))
    if message:
        (error,) = result.errors
        assert message in error
        assert f"{SECOND}.el10_1.x86_64" in error
        return
    work = result.todo.transaction
    assert (result.errors, modules(result)) == ([], [f"{name}=3:{expected}.el10_1" for name in ALMA_MODULES])
    assert ({*ALMA_MODULES} <= {*work.release}, {*ALMA_MODULES} <= {*work.hold}) == (True, True)


def test_modules_of_another_driver_than_the_libraries_are_replaced_once():
    there = converged(ALMA, next_kernel=f"{SECOND}.el10_1.x86_64")
    for name in ALMA_MODULES:
        there["packages"][name]["version"] = f"3:{NEW}-1.el10_1"
        there["installed_packages"][name] = f"3:{NEW}-1.el10_1 x86_64"
    result = plan(there, {}, almalinux_builds(f"{OLD}-3"))
    assert (result.errors, modules(result)) == ([], [f"{name}=3:{OLD}-3.el10_1" for name in ALMA_MODULES])


def test_modules_for_the_next_kernel_are_not_replaced():
    kernels = {f"{kernel}.el10_1.x86_64": OLD for kernel in (FIRST, SECOND)}
    there = converged(ALMA, next_kernel=f"{SECOND}.el10_1.x86_64", modules=kernels)
    result = plan(there, {}, almalinux_builds(f"{OLD}-3"))
    assert (result.errors, result.todo.query, result.applies["packages"]) == ([], [], False)


def test_incomplete_installation_gets_the_missing_packages():
    there = converged(RHEL)
    remove_package(there, "nvidia-persistenced")
    result = plan(there, {}, red_hat((OLD, FIRST), (NEW, FIRST)))
    assert (result.errors, result.version) == ([], OLD)
    assert result.todo.transaction.install == [f"nvidia-persistenced=3:{OLD}-1.el10"]
