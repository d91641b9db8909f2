# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The open modules that SUSE builds and signs: they are not in NVIDIA's repository, and lag behind it."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    H100,
    KERNELS,
    V100,
    host,
    origin,
    platform,
)

DEFAULT, AZURE = KERNELS["sles-15"], "6.4.0-150700.20.18-azure"
SIGNED = {name: f"nvidia-open-driver-{name}-signed-cuda-kmp-default" for name in ("G06", "G07")}
SUSE, NVIDIA = origin("SUSE LLC <https://www.suse.com/>"), origin("NVIDIA", None, "9cd0a493d42d0685")
OLD, MIDDLE, NEW = "580.82.07", "580.95.05", "580.105.08"


def generation(version: str) -> str:
    return "G07" if version >= "590" else "G06"


def signed_version(version: str) -> str:
    return f"{version}_k6.4.0_150700.53.19-150700.3.40.1"


def offered(name: str, signed: tuple[str, ...], drivers: tuple[str, ...]) -> list[str]:
    """Return the versions of a package: SUSE's channels have the signed modules of kernel default."""
    if "-signed-" in name:
        return [signed_version(version) for version in signed if name == SIGNED[generation(version)]]
    if name.startswith("kernel-"):
        return [f"{kernel.rpartition('-')[0]}.1" for kernel in (DEFAULT, AZURE)]
    if name == "dkms":
        return ["3.2.2-1"]
    return [
        f"{version}-1" for version in drivers if name.rpartition("-")[2] not in {"G06", "G07"} - {generation(version)}
    ]


def plan(
    there: dict, request: dict, signed: tuple[str, ...], drivers: tuple[str, ...], **more: list[str]
) -> DriverPlan:
    """Plan with SUSE's channels, which have these signed modules, and NVIDIA's repository, which has these drivers."""
    asked = driver_plan.plan(there, request, platform("sles-15")).todo.query
    known = {name: offered(name, signed, drivers) for name in asked}
    known.update({name.replace("_", "-"): versions for name, versions in more.items()})
    return driver_plan.plan(there, request, platform("sles-15"), known, {})


BUILT = [
    # The kernel, the request, the signed modules, the other packages, the driver, and the reason for DKMS.
    (DEFAULT, {}, (MIDDLE,), (MIDDLE, NEW), MIDDLE, None),
    (DEFAULT, {}, (MIDDLE, NEW), (MIDDLE, NEW), NEW, None),
    (DEFAULT, {"branch": "595"}, ("595.71.05",), ("595.71.05",), "595.71.05", None),
    # The host is not registered, or its mirror lacks the channel.
    (DEFAULT, {}, (), (MIDDLE, NEW), NEW, f"the repositories have no {SIGNED['G06']}"),
    (DEFAULT, {"branch": "595"}, (), ("595.71.05",), "595.71.05", f"the repositories have no {SIGNED['G07']}"),
    # SUSE built modules for kernel azure up to service pack 6.
    (AZURE, {}, (NEW,), (NEW,), NEW, "the repositories have no nvidia-open-driver-G06-signed-cuda-kmp-azure"),
    (AZURE, {"branch": "595"}, ("595.71.05",), ("595.71.05",), "595.71.05",
     "the repositories have no nvidia-open-driver-G07-signed-cuda-kmp-azure"),
    # NVIDIA's repository no longer has the driver of the signed modules.
    (DEFAULT, {}, (OLD,), (MIDDLE, NEW), NEW,
     f"the prebuilt module for kernel {DEFAULT}, which boots next, is for driver {OLD}, but the repository "
     f"https://developer.download.nvidia.com/compute/cuda/repos/sles15/x86_64 has only driver {MIDDLE}, {NEW}"),
    (DEFAULT, {"minimum_version": "580.100"}, (MIDDLE,), (MIDDLE, NEW), NEW, f"is for driver {MIDDLE}, but"),
]  # fmt: skip


@pytest.mark.parametrize("case", BUILT, ids=str)
def test_dkms_builds_what_suse_does_not_have(case):
    kernel, request, signed, drivers, version, why = case
    result = plan(host("sles-15", (H100,), kernel=kernel), request, signed, drivers)
    build = "dkms" if why else "precompiled"
    assert (result.errors, result.module_build, result.version) == ([], build, version)
    install = result.todo.transaction.install
    assert f"nvidia-compute-{generation(version)}={version}-1" in install
    if why is None:
        assert f"{SIGNED[generation(version)]}={signed_version(version)}" in install
    else:
        flavor = kernel.rpartition("-")[2]
        assert {"dkms", f"nvidia-open-driver-{generation(version)}={version}-1"} <= set(install)
        assert any(item.startswith(f"kernel-{flavor}-devel=") for item in install)
        assert any(text.startswith("dkms modules: ") and why in text for text in result.reasons)


def test_one_package_has_the_modules_of_both_kernels():
    there = host("sles-15", (H100,), kernel="6.4.0-150700.53.6-default", next_kernel=DEFAULT)
    result = plan(there, {}, (NEW,), (NEW,))
    assert (result.errors, result.module_build, result.version) == ([], "precompiled", NEW)
    assert f"{SIGNED['G06']}={signed_version(NEW)}" in result.todo.transaction.install


CHANNELS = "SUSE's update channels"
REFUSALS = [
    # The request, what the host differs in, the signed modules, the drivers, words of the error, and absent words.
    ({"module_build": "precompiled"}, {}, (), (NEW,), [SIGNED["G06"], CHANNELS, "auto or dkms"],
     ["developer.download.nvidia.com"]),
    ({"module_build": "precompiled"}, {"kernel": AZURE}, (NEW,), (NEW,), ["kmp-azure", CHANNELS, "auto or dkms"], []),
    ({"module_build": "precompiled"}, {}, (OLD,), (NEW,), [f"is for driver {OLD}", f"only driver {NEW}", CHANNELS], []),
    ({}, {"secure_boot": {"enabled": True}}, (), (NEW,), [SIGNED["G06"], CHANNELS, "Secure Boot is enabled"], []),
    # Branch 570 has no modules for DKMS.
    ({"branch": "570"}, {}, (), ("570.211.01",), [SIGNED["G06"], CHANNELS, "no open modules of branch 570 for DKMS"],
     ["nvidia_driver_module_build is dkms", "auto or dkms"]),
    ({"branch": "570"}, {}, ("570.172.08",), ("570.211.01",), ["is for driver 570.172.08", "of branch 570 for DKMS"],
     ["nvidia_driver_module_build is dkms"]),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS, ids=str)
def test_refusal_names_the_repository_of_the_modules(case):
    request, changes, signed, drivers, words, absent = case
    result = plan(host("sles-15", (H100,), **changes), request, signed, drivers)
    (error,) = result.errors
    assert [word for word in words if word not in error] == []
    assert [word for word in absent if word in error] == []


def test_modules_of_nvidia_are_not_said_to_be_in_the_channels_of_suse():
    result = plan(host("sles-15", (V100,)), {"branch": "570"}, (), ("570.211.01",), nvidia_driver_G06_kmp_default=[])
    (error,) = result.errors
    assert "nvidia-driver-G06-kmp-default" in error
    assert "SUSE" not in error


def test_packages_without_a_common_version_are_listed():
    mixed = {"nvidia_modprobe": [f"{NEW}-1"], "libnvidia_ml": [f"{NEW}-1"]}
    (error,) = plan(host("sles-15", (H100,)), {"module_build": "dkms"}, (), (MIDDLE,), **mixed).errors
    assert f"{MIDDLE} lacks libnvidia-ml, nvidia-modprobe; {NEW} lacks libnvidia-cfg, " in error


# --- other packages with modules: SUSE's variant without "cuda", NVIDIA's own of former branches ---


OTHERS = (
    "nvidia-open-driver-G06-signed-kmp-default",
    "nvidia-open-driver-G06-signed-kmp-64kb",
    "nvidia-open-driver-G06-kmp-default",
)
LIBRARIES = ("nvidia-common-G06", "nvidia-compute-G06", "nvidia-compute-utils-G06", "nvidia-modprobe", "libnvidia-ml")


def with_modules(name: str, libraries: tuple[str, ...], **more) -> dict:
    """Describe a host with modules of another package, and with these libraries."""
    packages = {name: signed_version(MIDDLE), **dict.fromkeys(libraries, f"{MIDDLE}-1")}
    driver = {"loaded": MIDDLE, "kernel_module_flavor": "open", "on_disk_flavor": "open"}
    return host(
        "sles-15",
        (H100,),
        packages=packages,
        package_origins={name: [SUSE], **{library: [NVIDIA] for library in libraries}},
        driver={**driver, "library": MIDDLE if libraries else None},
        modules={DEFAULT: MIDDLE},
        modules_loaded=["nvidia", "nvidia_uvm"],
        **more,
    )


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("secure_boot", [False, True])
def test_working_driver_with_other_modules_is_adopted(name, secure_boot):
    there = with_modules(name, LIBRARIES, secure_boot={"enabled": secure_boot})
    result = driver_plan.plan(there, {}, platform("sles-15"))
    assert (result.errors, result.action, result.source, result.version) == ([], "adopt", "preinstalled", MIDDLE)
    work = result.todo.transaction
    assert {option for option, value in vars(work).items() if value} == {"hold"}
    # zypper would update the modules without the libraries.
    assert work.hold == sorted({name, *LIBRARIES})
    assert any(name in text for text in result.reasons)


@pytest.mark.parametrize("name", OTHERS)
def test_other_source_does_not_replace_other_modules(name):
    (error,) = driver_plan.plan(with_modules(name, LIBRARIES), {"source": "nvidia"}, platform("sles-15")).errors
    assert f"kernel modules from other packages are installed ({name}" in error


@pytest.mark.parametrize("request_", [{}, {"module_build": "dkms"}])
@pytest.mark.parametrize("name", OTHERS)
def test_modules_without_libraries_are_replaced(name, request_):
    """zypper installs SUSE's modules without "cuda" because the hardware matches, and no libraries with them."""
    result = plan(with_modules(name, ()), request_, (NEW,), (NEW,))
    assert (result.errors, result.action, result.source, result.version) == ([], "install", "nvidia", NEW)
    work = result.todo.transaction
    assert (work.remove, work.may_change) == ([name], [name])
    modules = "nvidia-open-driver-G06" if request_ else SIGNED["G06"]
    assert any(item.startswith(f"{modules}={NEW}") for item in work.install)


def test_modules_without_libraries_are_not_adopted():
    there = with_modules(OTHERS[0], ())
    (error,) = driver_plan.plan(there, {"source": "preinstalled"}, platform("sles-15")).errors
    assert "kernel modules are installed, but no libnvidia-ml.so.1" in error


def test_other_modules_without_libraries_do_not_decide_the_branch():
    there = with_modules(OTHERS[0], ())
    there["packages"][OTHERS[0]]["version"] = signed_version("570.172.08")
    there["accelerators"]["nvidia"]["driver"].update(
        loaded="570.172.08", on_disk="570.172.08", on_disk_next="570.172.08"
    )
    result = plan(there, {}, (NEW,), (NEW,))
    assert (result.errors, result.version, result.todo.transaction.remove) == ([], NEW, [OTHERS[0]])
