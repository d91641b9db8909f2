# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import version as driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    A100,
    FROM_NVIDIA,
    KERNELS,
    V100,
    all_files,
    host,
    offer,
    platform,
    resolve,
)


def full(key: str, version: str) -> str:
    """Return the full package version on the platform."""
    if key.startswith("ubuntu"):
        return f"{version}-1ubuntu1"
    # NVIDIA's packages for Enterprise Linux have an epoch.
    return f"3:{version}-1" if key.startswith("el-") else f"{version}-1"


def driver_of(key: str, version: str, request: dict, gpus: tuple[str, ...] = (A100,)) -> dict:
    """Describe a host with a complete driver of this version."""
    bare = host(key, gpus, headers=(KERNELS[key],))
    wanted = resolve(bare, {**request, "version": version}, platform(key))
    names = [*wanted.packages, *wanted.kernel_packages]
    module, _colon, stream = (wanted.stream or "").partition(":")
    there = host(
        key,
        gpus,
        headers=(KERNELS[key],),
        packages=dict.fromkeys(names, full(key, version)),
        held=names,
        modules={KERNELS[key]: version},
        driver={"library": version, "loaded": version},
        modules_loaded=["nvidia", "nvidia_uvm"],
        module_streams={module: stream} if stream else {},
        package_origins={name: [FROM_NVIDIA] for name in names if wanted.source == "nvidia"},
    )
    for file in all_files(driver_plan.plan(there, request, platform(key))):
        there["files"][file["path"]] = {"exists": True, "content": file["content"], "mode": "0644"}
    return there


def asked(there: dict, request: dict, *versions: str, without: tuple[str, ...] = ()) -> DriverPlan:
    """Plan twice, as the role does. The repositories have every package of each version's branch."""
    key = there["os"]["key"]
    todo = driver_plan.plan(there, request, platform(key)).todo
    available = offer(there, todo.query)
    rest = {name: value for name, value in request.items() if name != "minimum_version"}
    for version in versions:
        for build in ("auto", "dkms"):
            wish = {**rest, "branch": version[:3], "module_build": build}
            result = resolve(host(key, tuple(there["accelerators"]["nvidia"]["device_ids"])), wish, platform(key))
            for name in {*result.packages, *result.kernel_packages} & set(available):
                if name not in without and full(key, version) not in available[name]:
                    available[name].append(full(key, version))
    streams = {
        module: [f"{version[:3]}-{kind}" for version in versions for kind in ("open", "dkms")]
        for module in todo.query_streams
    }
    return driver_plan.plan(there, request, platform(key), available, streams)


NVIDIA = ("570.172.08", "580.178.04", "595.91.07")
BARE = [
    ("el-9", "580.200", NVIDIA, "595.91.07"),
    ("el-9", "580.200", (*NVIDIA, "615.71.09"), "595.91.07"),
    # Branch 610 is past its end of life.
    ("el-9", "595.100", (*NVIDIA, "610.57.04", "615.71.09"), "615.71.09"),
    ("el-9", "595.100", (*NVIDIA, "615.71.09"), "615.71.09"),
    ("el-9", "580", NVIDIA, "580.178.04"),
    # The source's default satisfies the minimum, and comes before a lower branch.
    ("el-9", "570.100", NVIDIA, "580.178.04"),
    ("sles-15", "580.200", NVIDIA, "595.91.07"),
    ("debian-12", "580.200", NVIDIA, "595.91.07"),
    # Packages of the next branch have other names.
    ("ubuntu-24.04", "580.200", NVIDIA, "595.91.07"),
]


@pytest.mark.parametrize(("key", "minimum", "offered", "version"), BARE)
def test_branch_below_minimum_is_rejected(key, minimum, offered, version):
    result = asked(host(key), {"source": "nvidia", "minimum_version": minimum}, *offered)
    assert (result.errors, result.version, result.branch) == ([], version, version[:3])
    assert any(f"{version}-1" in entry for entry in result.todo.transaction.install)
    first = minimum[:3] if minimum > "580" else "580"
    is_rejected = any(f"no version {minimum} or newer of branch {first}" in reason for reason in result.reasons)
    assert is_rejected is (version[:3] != first)


def test_prebuilt_modules_of_alternative_branch_are_installed():
    prebuilt = f"linux-modules-nvidia-595-server-open-{KERNELS['ubuntu-24.04']}"
    request = {"minimum_version": "580.200"}
    result = asked(host("ubuntu-24.04"), request, *NVIDIA)
    assert (result.errors, result.version, result.module_build) == ([], "595.91.07", "precompiled")
    assert prebuilt in result.todo.transaction.install
    result = asked(host("ubuntu-24.04"), request, *NVIDIA, without=(prebuilt,))
    assert (result.errors, result.version, result.module_build) == ([], "595.91.07", "dkms")
    assert "nvidia-dkms-595-server-open=595.91.07-1ubuntu1" in result.todo.transaction.install


REFUSED = [
    ({}, (A100,), "580.300", NVIDIA[:2], (), ["Available drivers: 570.172.08, 580.178.04. Request one of them"]),
    # No later branch supports the GPU.
    ({}, (V100,), "580.200", NVIDIA, (), ["has no such version. Available drivers: 570.172.08, 580.178.04."]),
    # The missing package of an incomplete version is named; no other branch is chosen.
    ({}, (A100,), "580.100", NVIDIA, ("libnvidia-ml",), ["no package libnvidia-ml"]),
    # A branch past its end of life is installed only on request.
    ({}, (A100,), "570.100", NVIDIA[:1], (), ["Available drivers: 570.172.08. Request one of them"]),
    # A requested branch has no alternatives.
    ({"branch": "580"}, (A100,), "580.200", NVIDIA, (), ["nvidia_driver_branch is 580", "has no such version"]),
]


@pytest.mark.parametrize("case", REFUSED)
def test_unavailable_minimum_is_refused(case):
    request_, gpus, minimum, offered, without, words = case
    request = {"source": "nvidia", "minimum_version": minimum, **request_}
    (error,) = asked(host("el-9", gpus), request, *offered, without=without).errors
    for word in (f"nvidia_driver_minimum_version is {minimum}", *words):
        assert word in error


@pytest.mark.parametrize(("flavor", "last"), [("open", ["620"]), ("proprietary", [])])
def test_alternative_branch_needs_flavor(flavor, last):
    data = platform("el-9")
    data["sources"]["nvidia"]["branches"].append("620")
    result = resolve(host("el-9"), {"flavor": flavor, "minimum_version": "580.200"}, data)
    assert (result.branch, result.alternative_branches) == ("580", ["595", "615", *last])


INSTALLED = [
    ("el-9", "570.86.15", "570.200", ("570.86.15", "570.211.01", "580.178.04"), "570.211.01"),
    ("el-9", "570.86.15", "570.300", ("570.86.15", "570.211.01", "580.178.04"), "580.178.04"),
    ("el-9", "570.86.15", "580", ("570.86.15", "580.178.04"), "580.178.04"),
    # A branch that the role does not know.
    ("el-9", "565.57.01", "565.60", ("565.77", "580.178.04"), "565.77"),
    ("debian-12", "570.86.15", "570.200", ("570.86.15", "570.211.01", "580.178.04"), "570.211.01"),
    ("ubuntu-24.04", "570.86.15", "570.200", ("570.86.15", "570.211.01", "580.178.04"), "570.211.01"),
    ("ubuntu-24.04", "580.95.05", "580.200", ("580.95.05", "595.91.07"), "595.91.07"),
]


@pytest.mark.parametrize(("key", "before", "minimum", "offered", "after"), INSTALLED)
def test_installed_branch_is_preferred(key, before, minimum, offered, after):
    there = driver_of(key, before, {"source": "nvidia"})
    result = asked(there, {"source": "nvidia", "minimum_version": minimum}, *offered)
    assert (result.errors, result.version, result.branch) == ([], after, after[:3])
    installed = [entry for entry in result.todo.transaction.install if "nvidia" in entry]
    assert installed
    assert [entry for entry in installed if after not in entry] == []


@pytest.mark.parametrize("key", ["el-9", "debian-12", "ubuntu-24.04", "sles-15"])
@pytest.mark.parametrize("minimum", ["570", "580.95.05", "580.95"])
def test_satisfied_minimum_needs_no_query(key, minimum):
    there = driver_of(key, "580.95.05", {"source": "nvidia"})
    request = {"source": "nvidia", "minimum_version": minimum}
    result = driver_plan.plan(there, request, platform(key))
    assert (result.errors, result.acts, result.todo.query) == ([], False, [])
    assert result.alternative_branches == []


@pytest.mark.parametrize(
    ("key", "gpu", "request_", "alternatives"),
    [
        ("ubuntu-24.04", A100, {}, ["595", "615"]),
        ("ubuntu-24.04", A100, {"flavor": "proprietary"}, ["595"]),
        ("ubuntu-26.04", A100, {"source": "nvidia"}, ["615"]),
        ("el-9", A100, {}, ["595", "615"]),
        ("el-9", V100, {}, []),
        ("debian-13", A100, {}, []),
        ("el-9", A100, {"branch": "580"}, []),
        ("el-9", A100, {"version": "580.95.05"}, []),
        ("el-9", A100, {"minimum_version": "590"}, ["615"]),
    ],
)
def test_supported_branches_are_the_alternatives(key, gpu, request_, alternatives):
    assert resolve(host(key, (gpu,)), request_, platform(key)).alternative_branches == alternatives


def test_repositories_are_queried_for_the_alternatives():
    query = driver_plan.plan(host("ubuntu-24.04"), {}, platform("ubuntu-24.04")).todo.query
    assert {"nvidia-utils-580-server", "nvidia-utils-595-server"} <= set(query)
    assert not [name for name in query if "535" in name]


@pytest.mark.parametrize("key", ["el-9", "ubuntu-24.04", "debian-12", "sles-15"])
def test_missing_default_branch_is_skipped(key):
    result = asked(host(key), {"source": "nvidia"}, "595.91.07")
    assert (result.errors, result.version) == ([], "595.91.07")
    assert "branch 595: the repositories have no branch 580" in result.reasons


ELSEWHERE = [
    ("debian-13", {"source": "distribution"}, {}, "or set nvidia_driver_source to nvidia."),
    # No other source, or the role refuses to mix sources.
    ("el-9", {}, {}, "or set another nvidia_driver_source."),
    (
        "debian-13",
        {},
        {"packages": {"nvidia-smi": "550.163.01-2"}},
        "or remove the installed driver with apt (nvidia_driver_state absent removes only packages that this role "
        "installed), then set nvidia_driver_source to nvidia.",
    ),
]


@pytest.mark.parametrize(("key", "request_", "more", "ending"), ELSEWHERE)
def test_other_source_is_suggested(key, request_, more, ending):
    offered, minimum = ("550.163.01", "550.200") if key == "debian-13" else ("580.178.04", "615.99")
    (error,) = asked(host(key, **more), {**request_, "minimum_version": minimum}, offered).errors
    assert f"Available drivers: {offered}. Request one of them {ending}" in error


@pytest.mark.parametrize(
    ("library", "on_disk", "loaded", "installed", "in_use"),
    [
        (None, None, None, None, None),
        ("580.95.05", "580.82.07", "570.172.08", "580.95.05", "570.172.08"),
        (None, "580.82.07", "570.172.08", "580.82.07", "570.172.08"),
        (None, None, "570.172.08", "570.172.08", "570.172.08"),
        ("580.95.05", "580.82.07", None, "580.95.05", "580.95.05"),
        (None, "580.82.07", None, "580.82.07", "580.82.07"),
    ],
)
def test_the_installed_version_and_the_version_in_use(library, on_disk, loaded, installed, in_use):
    there = host(driver={"library": library, "on_disk": on_disk, "loaded": loaded})
    assert (driver_version.installed_version(there), driver_version.version_in_use(there)) == (installed, in_use)
