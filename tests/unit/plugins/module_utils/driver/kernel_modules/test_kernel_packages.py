# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The headers of the host's kernels, and meta packages that bring the headers or prebuilt modules of later kernels."""

from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    A100,
    KERNELS,
    V100,
    all_files,
    host,
    offer,
    platform,
    resolve,
)

U24 = KERNELS["ubuntu-24.04"]
MODULES = "linux-modules-nvidia-580-server-open"
ARCHIVE = "580.95.05-0ubuntu0.24.04.1"


def offers(key: str, request: dict, version: str, **more) -> dict:
    """Offer this version of every queried package."""
    todo = driver_plan.plan(host(key, **more), request, platform(key)).todo
    return offer(host(key, **more), todo.query, version)


UBUNTU_METAS = [
    ("generic", "6.8.0-88.89", "6.8.0-88-generic"),
    ("generic-hwe-24.04", "6.14.0-33.33~24.04.1", "6.14.0-33-generic"),
    ("generic-hwe-24.04-edge", "6.17.0-5.5~24.04.1", "6.17.0-5-generic"),
    ("aws", "6.14.0-1016.16~24.04.1", "6.14.0-1016-aws"),
    ("aws-lts-24.04", "6.8.0-1035.37", "6.8.0-1035-aws"),
    ("azure-6.14", "6.14.0-1012.12~24.04.1", "6.14.0-1012-azure"),
    ("oem-24.04b", "6.11.0-1016.16", "6.11.0-1016-oem"),
    ("virtual", "6.8.0-88.89", "6.8.0-88-generic"),
]


@pytest.mark.parametrize(("name", "version", "kernel"), UBUNTU_METAS)
def test_header_meta_packages_are_installed(name, version, kernel):
    more = {"packages": {f"linux-image-{name}": version}, "kernel": kernel}
    request = {"source": "nvidia"}
    meta = f"linux-headers-{name}"
    available = offers("ubuntu-24.04", request, "580.95.05-1ubuntu1", **more)
    result = driver_plan.plan(
        host("ubuntu-24.04", **more), request, platform("ubuntu-24.04"), {**available, meta: [version, "6.99.0-1.1"]}
    )
    assert f"{meta}={version}" in result.todo.transaction.install
    assert not any("meta package" in reason for reason in result.reasons)
    result = driver_plan.plan(
        host("ubuntu-24.04", **more), request, platform("ubuntu-24.04"), {**available, meta: ["6.99.0-1.1"]}
    )
    assert not any(entry.startswith(f"{meta}=") for entry in result.todo.transaction.install)
    assert any(f"{meta} is not installed" in reason and version in reason for reason in result.reasons)


MODULE_METAS = [
    ("ubuntu-24.04", A100, ("generic", "6.8.0-88.89"), ["6.8.0-88.88", "6.8.0-88.88+1", "6.8.0-90.90"],
     "linux-modules-nvidia-580-server-open-generic=6.8.0-88.88+1"),
    ("ubuntu-24.04", A100, ("virtual", "6.8.0-88.89"), ["6.8.0-88.88"],
     "linux-modules-nvidia-580-server-open-generic=6.8.0-88.88"),
    ("ubuntu-24.04", V100, ("generic-hwe-24.04", "6.14.0-33.33~24.04.1"), ["6.14.0-33.33~24.04.1+1"],
     "linux-modules-nvidia-580-server-generic-hwe-24.04=6.14.0-33.33~24.04.1+1"),
    ("ubuntu-22.04", A100, ("generic", "5.15.0.161.159"), ["5.15.0-161.171"],
     "linux-modules-nvidia-580-server-open-generic=5.15.0-161.171"),
    ("ubuntu-24.04", A100, ("generic", "6.8.0-88.89"), ["6.8.0-90.90"], None),
]  # fmt: skip


@pytest.mark.parametrize(("key", "gpu", "image", "offered", "expected"), MODULE_METAS)
def test_module_meta_packages_are_installed(key, gpu, image, offered, expected):
    more = {"packages": {f"linux-image-{image[0]}": image[1]}, "gpus": (gpu,)}
    if "hwe" in image[0]:
        more["kernel"] = "6.14.0-33-generic"
    available = offers(key, {}, "580.95.05-0ubuntu0.24.04.1", **more)
    (meta,) = [name for name in available if re.match(r"linux-modules-nvidia-580-server-(open-)?[a-z]", name)
               and not re.search(r"-\d+\.\d+\.\d+-", name)]  # fmt: skip
    result = driver_plan.plan(host(key, **more), {}, platform(key), {**available, meta: offered})
    assert (result.errors, result.module_build) == ([], "precompiled")
    there = [entry for entry in result.todo.transaction.install if entry.startswith(f"{meta}=")]
    assert there == ([expected] if expected else [])
    assert any(f"{meta} is not installed" in reason for reason in result.reasons) is (expected is None)


@pytest.mark.parametrize(
    ("key", "kernel", "image", "meta"),
    [
        ("el-9", "5.14.0-570.el9.x86_64", "kernel-core", "kernel-devel-matched"),
        ("el-9", "5.14.0-570.el9.aarch64+64k", "kernel-64k-core", "kernel-64k-devel-matched"),
        ("el-10", "6.12.0-55.el10_0.x86_64+rt", "kernel-rt-core", "kernel-rt-devel-matched"),
    ],
)
def test_meta_packages_match_next_kernel(key, kernel, image, meta):
    version = kernel.partition(".x86_64")[0].partition(".aarch64")[0]
    more = {"packages": {image: "5.14.0-503.el9"}, "kernel": kernel}
    available = offers(key, {}, "580.95.05-1", **more)
    available[meta] = ["5.14.0-999.el9", version, "5.14.0-503.el9"]
    result = driver_plan.plan(host(key, **more), {}, platform(key), available)
    assert [entry for entry in result.todo.transaction.install if "matched" in entry] == [f"{meta}={version}"]
    available[meta] = ["5.14.0-999.el9"]
    result = driver_plan.plan(host(key, **more), {}, platform(key), available)
    assert not any("matched" in entry for entry in result.todo.transaction.install)


@pytest.mark.parametrize(
    ("key", "kernel", "reason"),
    [
        (
            "amazon-2023",
            KERNELS["amazon-2023"],
            "no meta package installs the headers for later kernels: none is known",
        ),
        (
            "el-9",
            "5.15.0-300.163.18.el9uek.x86_64",
            "no meta package installs the headers for later kernels: none is known",
        ),
        (
            "debian-12",
            KERNELS["debian-12"],
            "no meta package installs the headers for later kernels: no meta package of this kernel",
        ),
        (
            "ubuntu-24.04",
            U24,
            "no meta package installs the prebuilt modules for later kernels: no meta package of this kernel",
        ),
        ("sles-15", KERNELS["sles-15"], None),
    ],
)
def test_missing_meta_package_is_reported(key, kernel, reason):
    version = "535.309.01-0+deb12u1" if key == "debian-12" else "580.95.05-1"
    result = driver_plan.plan(host(key, kernel=kernel), {}, platform(key), offers(key, {}, version, kernel=kernel))
    assert result.errors == []
    assert any("meta package" in text for text in result.reasons) is (reason is not None)
    assert reason is None or any(reason in text for text in result.reasons)


def with_the_vendors_meta() -> dict:
    """Describe a converged Ubuntu host with the meta package of prebuilt modules."""
    names = ["linux-modules-nvidia-580-server-open-{}", "linux-objects-nvidia-580-server-open-{}"]
    modules = dict.fromkeys([*(name.format(U24) for name in names), names[0].format("generic")], "6.8.0-88.88")
    modules[f"linux-signatures-nvidia-{U24}"] = modules["linux-modules-nvidia-fs-generic"] = "6.8.0-88.88"
    names = resolve(host("ubuntu-24.04"), {}, platform("ubuntu-24.04")).packages
    packages = {**dict.fromkeys(names, ARCHIVE), **modules, "linux-image-generic": "6.8.0-88.89"}
    driver = {"library": "580.95.05", "loaded": "580.95.05"}
    return host("ubuntu-24.04", packages=packages, modules={U24: "580.95.05"}, driver=driver)


def test_prebuilt_modules_of_other_branch_are_replaced():
    there, request = with_the_vendors_meta(), {"branch": "595"}
    query = driver_plan.plan(there, request, platform("ubuntu-24.04")).todo.query
    available = {name: ["595.91.07-0ubuntu0.24.04.1"] for name in query}
    available[f"linux-modules-nvidia-595-server-open-{U24}"] = ["6.8.0-88.88+1"]
    available["linux-modules-nvidia-595-server-open-generic"] = ["6.8.0-88.88+1"]
    result = driver_plan.plan(there, request, platform("ubuntu-24.04"), available)
    todo, of_modules = result.todo, {name for name in there["packages"] if name.startswith("linux-")}
    assert result.errors == []
    assert of_modules - set(todo.transaction.may_change) == {"linux-image-generic", "linux-modules-nvidia-fs-generic"}
    assert "linux-modules-nvidia-580-server-open-generic" in todo.transaction.purge
    assert "linux-modules-nvidia-595-server-open-generic=6.8.0-88.88+1" in todo.transaction.install


@pytest.mark.parametrize(("version", "build"), [("580.178.04", "6.8.0-88.88+2"), ("580.126.09", "6.8.0-88.88+1")])
def test_prebuilt_modules_are_updated_with_driver(version, build):
    there, request = with_the_vendors_meta(), {"version": version}
    builds = {"580.178.04": "6.8.0-88.88+2", "580.126.09": "6.8.0-88.88+1", "580.95.05": "6.8.0-88.88"}
    todo = driver_plan.plan(there, request, platform("ubuntu-24.04")).todo
    available = {name: [f"{text}-0ubuntu0.24.04.1" for text in builds] for name in todo.query}
    available[f"{MODULES}-{U24}"] = list(builds.values())
    available[f"{MODULES}-generic"] = ["6.8.0-90.90", *builds.values()]
    relations = {
        f"{MODULES}-{U24}": {
            one: f"nvidia-kernel-common-580-server (<= {driver}-1), nvidia-kernel-common-580-server (>= {driver})"
            for driver, one in builds.items()
        },
        f"{MODULES}-generic": {one: f"{MODULES}-{U24} (= {one})" for one in builds.values()},
    }
    todo = driver_plan.plan(there, request, platform("ubuntu-24.04"), available, {}, dependencies=relations).todo
    assert f"nvidia-kernel-common-580-server={version}-0ubuntu0.24.04.1" in todo.transaction.install
    modules = sorted(entry for entry in todo.transaction.install if entry.startswith("linux-"))
    assert modules == [f"{MODULES}-{U24}={build}", f"{MODULES}-generic={build}"]
    assert (todo.transaction.remove, todo.transaction.purge) == ([], [])


@pytest.mark.parametrize("key", ["ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"])
def test_unattended_upgrades_update_prebuilt_modules(key):
    files = all_files(driver_plan.plan(host(key), {}, platform(key)))
    (content,) = [file["content"] for file in files if file["path"] == owned.DRIVER_UNATTENDED_UPGRADES]
    patterns = re.findall(r'^ +"(.*)";$', content, re.MULTILINE)
    kept = {
        name: any(re.match(pattern, name) for pattern in patterns)
        for name in (f"{MODULES}-generic", "linux-image-generic", "nvidia-kernel-common-580-server",
                     "libnvidia-compute-580-server", "nvidia-firmware-580-server-580.95.05", "nvidia-container-toolkit")
    }  # fmt: skip
    assert list(kept.values()) == [False, False, True, True, True, False]


# --- headers ---


def test_headers_of_running_and_next_kernel_are_requested():
    there = host("debian-12", kernel="6.1.0-47-amd64", next_kernel="6.1.0-56-cloud-amd64")
    result = resolve(there, {}, platform("debian-12"))
    assert result.kernel_packages == ["linux-headers-6.1.0-47-amd64", "linux-headers-6.1.0-56-cloud-amd64"]
    there = host("amazon-2023", kernel="6.1.100-1.amzn2023.x86_64", next_kernel="6.12.40-1.amzn2023.x86_64")
    result = resolve(there, {}, platform("amazon-2023"))
    assert result.kernel_packages == [
        "kernel-devel-6.1.100-1.amzn2023.x86_64",
        "kernel-modules-extra-6.1.100-1.amzn2023.x86_64",
        "kernel6.12-devel-6.12.40-1.amzn2023.x86_64",
        "kernel6.12-modules-extra-6.12.40-1.amzn2023.x86_64",
    ]


def test_installed_headers_are_not_requested():
    there = host("debian-12", headers=("6.1.0-47-amd64",))
    assert resolve(there, {}, platform("debian-12")).kernel_packages == []


def test_custom_kernel_needs_headers():
    there = host("debian-12", kernel="6.18.0-mine")
    (error,) = resolve(there, {}, platform("debian-12")).errors
    for word in ("6.18.0-mine", "/lib/modules/6.18.0-mine/build", "nvidia_driver_kernel_packages"):
        assert word in error
    request = {"kernel_packages": ["linux-headers-mine"]}
    assert resolve(there, request, platform("debian-12")).kernel_packages == ["linux-headers-mine"]


EL9, EL9_NEXT, EL9_64K = "5.14.0-570.el9.x86_64", "5.14.0-611.el9.x86_64", "5.14.0-570.el9.aarch64+64k"
BARE = [
    ((EL9, EL9), [], ["kernel-devel"], [f"kernel-devel-{EL9}"]),
    ((EL9, EL9), [EL9], ["kernel-devel"], []),
    ((EL9, EL9_NEXT), [EL9], ["kernel-devel", "mine"], [f"kernel-devel-{EL9_NEXT}", "mine"]),
    ((EL9, EL9_NEXT), [], ["kernel-devel"], [f"kernel-devel-{EL9}", f"kernel-devel-{EL9_NEXT}"]),
    ((EL9_64K, EL9_64K), [], ["kernel-64k-devel"], ["kernel-64k-devel-5.14.0-570.el9.aarch64"]),
    # Packages of another kernel, or full names: as requested.
    ((EL9, EL9), [EL9], ["kernel-rt-devel", "kernel-devel-5.14.0-427.el9"],
     ["kernel-rt-devel", "kernel-devel-5.14.0-427.el9"]),
]  # fmt: skip


@pytest.mark.parametrize(("releases", "headers", "named", "expected"), BARE)
def test_requested_headers_match_kernels(releases, headers, named, expected):
    there = host("el-9", kernel=releases[0], next_kernel=releases[1], headers=headers)
    result = resolve(there, {"kernel_packages": named}, platform("el-9"))
    assert (result.errors, result.kernel_packages) == ([], expected)
    assert {name for some in result.headers.values() for name in some} == set(expected) - set(named)
    there = host("debian-12", kernel="6.18.0-mine", headers=("6.18.0-mine",))
    assert resolve(there, {}, platform("debian-12")).errors == []


def test_dkms_gets_the_headers_of_the_kernel_on_sles():
    there = host("sles-15", (V100,))
    query = driver_plan.plan(there, {}, platform("sles-15")).todo.query
    available = {
        **offer(there, query, "580.95.05-0"),
        "dkms": ["3.2.1-1"],
        "kernel-default-devel": ["6.4.0-150700.53.19.1", "6.4.0-150700.53.22.1"],
    }
    result = driver_plan.plan(there, {}, platform("sles-15"), available)
    wanted = ("kernel-default-devel=6.4.0-150700.53.19.1", "nvidia-driver-G06=580.95.05-0")
    assert result.errors == []
    assert set(wanted) <= set(result.todo.transaction.install)


def test_zypper_installs_the_headers_of_the_next_kernel_only():
    there = host("sles-15", (V100,), kernel="6.4.0-150700.53.19-default", next_kernel="6.4.0-150700.53.22-default")
    result = driver_plan.plan(there, {}, platform("sles-15"))
    headers = [item for item in result.todo.transaction.install if item.startswith("kernel-default-devel")]
    assert len(headers) == 1
    assert "6.4.0-150700.53.22" in headers[0]
    assert any("works after a reboot into 6.4.0-150700.53.22-default" in reason for reason in result.reasons)
