# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's branch: end of life, transitional packages, branches that a source lacks, first drivers of a GPU."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvlink5_boards
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    A100,
    B200,
    GB200,
    KERNELS,
    V100,
    host,
    offer,
    platform,
    remove_package,
    resolve,
)

B300, GB300, GB300_NEW, B200_NEW = "0x3182", "0x31c2", "0x31c3", "0x2909"
H200_NVL, GH200_144G, RTX_PRO_6000, RTX_6000D, RTX_PRO_4500 = "0x233b", "0x2348", "0x2bb5", "0x2bb9", "0x2c3a"

# --- end of life ---


def ended(reasons: list[str]) -> list[str]:
    return [reason for reason in reasons if "past its end of life" in reason]


@pytest.mark.parametrize(
    ("key", "request_", "words"),
    [
        ("el-9", {}, None),
        ("el-9", {"branch": "595"}, None),
        ("el-9", {"branch": "615"}, None),
        ("el-9", {"branch": "570"}, "branch 570 is past its end of life: NVIDIA ended its support in February 2026"),
        (
            "el-9",
            {"version": "610.57.04"},
            "branch 610 is past its end of life: NVIDIA ended its support in August",
        ),
        ("el-9", {"branch": "550"}, "branch 550 is past its end of life: NVIDIA ended its support. Supported branches"),
        (
            "ubuntu-24.04",
            {"branch": "535"},
            "branch 535 is past its end of life: NVIDIA ended its support in June",
        ),
        # The distribution maintains its only branch.
        ("debian-12", {}, "branch 535 is past its end of life"),
        ("debian-13", {}, "branch 550 is past its end of life"),
    ],
)
def test_end_of_life_is_a_reason(key, request_, words):
    result = resolve(host(key), request_, platform(key))
    assert result.errors == []
    assert [words in reason for reason in ended(result.reasons)] == ([True] if words else [])


@pytest.mark.parametrize("key", sorted(KERNELS))
def test_branches_past_their_end_of_life_are_only_installed_on_request(key):
    data = platform(key)
    for source in data["sources"]:
        result = resolve(host(key), {"source": source}, data)
        chosen = [result.branch, *result.alternative_branches]
        if not data["sources"][source].get("fixed"):
            assert [name for name in chosen if name in ("535", "550", "570", "610")] == [], source
            assert chosen[0] == ("595" if (key, source) == ("ubuntu-26.04", "nvidia") else "580")


@pytest.mark.parametrize("source", ["auto", "preinstalled"])
def test_installed_driver_past_its_end_of_life_is_kept(source):
    driver = {"library": "570.172.08", "loaded": "570.172.08", "kernel_module_flavor": "open"}
    result = resolve(host("el-9", driver=driver), {"source": source}, platform("el-9"))
    assert (result.errors, result.action, len(ended(result.reasons))) == ([], "adopt", 1)
    packages = dict.fromkeys(("nvidia-driver-cuda", "kmod-nvidia-open-dkms"), "3:570.172.08-1.el9")
    result = resolve(host("el-9", driver=driver, packages=packages), {"source": "nvidia"}, platform("el-9"))
    assert (result.errors, result.branch, len(ended(result.reasons))) == ([], "570", 1)


# --- branches that a source lacks ---


@pytest.mark.parametrize(
    ("branch", "gpu", "is_usable", "words"),
    [
        # Its drivers do not list the GPU, so a request for the branch would be refused, too.
        ("570", RTX_6000D, False, "no suitable branch for 0x2bb9 (Blackwell) with these settings. It provides 570."),
        # Past its end of life, so the role installs it only on request.
        ("570", A100, True, "Set nvidia_driver_branch to 570, or set another nvidia_driver_source."),
    ],
)
def test_refusal_advises_only_a_branch_that_can_be_requested(branch, gpu, is_usable, words):
    data = copy.deepcopy(platform("el-9"))
    data["sources"]["nvidia"]["branches"] = [branch]
    (error,) = resolve(host("el-9", (gpu,)), {"source": "nvidia"}, data).errors
    assert words in error
    requested = resolve(host("el-9", (gpu,)), {"source": "nvidia", "branch": branch}, data)
    assert (requested.errors == []) is is_usable


@pytest.mark.parametrize(
    ("key", "request_", "words"),
    [
        ("ubuntu-24.04", {"branch": "570"}, ["nvidia_driver_branch is 570", "transitional", "Request branch 580"]),
        ("ubuntu-22.04", {"version": "570.211.01"}, ["nvidia_driver_version is 570.211.01", "install branch 580"]),
        ("ubuntu-24.04", {"branch": "590"}, ["transitional", "Request branch 595"]),
        ("ubuntu-26.04", {"branch": "535"}, ["transitional", "Request branch 580"]),
        (
            "ubuntu-26.04",
            {"branch": "580", "source": "nvidia"},
            ["the oldest branch of source nvidia on this platform is 595"],
        ),
        ("ubuntu-24.04", {"branch": "615", "flavor": "proprietary"}, ["615 has no proprietary kernel modules", "595"]),
    ],
)
def test_branch_without_packages_is_refused(key, request_, words):
    (error,) = resolve(host(key), {"source": "distribution", **request_}, platform(key)).errors
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    ("key", "gpu", "request_", "expected"),
    [
        # Automatic: the source that has the branch.
        ("ubuntu-24.04", A100, {"branch": "570"}, "nvidia open 570"),
        ("ubuntu-24.04", A100, {"branch": "535"}, "distribution open 535"),
        ("ubuntu-24.04", A100, {"branch": "615"}, "distribution open 615"),
        ("ubuntu-24.04", A100, {"branch": "615", "flavor": "proprietary"}, "nvidia proprietary 615"),
        ("ubuntu-26.04", V100, {}, "distribution proprietary 580"),
        ("ubuntu-26.04", A100, {"source": "nvidia"}, "nvidia open 595"),
    ],
)
def test_source_that_has_the_branch_is_chosen(key, gpu, request_, expected):
    result = resolve(host(key, (gpu,)), request_, platform(key))
    got = f"{result.source} refused" if result.errors else f"{result.source} {result.flavor} {result.branch}"
    assert got == expected


# --- the first driver of a GPU ---

FIRST = [
    (H200_NVL, "565.57.01"),
    (GH200_144G, "565.57.01"),
    (RTX_PRO_6000, "575.57.08"),
    (B200, "570.86.15"),
    (B200_NEW, "570.86.15"),
    (GB200, "570.123.01"),
    (RTX_6000D, "580.82.07"),
    (RTX_PRO_4500, "580.142"),
    (B300, "580.82.07"),
    (GB300, "580.82.07"),
    (GB300_NEW, "580.82.07"),
]
BELOW = {"565.57.01": "550.163.01", "575.57.08": "570.211.01", "570.86.15": "570.80", "570.123.01": "570.86.15"}


@pytest.mark.parametrize(("gpu", "first"), FIRST)
def test_version_below_the_first_driver_of_a_gpu_is_refused(gpu, first):
    older = BELOW.get(first, "580.76.05")
    (error,) = resolve(host("el-9", (gpu,)), {"version": older}, platform("el-9")).errors
    for word in (f"nvidia_driver_version is {older}", f"{first} is the first driver that lists {gpu}", "or newer"):
        assert word in error
    assert resolve(host("el-9", (gpu,)), {"version": first}, platform("el-9")).errors == []


@pytest.mark.parametrize(
    ("gpu", "offered", "version"),
    [
        (B300, ("580.65.06", "580.82.07"), "580.82.07"),
        (B300, ("580.65.06", "580.76.05", "595.91.07"), "595.91.07"),
        (A100, ("580.65.06",), "580.65.06"),
        (RTX_PRO_4500, ("580.126.20",), None),
    ],
)
def test_available_version_lists_the_gpu(gpu, offered, version):
    there = host("el-9", (gpu,), headers=(KERNELS["el-9"],))
    query = driver_plan.plan(there, {}, platform("el-9")).todo.query
    available = offer(there, query, *offered)
    available["dkms"] = ["3.2.1-1"]
    streams = {"nvidia-driver": [f"{branch}-open" for branch in ("580", "595", "615")]}
    result = driver_plan.plan(there, {}, platform("el-9"), available, streams)
    if version is None:
        (error,) = result.errors
        assert "Branch 580 was chosen, and the GPUs need 580.142 or newer" in error
        return
    assert (result.errors, result.version) == ([], version)
    assert any("580.82.07 or newer: the first driver" in reason for reason in result.reasons) is (
        version == "580.82.07"
    )


@pytest.mark.parametrize(("installed", "gpu", "kept"), [("580.65.06", B300, True), ("570.211.01", B300, False),
                                                        ("550.163.01", H200_NVL, True)])  # fmt: skip
def test_installed_driver_below_the_first_one_is_kept_within_its_branch(installed, gpu, kept):
    driver = {"library": installed, "loaded": installed, "kernel_module_flavor": "open"}
    result = resolve(host("el-9", (gpu,), driver=driver), {}, platform("el-9"))
    assert (result.errors == []) is kept
    if kept:
        assert any(f"driver {installed} is already installed and is kept" in reason for reason in result.reasons)
    else:
        assert f"{installed} does not support {gpu}" in result.errors[0]


def test_installed_packages_below_the_first_driver_are_not_replaced():
    packages = dict.fromkeys(resolve(host("el-9", (B300,)), {}, platform("el-9")).packages, "3:580.65.06-1.el9")
    there = host("el-9", (B300,), packages={**packages, "dkms": "3.2.1-1"}, driver={"library": "580.65.06"},
                 headers=(KERNELS["el-9"],))  # fmt: skip
    result = driver_plan.plan(there, {}, platform("el-9"))
    assert (result.errors, result.todo.query, result.version) == ([], [], "580.65.06")
    assert any("580.65.06 is already installed and is kept" in reason for reason in result.reasons)


@pytest.mark.parametrize("gpu", [B200_NEW, GB300_NEW])
def test_newer_ids_are_on_boards_with_nvlink_5(gpu):
    assert nvlink5_boards.has_nvlink5(gpu)
    assert nvlink5_boards.spans_machines(gpu) is (gpu == GB300_NEW)


# --- DKMS ---

DKMS = [
    # NVIDIA's repository has a newer dkms than the distribution: it is requested by its version.
    ("debian-12", {}, "580.95.05", ["3.0.10-8+deb12u1", "1:3.2.1-1"], "dkms=1:3.2.1-1"),
    ("ubuntu-22.04", {}, "580.95.05", ["2.8.7-2ubuntu2.2", "1:3.2.1-1"], "dkms=1:3.2.1-1"),
    ("debian-12", {"dkms": "3.0.10-8+deb12u1"}, "580.95.05", ["3.0.10-8+deb12u1", "1:3.2.1-1"], "dkms=1:3.2.1-1"),
    ("debian-13", {"dkms": "3.2.2-1"}, "580.95.05", ["3.2.2-1"], None),
    ("el-9", {}, "580.95.05", ["3.2.1-1.el9"], "dkms"),
    # Older drivers work with any dkms.
    ("debian-12", {}, "570.133.20", ["3.0.10-8+deb12u1", "1:3.2.1-1"], "dkms"),
]


def with_dkms(key: str, packages: dict, version: str, dkms: list[str]):
    there = host(key, packages=packages, headers=(KERNELS[key],))
    request = {"source": "nvidia", "branch": version[:3]}
    query = driver_plan.plan(there, request, platform(key)).todo.query
    available = {**offer(there, query, f"{version}-1"), "dkms": dkms, "epel-release": []}
    return driver_plan.plan(there, request, platform(key), available)


@pytest.mark.parametrize(("key", "packages", "version", "dkms", "installed"), DKMS)
def test_dkms_is_recent_enough_for_the_driver(key, packages, version, dkms, installed):
    result = with_dkms(key, packages, version, dkms)
    assert result.errors == []
    wanted = [item for item in result.todo.transaction.install if item.partition("=")[0] == "dkms"]
    assert wanted == ([installed] if installed else [])


@pytest.mark.parametrize(
    ("key", "packages", "dkms"),
    [
        ("el-9", {}, ["3.0.12-1.el9"]),
        ("el-10", {"dkms": "3.1.0-1.el10"}, ["3.1.0-1.el10"]),
        ("debian-12", {}, ["3.0.10-8"]),
    ],
)
def test_old_dkms_is_refused(key, packages, dkms):
    (error,) = with_dkms(key, packages, "580.95.05", dkms).errors
    for word in ("needs dkms 3.1.8 or newer", f"have only {dkms[0].partition('-')[0]}", "mirror"):
        assert word in error
    assert ("EPEL" in error) is key.startswith("el-")


@pytest.mark.parametrize(
    ("key", "flavor", "version", "name"),
    [
        ("el-9", "open", "570.133.20", "nvidia-open/570.133.20"),
        ("el-9", "open", "570.148.08", "nvidia/570.148.08"),
        ("el-9", "proprietary", "570.133.20", "nvidia/570.133.20"),
        ("debian-12", "open", "570.133.20", "nvidia/570.133.20"),
    ],
)
def test_modules_are_registered_with_their_name_in_dkms(key, flavor, version, name):
    request = {"source": "nvidia", "flavor": flavor, "version": version}
    packages = dict.fromkeys(resolve(host(key), request, platform(key)).packages, f"{version}-1")
    there = host(key, packages={**packages, "dkms": "3.2.1-1"}, headers=(KERNELS[key],), driver={"library": version})
    assert driver_plan.plan(there, request, platform(key)).todo.register == name


# --- components of the archive ---


@pytest.mark.parametrize(
    ("gpu", "nvidia", "request_", "components"),
    [
        (A100, {}, {}, []),
        (A100, {"nvswitches": ["0000:83:00.0"]}, {}, ["multiverse"]),
        (A100, {}, {"branch": "615"}, ["multiverse"]),
        (A100, {}, {"imex": True}, ["multiverse"]),
    ],
)
@pytest.mark.parametrize("key", ["ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"])
def test_multiverse_is_enabled_only_if_needed(key, gpu, nvidia, request_, components):
    there = host(key, (gpu,), nvidia=nvidia, apt={"missing_components": ["multiverse"]})
    result = driver_plan.plan(there, {"source": "distribution", **request_}, platform(key))
    assert (result.errors, result.todo.transaction.archive_components) == ([], components)


def test_missing_imex_of_ubuntus_archive_is_no_error():
    there = host("ubuntu-24.04", (GB200,), headers=(KERNELS["ubuntu-24.04"],))
    for request, missing in (({}, False), ({"imex": True}, True)):
        query = driver_plan.plan(there, request, platform("ubuntu-24.04")).todo.query
        available = offer(there, query, "580.95.05-0ubuntu0.24.04.1")
        available = {name: [] if "imex" in name else versions for name, versions in available.items()}
        result = driver_plan.plan(there, request, platform("ubuntu-24.04"), available)
        assert ["no package nvidia-imex-580" in error for error in result.errors] == ([True] if missing else [])
        assert "nvidia-imex.service" not in result.todo.services or missing


# --- SLES ---


@pytest.mark.parametrize(
    ("branch", "signed", "kmp"),
    [
        ("580", "580.126.09", "nvidia-open-driver-G06-signed-cuda-kmp-default"),
        ("595", "595.71.05", "nvidia-open-driver-G07-signed-cuda-kmp-default"),
    ],
)
def test_libraries_have_the_version_of_suses_signed_modules(branch, signed, kmp):
    there = host("sles-15")
    query = driver_plan.plan(there, {"branch": branch}, platform("sles-15")).todo.query
    available = {**offer(there, query, f"{signed}-0", f"{branch}.178.04-0"), kmp: [f"{signed}_k6.4.0_150700.51-1.2"]}
    result = driver_plan.plan(there, {"branch": branch}, platform("sles-15"), available)
    assert (result.errors, result.version) == ([], signed)
    wanted = {f"{kmp}={signed}_k6.4.0_150700.51-1.2", f"nvidia-compute-{kmp.split('-')[3]}={signed}-0"}
    assert wanted <= set(result.todo.transaction.install)


def transitional_host() -> dict:
    """Describe Ubuntu 24.04 with driver 570 of Ubuntu's archive, whose packages of branch 570 now install 580."""
    key, version = "ubuntu-24.04", "570.195.03"
    names = resolve(host(key), {"source": "distribution", "module_build": "dkms"}, platform(key)).packages
    driver = {name.replace("580", "570"): f"{version}-0ubuntu0.24.04.1" for name in names if "nvidia" in name}
    return host(
        key,
        headers=(KERNELS[key],),
        modules={KERNELS[key]: version},
        driver={"loaded": version, "library": version, "kernel_module_flavor": "open"},
        packages={**driver, "dkms": "3.0.11-1ubuntu13"},
        modules_loaded=["nvidia", "nvidia_uvm"],
    )


def test_installed_transitional_branch_stays():
    result = driver_plan.plan(transitional_host(), {}, platform("ubuntu-24.04"))
    assert (result.errors, result.branch, result.todo.transaction.install) == ([], "570", [])


def test_minimum_above_an_installed_transitional_branch_moves_to_its_successor():
    there, request = transitional_host(), {"minimum_version": "570.200.00", "module_build": "dkms"}
    query = driver_plan.plan(there, request, platform("ubuntu-24.04")).todo.query
    available = offer(there, query, "570.211.01-0ubuntu0.24.04.1", "580.126.20-0ubuntu0.24.04.2")
    result = driver_plan.plan(there, request, platform("ubuntu-24.04"), available)
    assert (result.errors, result.version) == ([], "580.126.20")
    assert not [item for item in result.todo.transaction.install if "570" in item]


def test_incomplete_transitional_branch_names_its_successor():
    there = transitional_host()
    remove_package(there, "nvidia-compute-utils-570-server")
    result = driver_plan.plan(there, {}, platform("ubuntu-24.04"))
    assert len(result.errors) == 1
    assert "lacks nvidia-compute-utils-570-server" in result.errors[0]
    assert result.errors[0].endswith("Set nvidia_driver_branch to 580.")
