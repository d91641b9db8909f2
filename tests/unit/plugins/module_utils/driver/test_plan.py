# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import reboot_reasons
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    nvidia_repository,
    record_of_role,
    selectors_of_allowed_packages,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import role_file_paths
from ansible_collections.gpufleet.hosts.plugins.modules import package_transaction
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    A100,
    H100,
    KERNELS,
    add_package,
    all_files,
    host,
    offer,
    platform,
    remove_package,
    resolve,
)

K12 = KERNELS["debian-12"]
OLD, NEW = "535.261.03-1", "535.309.01-0+deb12u1"


def offers(key: str, request: dict, *versions: str, **more) -> dict:
    """Offer these versions of every queried package."""
    todo = driver_plan.plan(host(key, **more), request, platform(key)).todo
    return offer(host(key, **more), todo.query, *versions)


def selects(options: list[str], name: str, version: str = NEW) -> bool:
    """Return whether an option of module package_transaction selects a package."""
    selectors = map(selectors_of_allowed_packages.parse, options)
    return selectors_of_allowed_packages.is_selected(selectors, name, version)


BUILT = "535.309.01"
VERSION = {"debian-12": NEW, "debian-13": "550.163.01-2"}


def converged(key: str = "debian-12", version: str = "", request: dict | None = None, **changes) -> dict:
    """Describe a host after the plan was executed."""
    bare = host(key, headers=(KERNELS[key],))
    wanted = resolve(bare, request or {}, platform(key))
    names = [*wanted.packages, *wanted.kernel_packages]
    version = version or VERSION.get(key, "580.95.05-1")
    upstream = version.partition("-")[0]
    description = {
        "headers": (KERNELS[key],),
        "packages": dict.fromkeys(names, version),
        "held": names,
        "modules": {KERNELS[key]: upstream},
        "driver": {"library": upstream, "loaded": upstream},
        "modules_loaded": ["nvidia", "nvidia_uvm"],
        **changes,
    }
    there = host(key, **description)
    for file in all_files(driver_plan.plan(there, request or {}, platform(key))):
        there["files"][file["path"]] = {"exists": True, "content": file["content"], "mode": "0644"}
    return there


@pytest.mark.parametrize("key", ["debian-12", "debian-13", "ubuntu-24.04", "el-9", "el-10", "amazon-2023", "sles-15"])
def test_converged_host_has_empty_plan(key):
    result = driver_plan.plan(converged(key), {}, platform(key))
    assert (result.errors, result.changes, result.acts) == ([], [], False)


@pytest.mark.parametrize("key", sorted(KERNELS))
@pytest.mark.parametrize("request_", [{}, {"source": "nvidia", "imex": True}, {"hold": False}], ids=str)
def test_the_module_accepts_all_options(key, request_):
    there = host(key, (H100,), nvidia={"nvswitches": ["0000:83:00.0"]}, held=("nvidia-old",))
    add_package(there, "nvidia-old", "570.86.15-1", held=True)
    asked = driver_plan.plan(there, request_, platform(key))
    available = offer(there, asked.todo.query, f"{asked.branch}.95.05-1")
    result = driver_plan.plan(there, request_, platform(key), available)
    assert (result.errors, bool(result.todo.transaction.install)) == ([], True)
    options = {name: [] for name in package_transaction.LISTS}
    options |= {
        "may_upgrade": True,
        "lock_timeout": 1,
        "query_streams": [],
        "query_dependencies": [],
        **vars(result.todo.transaction),
    }
    wanted = package_transaction.request(options, there["os"]["package_manager"])
    # All versions are decided, except those of packages that are not part of the driver.
    assert {item.name for item in wanted.install if item.version} >= {
        name for name in result.lockstep if name not in result.optional
    }
    assert len(wanted.repositories) == len(result.todo.transaction.repositories)


NAMED = [
    (
        "debian-12",
        {"extra_packages": ["nvtop", "libfoo:i386"]},
        {"nvtop": "3.0.1-1 amd64", "libfoo": "1.0 i386"},
        "nvtop",
    ),
    ("el-9", {"extra_packages": ["nvtop-3.1.0"]}, {"nvtop": "3.1.0-2.el9 x86_64"}, "nvtop-3.1.0"),
    (
        "el-9",
        {"kernel_packages": [f"kernel-devel-{KERNELS['el-9']}"]},
        {"kernel-devel": f"5.14.0-1.el9 x86_64, {KERNELS['el-9'].replace('.x86_64', '')} x86_64"},
        f"kernel-devel={KERNELS['el-9'].replace('.x86_64', '')}",
    ),
    ("debian-12", {"kernel_packages": ["headers-mine"]}, {"headers-mine": "1 all"}, "headers-mine"),
]


@pytest.mark.parametrize(("key", "request_", "packages", "item"), NAMED)
def test_requested_packages_may_have_an_architecture(key, request_, packages, item):
    there = converged(key)
    there["installed_packages"].update(packages)
    result = driver_plan.plan(there, request_, platform(key))
    assert (result.errors, result.changes, result.acts) == ([], [], False)
    remove_package(there, next(iter(packages)))
    todo = driver_plan.plan(there, request_, platform(key)).todo
    assert todo.transaction.install == [item]
    available = offer(there, todo.query, "580.95.05-1", "535.309.01-1")
    assert driver_plan.plan(there, request_, platform(key), available).todo.transaction.install == [item]


@pytest.mark.parametrize("key", ["ubuntu-24.04", "el-9", "sles-15"])
def test_an_installed_package_may_provide_a_requested_name(key):
    there = converged(key)
    request = {"extra_packages": ["nvidia-smi"]}
    assert driver_plan.plan(there, request, platform(key)).todo.transaction.install == ["nvidia-smi"]
    there["provided"] = {"nvidia-smi": ["cuda-lib"]}
    result = driver_plan.plan(there, request, platform(key))
    assert (result.errors, result.changes, result.acts) == ([], [], False)


def test_requested_headers_skip_outgoing_kernel():
    there = converged(next_kernel="6.1.0-56-amd64", headers=("6.1.0-56-amd64",))
    add_package(there, "nvtop", "3.0.1-1")
    there["accelerators"]["nvidia"]["driver"]["on_disk_next"] = "535.309.01"
    remove_package(there, f"linux-headers-{K12}")
    result = driver_plan.plan(there, {"extra_packages": ["nvtop"]}, platform("debian-12"))
    assert (result.errors, result.todo.query) == ([], [])


def test_host_without_gpu_has_empty_plan():
    result = driver_plan.plan(host("debian-12", ()), {}, platform("debian-12"))
    assert (result.action, result.acts, result.errors) == ("none", False, [])


def test_bare_debian_host_gets_complete_plan():
    bare = host("debian-12", apt={"missing_components": ["contrib", "non-free", "non-free-firmware"]})
    result = driver_plan.plan(bare, {}, platform("debian-12"))
    assert result.todo.transaction.archive_components == ["contrib", "non-free", "non-free-firmware"]
    assert f"linux-headers-{K12}" in result.todo.transaction.install
    assert "nvidia-kernel-dkms" in result.todo.query
    assert [line.split()[0] for line in result.changes] == ["enable", "install", "hold", "write", "load"]
    assert result.acts


def test_newest_common_version_is_installed():
    available = offers("debian-12", {}, NEW, OLD)
    available["libcuda1"] = [OLD]
    result = driver_plan.plan(host("debian-12"), {}, platform("debian-12"), available)
    assert result.version == "535.261.03"
    assert f"libcuda1={OLD}" in result.todo.transaction.install
    assert f"nvidia-smi={OLD}" in result.todo.transaction.install
    assert "dkms" in result.todo.transaction.install
    pin = next(file for file in all_files(result) if file["path"] == owned.DRIVER_APT_PREFERENCES)
    assert pin in result.todo.transaction.files
    assert "Pin: version 535.261.03-*\nPin-Priority: 1001" in pin["content"]


VERSIONS = [
    ({}, {}, "535.309.01", None),
    ({"version": "535.261.03"}, {}, "535.261.03", None),
    ({"minimum_version": "535.300"}, {}, "535.309.01", None),
    ({"source": "distribution", "version": "535.183.01"}, {}, None, "nvidia_driver_version is 535.183.01, but the "
     "archive of this host's package sources has no such version. Available drivers: 535.261.03, 535.309.01."),
    ({"source": "distribution", "version": "580.95.05"}, {}, None, "nvidia_driver_version is 580.95.05, but the "
     "archive of this host's package sources has no such version. Available drivers: 535.261.03, 535.309.01."),
    ({"source": "distribution", "minimum_version": "535.400"}, {}, None,
     "nvidia_driver_minimum_version is 535.400, but"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "more", "version", "error"), VERSIONS)
def test_requested_version_is_installed(request_, more, version, error):
    result = driver_plan.plan(
        host("debian-12", **more), request_, platform("debian-12"), offers("debian-12", {}, NEW, OLD)
    )
    if error:
        assert error in result.errors[0]
        assert "Request one of them" in result.errors[0]
    else:
        assert (result.errors, result.version) == ([], version)


def test_missing_package_is_named():
    available = {**offers("debian-12", {}, NEW), "nvidia-smi": []}
    (error,) = driver_plan.plan(host("debian-12"), {}, platform("debian-12"), available).errors
    assert "Branch 535 was chosen, but the archive of this host's package sources has no package nvidia-smi" in error
    assert "Set another nvidia_driver_source" in error


@pytest.mark.parametrize(
    ("source", "remedy", "not_meant"),
    [
        ("distribution", "check that these sources contain the complete archive", "nvidia_driver_mirror"),
        ("nvidia", "check that the repository (nvidia_driver_mirror) is complete", "whole archive"),
    ],
)
def test_missing_version_has_remedy(source, remedy, not_meant):
    offered = offers("debian-12", {"source": source}, NEW)
    headers = {name: versions if name.startswith("linux-") else [] for name, versions in offered.items()}
    (error,) = driver_plan.plan(host("debian-12"), {"source": source}, platform("debian-12"), headers).errors
    assert remedy in error
    assert not_meant not in error


def test_incomplete_version_names_packages():
    request = {"source": "nvidia", "version": "580.95.05"}
    available = offers("el-9", request, "580.82.07-1", "580.95.05-1")
    available["libnvidia-ml"] = ["580.82.07-1"]
    (error,) = driver_plan.plan(host("el-9"), request, platform("el-9"), available).errors
    assert "compute/cuda/repos/rhel9/x86_64 has no such version of libnvidia-ml. Available drivers: 580.82.07." in error


def test_available_versions_include_renamed_companions():
    request = {"version": "580.11.11"}
    there = host("el-9", (H100,), nvidia={"nvswitches": ["0000:83:00.0"]}, headers=(KERNELS["el-9"],))
    query = driver_plan.plan(there, request, platform("el-9")).todo.query
    available = {name: ["580.95.05-1", "570.172.08-1"] for name in query}
    available.update({name: ["580.95.05-1"] for name in ("nvidia-fabricmanager", "libnvidia-nscq")})
    (error,) = driver_plan.plan(there, request, platform("el-9"), available).errors
    assert "Available drivers: 570.172.08, 580.95.05. Request one of them" in error


# If package names contain the branch, the available branches show that the requested one is missing.
BRANCHES = [
    ("distribution", "nvidia-kernel-common-{}-server", "570", "nvidia-kernel-common-[0-9][0-9][0-9]-server"),
    ("nvidia", "libnvidia-compute-{}", "570", "libnvidia-compute-[0-9][0-9][0-9]"),
]


@pytest.mark.parametrize(("source", "name", "other", "pattern"), BRANCHES)
def test_missing_branch_lists_available_ones(source, name, other, pattern):
    request = {"source": source, "branch": "585", "module_build": "dkms"}
    there, data = host("ubuntu-24.04", headers=(KERNELS["ubuntu-24.04"],)), platform("ubuntu-24.04")
    todo = driver_plan.plan(there, request, data).todo
    assert pattern in todo.query
    available = {**{asked: [] for asked in todo.query}, name.format(other): ["570.172.08-0ubuntu1"]}
    available["libnvidia-compute"] = ["595.91.07-1ubuntu1"] if source == "nvidia" else []
    (error,) = driver_plan.plan(there, request, data, available).errors
    assert "nvidia_driver_branch is 585, but" in error
    versions = "570.172.08, 595.91.07" if source == "nvidia" else "570.172.08"
    assert f"Available drivers: {versions}. Request one of them" in error


# --- queries before repositories are added ---


def test_query_previews_new_repository():
    old = "/etc/apt/sources.list.d/cuda-debian12-x86_64.list"
    entry = {"file": old, "uris": ["https://old.example/"], "enabled": True, "signed_by": ""}
    bare = host("debian-12", apt={"missing_components": ["contrib", "non-free"], "sources": [entry]})
    request = {"source": "nvidia", "mirror": "file:///srv/cuda", "proxy": "http://proxy.example:3128"}
    todo = driver_plan.plan(bare, request, platform("debian-12")).todo
    work = todo.transaction
    (repository,) = work.repositories
    assert repository == {
        "name": "gpufleet-nvidia-cuda",
        "description": "NVIDIA CUDA",
        "url": "file:///srv/cuda/debian12/x86_64",
        "key": "file:///srv/cuda/debian12/x86_64/3bf863cc.pub",
        "fingerprint": "EB693B3035CD5710E231E123A4B469963BF863CC",
        "proxy": "http://proxy.example:3128",
        "replaces": repository["replaces"],
    }
    assert work.uses_repositories == [repository["name"]]
    assert work.archive_components == ["contrib"]
    assert old in repository["replaces"]
    assert old in [file["path"] for file in work.files if file["state"] == "absent"]
    assert (todo.query_streams, todo.query_files) == ([], [])


DEBIAN = "/etc/apt/sources.list.d/debian.sources"
CUDA = "/etc/apt/sources.list.d/gpufleet-nvidia-cuda.sources"


def entry(path: str, uri: str, *, enabled: bool = True) -> dict:
    return {"file": path, "uris": [uri], "enabled": enabled, "signed_by": "/k.gpg"}


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        (CUDA, "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"),
        (CUDA, "https://mirror.example/anything"),
        ("/etc/apt/sources.list.d/mine.list", "https://mirror.example/debian12/sbsa"),
        ("/etc/apt/sources.list.d/local.list", "file:///var/cuda-repo-debian12-12-2-local"),
    ],
)
def test_distribution_driver_excludes_nvidias_repository(path, uri):
    sources = [entry(DEBIAN, "http://archive.example/debian"), entry(path, uri)]
    there, data = host("debian-12", apt={"sources": sources}), platform("debian-12")
    todo = driver_plan.plan(there, {"source": "distribution"}, data).todo
    offered = {DEBIAN: [NEW], path: ["535.320.01-1"]}
    ignored = [file["path"] for file in todo.query_files if file["state"] == "absent"]
    # The repository stays for the toolkit.
    assert not set(ignored) & {file["path"] for file in todo.transaction.files}
    seen = [version for file in offered if file not in ignored for version in offered[file]]
    result = driver_plan.plan(there, {"source": "distribution"}, data, dict.fromkeys(todo.query, tuple(seen)))
    assert (result.errors, result.version) == ([], "535.309.01")
    assert f"libcuda1={NEW}" in result.todo.transaction.install
    pin = next(file for file in all_files(result) if file["path"] == owned.DRIVER_APT_PREFERENCES)
    assert pin in result.todo.transaction.files
    first, second = pin["content"].split("\n\n")
    assert "\nPackage: dkms *nvidia* " in first
    assert first.endswith("Pin: release o=NVIDIA\nPin-Priority: 100")
    assert "Pin: version 535.309.01-*" in second


def test_file_with_mixed_entries_is_queried():
    cuda = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"
    sources = [entry("/etc/apt/sources.list", uri) for uri in ("http://archive.example/debian", cuda)]
    there = host("debian-12", apt={"sources": sources})
    todo = driver_plan.plan(there, {"source": "distribution"}, platform("debian-12")).todo
    assert todo.query_files == []


@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
def test_converged_host_is_not_queried(key):
    todo = driver_plan.plan(converged(key), {}, platform(key)).todo
    assert (todo.query, todo.query_streams, todo.query_files) == ([], [], [])


STREAMS = [
    ({"nvidia-driver": ["570-open", "580-dkms", "580-open"]}, None),
    ({"nvidia-driver": ["570-open", "580-dkms"]}, ["Available streams: 570-open, 580-dkms", "branch and flavor"]),
    ({"nvidia-driver": []}, ["The repository has no module nvidia-driver.", "module metadata"]),
]


@pytest.mark.parametrize(("streams", "words"), STREAMS)
def test_missing_module_stream_is_refused(streams, words):
    data = platform("el-9")
    bare = driver_plan.plan(host("el-9"), {}, data).todo
    assert bare.query_streams == ["nvidia-driver"]
    result = driver_plan.plan(host("el-9"), {}, data, offers("el-9", {}, "580.95.05-1"), streams)
    if words is None:
        assert (result.errors, result.version) == ([], "580.95.05")
        return
    for word in (*words, "module stream nvidia-driver:580-open", "rhel9/x86_64 has no such stream"):
        assert word in result.errors[0]


# --- no change of the version without a request ---


def test_newer_version_is_ignored():
    assert not driver_plan.plan(converged(version=OLD), {}, platform("debian-12")).acts


def test_missing_package_is_installed_at_installed_version():
    there = converged(version=OLD)
    remove_package(there, "libcuda1")
    result = driver_plan.plan(there, {}, platform("debian-12"), offers("debian-12", {}, NEW, OLD))
    assert result.todo.transaction.install == [f"libcuda1={OLD}"]


def test_missing_package_of_unavailable_version_is_refused():
    there = converged(version=OLD)
    remove_package(there, "libcuda1")
    (error,) = driver_plan.plan(there, {}, platform("debian-12"), offers("debian-12", {}, NEW)).errors
    assert "Driver 535.261.03 is installed" in error
    assert "Set nvidia_driver_version to 535.309.01" in error


@pytest.mark.parametrize(("before", "asked", "after"), [(OLD, "535.309.01", NEW), (NEW, "535.261.03", OLD)])
def test_requested_version_updates_all_packages(before, asked, after):
    there = converged(version=before)
    result = driver_plan.plan(there, {"version": asked}, platform("debian-12"), offers("debian-12", {}, NEW, OLD))
    assert result.errors == []
    assert f"libcuda1={after}" in result.todo.transaction.install
    assert all(entry.endswith(f"={after}") for entry in result.todo.transaction.install)
    assert "libcuda1" in result.todo.transaction.may_change


def test_mixed_versions_are_unified():
    there = converged(version=NEW)
    there["packages"]["libcuda1"]["version"] = OLD
    result = driver_plan.plan(there, {}, platform("debian-12"), offers("debian-12", {}, NEW, OLD))
    assert result.todo.transaction.install == [f"libcuda1={NEW}"]


# --- kernels ---


def test_missing_module_is_built():
    there = converged(modules={})
    assert driver_plan.plan(there, {}, platform("debian-12")).todo.build == [K12]


def tree(name: str, version: str, **kernels: str) -> dict:
    """Describe a module in DKMS."""
    return {"name": name, "version": version, "kernels": kernels, "failure": None}


@pytest.mark.parametrize(
    ("trees", "expected"),
    [
        ([tree("nvidia-current", BUILT)], ["-m", "nvidia-current", "-v", BUILT]),
        ([tree("nvidia-current", "470.1"), tree("nvidia-current", BUILT)], ["-m", "nvidia-current", "-v", BUILT]),
        ([tree("nvidia-fs", BUILT), tree("nvidia-current", BUILT)], ["-m", "nvidia-current", "-v", BUILT]),
        ([tree("nvidia-current-open", BUILT), tree("nvidia-current", BUILT)], ["-m", "nvidia-current", "-v", BUILT]),
        ([tree("nvidia-current", BUILT, **{K12: "installed"})], ["-m", "nvidia-current", "-v", BUILT, "--force"]),
    ],
    ids=["one", "an older version", "another module of NVIDIA", "the other flavor", "its files are gone"],
)
def test_only_the_drivers_module_is_built(trees, expected):
    there = {**converged(modules={}), "dkms": trees}
    (command,) = driver_plan.plan(there, {}, platform("debian-12")).todo.build_commands
    assert command == ["dkms", "install", *expected[:4], "-k", K12, *expected[4:]]


@pytest.mark.parametrize(("dkms", "register"), [([], "nvidia/580.95.05"), ([tree("nvidia", "580.95.05")], None)])
def test_dkms_sources_are_registered_again(dkms, register):
    there = {**el_host(modules={}), "dkms": dkms}
    todo = driver_plan.plan(there, {}, platform("el-9")).todo
    assert (todo.build, todo.register) == ([KERNELS["el-9"]], register)


def test_headers_of_next_kernel_are_required():
    there = host("debian-12", next_kernel="6.1.0-56-amd64")
    available = {**offers("debian-12", {}, NEW, next_kernel="6.1.0-56-amd64"), "linux-headers-6.1.0-56-amd64": []}
    (error,) = driver_plan.plan(there, {}, platform("debian-12"), available).errors
    for word in ("linux-headers-6.1.0-56-amd64", "kernel 6.1.0-56-amd64", "nvidia_driver_kernel_packages"):
        assert word in error


def test_headers_of_running_kernel_are_optional():
    there = host("debian-12", next_kernel="6.1.0-56-amd64")
    available = {**offers("debian-12", {}, NEW, next_kernel="6.1.0-56-amd64"), f"linux-headers-{K12}": []}
    result = driver_plan.plan(there, {}, platform("debian-12"), available)
    assert result.errors == []
    assert f"linux-headers-{K12}" not in result.todo.transaction.install
    assert any(f"no module for the running kernel {K12}" in reason for reason in result.reasons)


def test_outgoing_kernel_headers_are_not_queried_again():
    there = converged(
        next_kernel="6.1.0-56-amd64", headers=("6.1.0-56-amd64",), modules={"6.1.0-56-amd64": "535.309.01"}
    )
    there["accelerators"]["nvidia"]["driver"]["loaded"] = None
    there["modules_loaded"] = []
    assert driver_plan.plan(there, {}, platform("debian-12")).todo.transaction.install == []


@pytest.mark.parametrize(("offered", "expected"), [("6.1.148-1", "linux-headers-amd64=6.1.148-1"), ("6.1.192-2", None)])
def test_headers_meta_package_upgrades_no_kernel(offered, expected):
    there = host("debian-12", packages={"linux-image-amd64": "6.1.148-1"})
    available = {**offers("debian-12", {}, NEW), "linux-headers-amd64": [offered]}
    result = driver_plan.plan(there, {}, platform("debian-12"), available)
    meta = [entry for entry in result.todo.transaction.install if entry.startswith("linux-headers-amd64")]
    assert meta == ([expected] if expected else [])
    if not expected:
        assert any("linux-headers-amd64 is not installed" in reason for reason in result.reasons)


def test_dkms_replaces_missing_prebuilt_modules():
    version = "580.95.05-0ubuntu0.24.04.1"
    available = offers("ubuntu-24.04", {}, version)
    prebuilt = f"linux-modules-nvidia-580-server-open-{KERNELS['ubuntu-24.04']}"
    assert "nvidia-dkms-580-server-open" in available
    result = driver_plan.plan(host("ubuntu-24.04"), {}, platform("ubuntu-24.04"), available)
    assert prebuilt in result.todo.transaction.install
    result = driver_plan.plan(host("ubuntu-24.04"), {}, platform("ubuntu-24.04"), {**available, prebuilt: []})
    assert result.errors == []
    assert f"nvidia-dkms-580-server-open={version}" in result.todo.transaction.install
    assert prebuilt not in result.todo.transaction.install
    assert any(prebuilt in reason for reason in result.reasons)


U24 = KERNELS["ubuntu-24.04"]
GOING = "6.8.0-50-generic"
MODULES = "linux-modules-nvidia-580-server-open-{}"
ARCHIVE = "580.95.05-0ubuntu0.24.04.1"


def test_prebuilt_modules_of_running_kernel_are_optional():
    there = host("ubuntu-24.04", kernel=GOING, next_kernel=U24)
    available = offers("ubuntu-24.04", {}, ARCHIVE, kernel=GOING, next_kernel=U24)
    available = {**available, MODULES.format(GOING): [], f"linux-headers-{GOING}": []}
    result = driver_plan.plan(there, {}, platform("ubuntu-24.04"), available)
    assert (result.errors, result.module_build) == ([], "precompiled")
    names = [entry.partition("=")[0] for entry in result.todo.transaction.install]
    assert MODULES.format(U24) in names
    assert MODULES.format(GOING) not in names
    reason = f"no module for the running kernel {GOING}: the repositories no longer have {MODULES.format(GOING)}"
    assert any(reason in text for text in result.reasons)


def test_outgoing_kernel_modules_are_not_queried_again():
    there = converged("ubuntu-24.04", version=ARCHIVE, kernel=GOING, next_kernel=U24, modules={U24: "580.95.05"})
    assert MODULES.format(GOING) not in there["packages"]
    todo = driver_plan.plan(there, {}, platform("ubuntu-24.04")).todo
    assert (todo.query, todo.transaction.install) == ([], [])
    there["accelerators"]["nvidia"]["driver"]["on_disk_next"] = None
    assert driver_plan.plan(there, {}, platform("ubuntu-24.04")).todo.query != []


@pytest.mark.parametrize(
    ("request_", "more", "words"),
    [
        ({"module_build": "precompiled"}, {}, ["no prebuilt module for kernel", "module_build to auto or dkms"]),
        ({}, {"secure_boot": {"enabled": True}}, ["Secure Boot is enabled", "update-secureboot-policy", "enroll it"]),
    ],
)
def test_prebuilt_modules_of_next_kernel_are_required(request_, more, words):
    there = host("ubuntu-24.04", **more)
    available = {**offers("ubuntu-24.04", request_, ARCHIVE, **more), MODULES.format(U24): []}
    (error,) = driver_plan.plan(there, request_, platform("ubuntu-24.04"), available).errors
    for word in ("have no " + MODULES.format(U24), *words):
        assert word in error


# --- another source ---


def in_archive(there: dict, request: dict, version: str) -> driver_plan.DriverPlan:
    """Plan with an archive that has one version of the driver."""
    todo = driver_plan.plan(there, request, platform("debian-13")).todo
    return driver_plan.plan(there, request, platform("debian-13"), offer(there, todo.query, version))


def test_next_source_is_planned_if_the_first_has_no_suitable_version():
    there, request = host("debian-13"), {"minimum_version": "550.200"}
    first = driver_plan.plan(there, request, platform("debian-13"))
    assert (first.source, first.rejected_sources) == ("distribution", {})
    result = in_archive(there, request, "550.163.01-2")
    assert (result.errors, result.source) == ([], "nvidia")
    assert list(result.rejected_sources) == ["distribution"]
    # The packages of this source are not known yet.
    assert result.todo.query
    assert any(item.startswith("source distribution is not used: its repositories have no") for item in result.reasons)
    available = offer(there, result.todo.query, "580.95.05-1")
    rejected = result.rejected_sources
    final = driver_plan.plan(there, request, platform("debian-13"), available, rejected_sources=rejected)
    assert (final.errors, final.source, final.version) == ([], "nvidia", "580.95.05")
    assert final.rejected_sources == rejected
    available = offer(there, result.todo.query, "550.163.01-1")
    (error,) = driver_plan.plan(there, request, platform("debian-13"), available, rejected_sources=rejected).errors
    assert "Source distribution was tried first: its repositories have no suitable version of branch 550" in error


@pytest.mark.parametrize(
    ("request_", "packages"),
    [
        ({"minimum_version": "550.200", "source": "distribution"}, {}),
        # An installed driver is not moved to another source.
        ({"minimum_version": "550.200"}, {"nvidia-smi": "550.163.01-2", "libcuda1": "550.163.01-2"}),
    ],
)
def test_next_source_is_not_tried(request_, packages):
    (error,) = in_archive(host("debian-13", packages=packages), request_, "550.163.01-2").errors
    assert "nvidia_driver_minimum_version is 550.200" in error


# --- repositories ---


def test_nvidias_repository_replaces_older_entries():
    sources = [{"file": "/etc/apt/sources.list.d/cuda-debian12-x86_64.list", "uris": ["https://old.example"]}]
    there = host("debian-12", apt={"sources": sources}, packages={"cuda-keyring": "1.1-1"})
    result = driver_plan.plan(there, {"source": "nvidia"}, platform("debian-12"))
    work = result.todo.transaction
    assert [repository["url"].rpartition("/repos")[2] for repository in work.repositories] == ["/debian12/x86_64"]
    gone = [file["path"] for file in work.files if file["state"] == "absent"]
    assert gone == ["/etc/apt/sources.list.d/cuda-debian12-x86_64.list"]
    assert work.purge == ["cuda-keyring"]


@pytest.mark.parametrize(("signed_by", "kept"), [("/usr/share/keyrings/cuda-archive-keyring.gpg", True), ("", False)])
def test_existing_entry_with_own_key_is_kept(signed_by, kept):
    url = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"
    sources = [{"file": "/etc/apt/x.list", "uris": [url], "enabled": True, "signed_by": signed_by}]
    result = driver_plan.plan(host("debian-12", apt={"sources": sources}), {"source": "nvidia"}, platform("debian-12"))
    assert (result.todo.transaction.repositories == []) is kept


@pytest.mark.parametrize(
    ("streams", "expected"),
    [
        ({}, ["nvidia-driver:580-open"]),
        ({"nvidia-driver": "570-open"}, ["nvidia-driver:580-open"]),
        ({"nvidia-driver": "580-open"}, []),
    ],
)
def test_module_stream_is_enabled(streams, expected):
    there = host("el-9", module_streams=streams)
    result = driver_plan.plan(there, {}, platform("el-9"))
    assert result.todo.transaction.module_streams == expected
    assert result.todo.prerequisites == ["epel-release", "python3-dnf-plugin-versionlock"]


@pytest.mark.parametrize("key", ["el-8", "el-9", "el-10", "amazon-2023"])
def test_lock_plugin_is_installed_on_complete_host(key):
    driver = {"library": "580.95.05", "loaded": "580.95.05"}
    there = converged(key, version="3:580.95.05-1", driver=driver, held=())
    todo = driver_plan.plan(there, {}, platform(key)).todo
    assert todo.query == []
    assert "nvidia-driver-cuda" in todo.transaction.hold
    assert todo.prerequisites == ["python3-dnf-plugin-versionlock"]
    add_package(there, "python3-dnf-plugin-versionlock", "4.0", arch="noarch")
    assert driver_plan.plan(there, {}, platform(key)).todo.prerequisites == []
    assert driver_plan.plan(there, {"hold": False}, platform(key)).todo.prerequisites == []


@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
def test_new_driver_packages_and_their_dependencies_are_held(key):
    version = VERSION.get(key, "580.95.05-1")
    available = offers(key, {}, version)
    result = driver_plan.plan(host(key), {}, platform(key), available)
    work = result.todo.transaction
    # Each item has a name and, for the packages of the driver, a version.
    items = dict(item.split("=") for item in work.install if "=" in item and not item.startswith("kernel"))
    assert items
    assert set(items) <= set(work.hold)
    upstream = version.partition("-")[0]
    assert selects(work.hold, "libnvidia-new" if key == "debian-12" else "nvidia-new", version)
    assert not selects(work.hold, "nvidia-container-toolkit", "1.18.0-1")
    assert not any(selects(work.hold, name, "1.0") for name in ("dkms", f"linux-headers-{K12}", "kernel-devel"))
    assert work.hold[-1].endswith(f"={upstream}")
    assert driver_plan.plan(host(key), {"hold": False}, platform(key), available).todo.transaction.hold == []


def test_without_holds_the_lock_plugin_is_not_installed():
    # The plugin for locks is not installed, either.
    assert driver_plan.plan(host("el-9"), {"hold": False}, platform("el-9")).todo.prerequisites == ["epel-release"]


EL = "3:580.95.05-1.el9"


def el_host(**changes) -> dict:
    """Describe a converged host with NVIDIA's packages, its locks included."""
    there = converged("el-9", version=EL, driver={"library": "580.95.05", "loaded": "580.95.05"}, held=(), **changes)
    return {**there, "modules_loaded": ["nvidia", "nvidia_uvm"], "module_streams": {"nvidia-driver": "580-open"}}


def test_flavor_change_switches_stream():
    plan = driver_plan.plan(el_host(), {"flavor": "proprietary"}, platform("el-9"))
    assert plan.todo.transaction.module_streams == ["nvidia-driver:580-dkms"]
    assert plan.todo.transaction.install == ["kmod-nvidia-latest-dkms"]


def test_former_version_is_released_and_the_new_one_is_held():
    there = el_host()
    there["packages"]["nvidia-driver-cuda"]["held"] = True
    wanted = {"version": "580.82.07"}
    plan = driver_plan.plan(there, wanted, platform("el-9"), offers("el-9", {}, "580.95.05-1.el9", "580.82.07-1.el9"))
    work = plan.todo.transaction
    assert "nvidia-driver-cuda=580.82.07-1.el9" in work.install
    for version in ("3:580.95.05-1.el9", "3:580.82.07-1.el9"):
        assert selects(work.release, "nvidia-driver-cuda", version)
    assert "nvidia-driver-cuda" in work.hold
    assert not selects(work.release, "nvidia-container-toolkit", "1.18.0-1")


# --- replaced packages ---


NAMES = {
    "el-9": (["libnvidia-nscq-570", "nvidia-fabric-manager"], ["libnvidia-nscq", "nvidia-fabricmanager"]),
    "debian-12": (["libnvidia-nscq-570", "nvidia-fabricmanager-570"], ["libnvidia-nscq", "nvidia-fabricmanager"]),
    "sles-15": (
        ["libnvidia-nscq-570", "nvidia-fabric-manager"],
        ["libnvidia-cfg", "libnvidia-gpucomp", "libnvidia-ml", "libnvidia-nscq", "nvidia-fabricmanager"],
    ),
}


@pytest.mark.parametrize("key", sorted(NAMES))
@pytest.mark.parametrize(("old", "new"), [("570.172.08", "580.95.05"), ("580.95.05", "570.172.08")])
def test_branch_change_replaces_all_packages(key, old, new):
    wanted = {"source": "nvidia", "branch": new[:3]}
    switches = {"nvswitches": ["0000:83:00.0"]}
    bare = host(key, (H100,), nvidia=switches, headers=(KERNELS[key],))
    names = resolve(bare, {**wanted, "branch": old[:3]}, platform(key)).packages
    there = host(key, (H100,), nvidia=switches, headers=(KERNELS[key],), packages=dict.fromkeys(names, f"{old}-1"),
                 held=names, driver={"library": old})  # fmt: skip
    going, coming = NAMES[key] if old < new else reversed(NAMES[key])
    asked = driver_plan.plan(there, wanted, platform(key))
    assert f"remove {', '.join(going)}" in asked.changes
    available = {name: [f"{new}-1"] for name in asked.todo.query}
    result = driver_plan.plan(there, wanted, platform(key), available)
    assert result.errors == []
    work = result.todo.transaction
    assert work.remove == going
    assert set(going) <= set(work.release)
    assert set(going) <= set(work.may_change)
    assert {f"{name}={new}-1" for name in coming} <= set(work.install)


def test_nothing_is_removed_where_nothing_is_installed():
    assert driver_plan.plan(host("el-9"), {}, platform("el-9")).todo.transaction.remove == []
    there = converged(version=OLD)
    add_package(there, "nvidia-open-kernel-dkms", OLD)
    work = driver_plan.plan(there, {"flavor": "proprietary"}, platform("debian-12")).todo.transaction
    assert (work.remove, work.purge) == ([], [])


@pytest.mark.parametrize(
    ("request_", "changes"), [({}, False), ({"version": "535.261.03"}, True), ({"flavor": "open"}, True)],
    ids=["completed", "moved", "other flavor"],
)  # fmt: skip
def test_only_driver_packages_change(request_, changes):
    there = converged()
    for name in ("nvidia-alternative", "nvidia-container-toolkit", "docker.io", "linux-image-amd64"):
        version = NEW if name == "nvidia-alternative" else "1.18.0-1"
        add_package(there, name, version, held=True)
    remove_package(there, "libnvidia-ml1")
    todo = driver_plan.plan(there, request_, platform("debian-12"), offers("debian-12", request_, NEW, OLD)).todo
    assert todo.transaction.install
    strangers = {"nvidia-container-toolkit", "docker.io", "linux-image-amd64", "dkms", f"linux-headers-{K12}"}
    own = {"libcuda1", "nvidia-alternative", "nvidia-kernel-dkms", "nvidia-smi"} if changes else set()
    for option in (todo.transaction.release, todo.transaction.may_change):
        assert own <= set(option)
        assert bool(option) is changes
        assert not any(selects(option, name, "1.18.0-1") for name in strangers)


@pytest.mark.parametrize(("key", "flavor"), [("debian-12", "open"), ("debian-13", "proprietary")])
def test_flavor_change_purges_modprobe_files(key, flavor):
    there = converged(key)
    request = {"flavor": flavor}
    todo = driver_plan.plan(there, request, platform(key), offers(key, request, VERSION[key])).todo
    mine, others = ("open-", "") if flavor == "open" else ("", "open-")
    assert todo.transaction.purge == [f"nvidia-{others}kernel-dkms", f"nvidia-{others}kernel-support"]
    assert f"nvidia-{mine}kernel-support={VERSION[key]}" in todo.transaction.install
    assert todo.transaction.remove == []


@pytest.mark.parametrize(("key", "flavor"), [("debian-12", "open"), ("debian-13", "proprietary")])
def test_interrupted_flavor_change_is_completed(key, flavor):
    request = {"flavor": flavor}
    todo = driver_plan.plan(converged(key), request, platform(key), offers(key, request, VERSION[key])).todo.transaction
    there = converged(key)
    for name in todo.purge:
        remove_package(there, name)
    for name in (text.partition("=")[0] for text in todo.install):
        add_package(there, name, VERSION[key], held=True)
    left = sorted([*todo.purge, "nvidia-settings", "linux-image-6.1.0-1-amd64"])
    there["package_state"]["config_files"] = left
    result = driver_plan.plan(there, request, platform(key))
    assert (result.errors, result.todo.transaction.purge) == ([], todo.purge)
    assert (result.acts, result.applies["packages"], result.todo.query) == (True, True, [])
    assert result.changes == [f"purge {', '.join(todo.purge)}"]
    # A replaced package of the same driver keeps its configuration.
    back = {"flavor": "proprietary" if flavor == "open" else "open"}
    assert not set(left) & set(driver_plan.plan(there, back, platform(key)).todo.transaction.purge)
    remove_package(there, "dkms")
    assert driver_plan.plan(there, request, platform(key)).todo.transaction.purge == todo.purge


def test_renamed_companion_keeps_configuration():
    old = dict.fromkeys(["nvidia-driver-cuda", "nvidia-imex-570", "nvidia-kernel-dkms"], "570.172.08-1")
    more = {"packages": old, "driver": {"library": "570.172.08"}, "headers": (K12,)}
    request = {"source": "nvidia", "branch": "580", "flavor": "open", "imex": True}
    available = offers("debian-12", request, "580.95.05-1", **more)
    result = driver_plan.plan(host("debian-12", **more), request, platform("debian-12"), available)
    assert result.errors == []
    assert result.todo.transaction.remove == ["nvidia-imex-570"]
    assert result.todo.transaction.purge == ["nvidia-kernel-dkms"]


def test_packages_of_other_branch_are_replaced():
    old = dict.fromkeys(["nvidia-utils-550-server", "nvidia-dkms-550-server-open"], "550.163.01-0ubuntu0.24.04.1")
    there = host("ubuntu-24.04", packages=old, held=tuple(old), driver={"library": "550.163.01"})
    wanted = {"branch": "580"}
    result = driver_plan.plan(
        there, wanted, platform("ubuntu-24.04"), offers("ubuntu-24.04", wanted, "580.95.05-0ubuntu0.24.04.1")
    )
    assert result.errors == []
    assert result.todo.transaction.release == result.todo.transaction.may_change == sorted(old)


# --- known build failures ---

LIMITS = [
    ("debian-12", "6.1.0-56-amd64", {"flavor": "open"}, OLD, ["do not build", "6.1.0-56-amd64", "flavor to auto"]),
    ("debian-12", "6.1.0-56-amd64", {"flavor": "open"}, NEW, []),
    ("debian-12", "6.1.0-47-amd64", {"flavor": "open"}, OLD, []),
    ("debian-13", "6.12.107+deb13-amd64", {"flavor": "open"}, "550.163.01-2", ["6.12.107", "nvidia_driver_source"]),
    ("debian-13", "6.12.94+deb13-amd64", {"flavor": "open"}, "550.163.01-2", []),
    ("debian-13", "6.12.107+deb13-amd64", {"flavor": "proprietary"}, "550.163.01-2", []),
]


@pytest.mark.parametrize(("key", "kernel", "request_", "version", "words"), LIMITS)
def test_known_build_failure_is_refused(key, kernel, request_, version, words):
    wanted = {"source": "distribution", **request_}
    there = host(key, kernel=kernel)
    result = driver_plan.plan(there, wanted, platform(key), offers(key, wanted, version, kernel=kernel))
    assert bool(result.errors) is bool(words)
    for word in words:
        assert word in result.errors[0]


@pytest.mark.parametrize(("built", "refused"), [("open", False), ("proprietary", True)])
def test_built_module_of_the_same_flavor_is_accepted(built, refused):
    kernel = "6.12.107+deb13-amd64"
    there = host("debian-13", kernel=kernel, modules={kernel: "550.163.01"}, packages={"libcuda1": "550.163.01-2"})
    for entry in there["kernel"]["kernels"]:
        entry["nvidia_module"]["flavor"] = built
    wanted = {"source": "distribution", "flavor": "open"}
    available = offers("debian-13", wanted, "550.163.01-2", kernel=kernel)
    errors = driver_plan.plan(there, wanted, platform("debian-13"), available).errors
    assert bool(errors) is refused
    assert not refused or "do not build" in errors[0]


# --- proxies, and entries of the same repository ---

PROXY = "http://proxy.example:3128"
URL = "https://developer.download.nvidia.com/compute/cuda/repos"


def test_apt_proxy_is_set_and_removed():
    there = converged()
    assert not driver_plan.plan(there, {"proxy": PROXY}, platform("debian-12")).acts
    wanted = {"source": "nvidia", "proxy": PROXY}
    result = driver_plan.plan(host("debian-12"), wanted, platform("debian-12"))
    assert [repository["proxy"] for repository in result.todo.transaction.repositories] == [PROXY]
    # The repository's definition writes its files.
    assert nvidia_repository.APT_PROXY_FILE not in [file["path"] for file in all_files(result)]
    # For the user's own entry, the role writes the proxy.
    url = f"{URL}/debian12/x86_64/"
    hers = [{"file": "/etc/apt/x.list", "uris": [url], "enabled": True, "signed_by": "/k.gpg"}]
    result = driver_plan.plan(host("debian-12", apt={"sources": hers}), wanted, platform("debian-12"))
    assert result.todo.transaction.repositories == []
    files = result.todo.transaction.files
    (content,) = [file["content"] for file in files if file["path"] == nvidia_repository.APT_PROXY_FILE]
    assert f'Acquire::https::Proxy::developer.download.nvidia.com "{PROXY}";' in content
    there["files"][nvidia_repository.APT_PROXY_FILE] = {"exists": True, "content": content}
    files = driver_plan.plan(there, {}, platform("debian-12")).todo.transaction.files
    assert [(file["path"], file["state"]) for file in files] == [(nvidia_repository.APT_PROXY_FILE, "absent")]
    # Unless the CUDA toolkit uses this proxy for the repository.
    there["files"][record_of_role.TOOLKIT] = {"exists": True, "content": '{"key": "0123"}'}
    assert not driver_plan.plan(there, {}, platform("debian-12")).acts


REPOSITORIES = [
    ("el-9", "/etc/yum.repos.d", "[x]\nbaseurl={url}\nproxy=http://proxy.example:3128\n", "rhel9"),
    ("sles-15", "/etc/zypp/repos.d", "[x]\nbaseurl={url}?proxy=http%3A//proxy.example%3A3128\n", "sles15"),
]


@pytest.mark.parametrize(("key", "directory", "text", "path"), REPOSITORIES)
def test_changed_proxy_is_written_for_dnf_and_zypper(key, directory, text, path):
    url = f"{URL}/{path}/x86_64"
    there = converged(key)
    there["files"][f"{directory}/gpufleet-nvidia-cuda.repo"] = {"exists": True, "content": text.format(url=url)}
    address = re.search(r"baseurl=(\S+)", text.format(url=url)).group(1)
    there["repositories"] = [{"id": "x", "file": "x", "url": address, "enabled": True}]
    assert not driver_plan.plan(there, {"proxy": PROXY}, platform(key)).acts
    (repository,) = driver_plan.plan(there, {}, platform(key)).todo.transaction.repositories
    assert "proxy" not in repository
    other = driver_plan.plan(there, {"proxy": "http://other.example:3128"}, platform(key))
    assert other.todo.transaction.repositories[0]["proxy"] == "http://other.example:3128"
    missing = dict(there, packages={})
    assert driver_plan.plan(missing, {"proxy": PROXY}, platform(key)).todo.transaction.repositories == []


ENTRIES = {
    "debian-12": ("debian12", "URIs: {}\n"),
    "el-9": ("rhel9", "[x]\nbaseurl={}\n"),
    "sles-15": ("sles15", "[x]\nbaseurl={}?proxy=http%3A//proxy.example%3A3128\n"),
}


@pytest.mark.parametrize(
    ("mirror", "record", "others", "moved"),
    [
        ("https://new.example/cuda", '{"key": "0123"}', [], True),
        ("https://old.example/cuda/", '{"key": "0123"}', [], False),
        # Without the setting, the entry of a former mirror stays.
        ("", '{"key": "0123"}', [], False),
        # The entry belongs to role cuda_toolkit.
        ("https://new.example/cuda", "{}", [], False),
        # The user's own entry for the new mirror is used.
        ("https://new.example/cuda", '{"key": "0123"}', ["https://new.example/cuda"], False),
    ],
)
@pytest.mark.parametrize("key", ENTRIES)
def test_another_mirror_replaces_the_former_one_on_a_converged_host(key, mirror, record, others, moved):
    path, text = ENTRIES[key]
    there = converged(key, "580.95.05-1", {"source": "nvidia"})
    manager = there["os"]["package_manager"]
    file = role_file_paths.repository_entry(owned.REPOSITORY_ID, manager)
    urls = {file: f"https://old.example/cuda/{path}/x86_64", **{f"/{url}": f"{url}/{path}/x86_64" for url in others}}
    there["files"][file] = {"exists": True, "content": text.format(urls[file])}
    there["files"][record_of_role.DRIVER] = {"exists": True, "content": record}
    key_file = role_file_paths.repository_key(owned.REPOSITORY_ID, manager)
    there["keyrings"] = {key_file: {"fingerprints": ["0" * 40], "digests": []}}
    if manager == "apt":
        there["apt"]["sources"] = [entry(name, url) for name, url in urls.items()]
    else:
        there["repositories"] = [{"id": name, "file": name, "url": url, "enabled": True} for name, url in urls.items()]
    proxy = PROXY if manager == "zypper" else ""
    request = {"source": "nvidia", "mirror": mirror, "proxy": proxy, "key_fingerprint": "0" * 40}
    result = driver_plan.plan(there, request, platform(key))
    work = result.todo.transaction
    assert (result.errors, result.todo.query, work.install) == ([], [], [])
    assert [item["url"] for item in work.repositories] == [f"https://new.example/cuda/{path}/x86_64"] * moved
    assert bool(work.uses_repositories) is moved


def test_older_entries_beside_current_repository_are_removed():
    url = f"{URL}/debian12/x86_64"
    signed = {"uris": [url], "enabled": True, "signed_by": "/x.gpg"}
    sources = [
        {**signed, "file": "/etc/apt/sources.list.d/cuda-debian12-x86_64.list"},
        {**signed, "file": "/etc/apt/sources.list.d/cuda.list", "signed_by": ""},
    ]
    there = host("debian-12", apt={"sources": sources}, packages={"cuda-keyring": "1.1-1"})
    todo = driver_plan.plan(there, {"source": "nvidia"}, platform("debian-12")).todo
    assert (todo.transaction.repositories, todo.transaction.purge) == ([], [])
    assert [file["path"] for file in todo.transaction.files if file["state"] == "absent"] == [
        "/etc/apt/sources.list.d/cuda.list"
    ]


# --- the initramfs ---

INITRAMFS = [
    ("debian-12", "initramfs-tools", ["update-initramfs", "-u", "-k", K12]),
    ("debian-12", "dracut", ["dracut", "--force", "--kver", K12]),
    ("el-9", "dracut", ["dracut", "--force", "--kver", KERNELS["el-9"]]),
    ("debian-12", "vim", None),
]


@pytest.mark.parametrize(("key", "package", "command"), INITRAMFS)
def test_initramfs_follows_modprobe_file(key, package, command):
    nouveau = {"nouveau": {"loaded": True, "bound": [], "available": True, "blacklisted_by": []}}
    there = converged(key, foreign_drivers=nouveau)
    add_package(there, package, "1", arch="all")
    assert not driver_plan.plan(there, {}, platform(key)).acts
    del there["files"][owned.MODPROBE]
    plan = driver_plan.plan(there, {}, platform(key))
    assert plan.todo.initramfs == ([command] if command else [])
    assert any("rebuild the initramfs" in line for line in plan.changes) is bool(command)
    there["kernel"]["kernels"][0]["bootable"] = False
    assert driver_plan.plan(there, {}, platform(key)).todo.initramfs == []


@pytest.mark.parametrize(("key", "package", "command"), INITRAMFS)
def test_pending_initramfs_is_rebuilt(key, package, command):
    there = converged(key)
    add_package(there, package, "1", arch="all")
    there["files"][owned.DRIVER_INITRAMFS_MARKER] = {"exists": True, "content": ""}
    plan = driver_plan.plan(there, {}, platform(key))
    assert (plan.todo.files, plan.todo.initramfs) == ([], [command] if command else [])
    assert plan.acts is plan.applies["files"] is bool(command)
    assert len(plan.changes) == len(plan.todo.initramfs)
    there["files"][owned.DRIVER_INITRAMFS_MARKER] = {"exists": False, "content": None}
    assert not driver_plan.plan(there, {}, platform(key)).acts


def outdated(key: str, *images: dict) -> dict:
    """Describe a converged host that loaded an older driver at boot."""
    there = converged(key)
    there["accelerators"]["nvidia"]["driver"]["loaded"] = "535.261.03"
    there["initramfs"] = [
        {"kernel": KERNELS[key], "path": "/boot/image", "has_driver": True, **image} for image in images
    ]
    there["reboot_reasons"] = reboot_reasons.reasons(there)
    return there


@pytest.mark.parametrize("activate", [True, False])
@pytest.mark.parametrize(("key", "package", "command"), INITRAMFS)
def test_initramfs_with_an_outdated_driver_is_rebuilt_once(key, package, command, activate):
    request = {"activate": activate}
    there = outdated(key, {"before_boot": True})
    add_package(there, package, "1", arch="all")
    plan = driver_plan.plan(there, request, platform(key))
    assert plan.todo.initramfs == ([command] if command else [])
    assert plan.applies["files"] is bool(command)
    assert (f"rebuild the initramfs of {KERNELS[key]}" in plan.changes) is bool(command)
    # The modules are reloaded as well if nothing uses them.
    assert bool(plan.todo.modules["unload"]) is activate
    rebuilt = outdated(key, {"before_boot": False})
    add_package(rebuilt, package, "1", arch="all")
    assert driver_plan.plan(rebuilt, request, platform(key)).todo.initramfs == []


@pytest.mark.parametrize("has_driver", [False, None])
def test_initramfs_without_an_outdated_driver_stays(has_driver):
    there = outdated("debian-12", {"before_boot": True, "has_driver": has_driver})
    add_package(there, "initramfs-tools", "1", arch="all")
    assert driver_plan.plan(there, {}, platform("debian-12")).todo.initramfs == []


STALE = [
    ("kmod-nvidia-latest-dkms-3:580.95.05-1.el9.*", True),
    ("nvidia-driver-cuda-3:570.172.08-1.el9.*", True),
    ("nvidia-driver-cuda-3:580.95.05-1.el9.*", False),
    ("nvidia-container-toolkit-0:1.18.0-1.*", False),
    ("nvidia-container-toolkit", False),
    ("kmod-nvidia*580*", False),
    ("kernel-0:5.14.0-570.el9.*", False),
    ("vim-3:580.95.05-1.el9.*", False),
]


@pytest.mark.parametrize(("lock", "goes"), STALE)
def test_only_stale_driver_locks_are_removed(lock, goes):
    there = el_host(package_state={"held_patterns": [lock]})
    for package in there["packages"].values():
        package["held"] = True
    result = driver_plan.plan(there, {}, platform("el-9"))
    assert result.applies["packages"] is goes
    work = result.todo.transaction
    name, _dash, version = lock.rpartition("-3:")
    assert selects(work.release, name, version.rpartition(".")[0]) is goes
    # The locks on the installed version stay.
    assert ("nvidia-driver-cuda" in work.hold) is goes


class Lazy(dict):
    """A mapping as Ansible passes it to filters: its items can be iterated once."""

    def items(self):
        return iter(super().items())


def test_locks_are_compared_with_all_packages():
    there = el_host()
    there["packages"] = Lazy(there["packages"])
    there["package_state"]["held_patterns"] = [f"{name}-{EL}.*" for name in there["packages"]]
    assert driver_plan.plan(there, {}, platform("el-9")).todo.transaction.release == []


# --- the runfile ---

RUNFILE = {"source": "runfile", "version": "580.95.05", "runfile_checksum": "sha256:" + "0" * 64}


def test_installer_is_run():
    todo = driver_plan.plan(host("debian-12"), RUNFILE, platform("debian-12")).todo
    url = "https://us.download.nvidia.com/tesla/580.95.05/NVIDIA-Linux-x86_64-580.95.05.run"
    assert todo.runfile == {
        "url": url,
        "username": "",
        "password": "",
        "proxy": "",
        "checksum": "sha256:" + "0" * 64,
        "options": ["--silent", "--dkms", "--no-nouveau-check", "--kernel-module-type=open"],
        "record": '{"pending": "580.95.05"}\n',
    }
    assert todo.transaction.install == [f"linux-headers-{K12}", "dkms"]
    assert todo.transaction.hold == []
    older = {**RUNFILE, "version": "550.54.15", "runfile_url": "https://mirror.example/x.run"}
    todo = driver_plan.plan(host("gentoo-2", headers=(K12,)), older, None).todo
    assert todo.runfile["options"][-1] == "-m=kernel-open"
    assert todo.runfile["url"] == "https://mirror.example/x.run"


@pytest.mark.parametrize(
    ("wish", "login"),
    [
        ({"runfile_url": "https://m.example/x.run"}, ("robot", "s3cret")),
        ({"runfile_url": "https://m.example/x.run", "mirror": "https://m.example:443/cuda"}, ("robot", "s3cret")),
        # Another server does not receive the login of the mirror.
        ({"runfile_url": "https://x.example/x.run", "mirror": "https://m.example/cuda"}, ("", "")),
        ({"mirror": "https://m.example/cuda"}, ("", "")),
    ],
)
def test_installer_login(wish, login):
    logins = {"repository_username": "robot", "repository_password": "s3cret", "proxy": PROXY}
    logins.update(proxy_username="me", proxy_password="w@rd/")
    result = driver_plan.plan(host("debian-12"), {**RUNFILE, **logins, **wish}, platform("debian-12"))
    assert result.errors == []
    todo = result.todo.runfile
    assert (todo["username"], todo["password"]) == login
    assert todo["proxy"] == "http://me:w%40rd%2F@proxy.example:3128"


@pytest.mark.parametrize(("headers", "install"), [((), [f"linux-headers-{K12}", "dkms"]), ((K12,), ["dkms"])])
def test_installer_needs_build_packages(headers, install):
    there = host("debian-12", headers=headers)
    asked = driver_plan.plan(there, RUNFILE, platform("debian-12")).todo.query
    plan = driver_plan.plan(there, RUNFILE, platform("debian-12"), {name: ["3.0.10-8"] for name in asked})
    assert (plan.errors, plan.version) == ([], "580.95.05")
    assert plan.todo.transaction.install == install
    assert plan.todo.runfile["url"].endswith("-580.95.05.run")


def test_installer_does_not_run_again():
    there = host("debian-12", headers=(K12,), driver={"library": "580.95.05", "runfile": True}, packages={"dkms": "3"})
    assert driver_plan.plan(there, RUNFILE, platform("debian-12")).todo.runfile is None
    newer = {**RUNFILE, "version": "580.126.09"}
    assert driver_plan.plan(there, newer, platform("debian-12")).todo.runfile


@pytest.mark.parametrize("built", [False, True])
def test_interrupted_installer_runs_again(built):
    modules = {K12: "580.95.05"} if built else {}
    driver = {"library": "580.95.05", "runfile": True}
    there = host("debian-12", headers=(K12,), modules=modules, driver=driver, packages={"dkms": "3"})
    there["files"][owned.DRIVER_RUNFILE_RECORD] = {"exists": True, "content": '{"pending": "580.95.05"}'}
    plan = driver_plan.plan(there, RUNFILE, platform("debian-12"))
    assert (plan.applies["runfile"], plan.applies["runfile_record"]) == (not built, built)
    assert plan.todo.runfile_record == ('{"installed": "580.95.05"}\n' if built else None)


# --- holds and files ---


def test_driver_and_dependencies_are_held():
    there = converged(held=())
    add_package(there, "nvidia-alternative", NEW)
    add_package(there, "nvidia-container-toolkit", "1.18.0-1")
    result = driver_plan.plan(there, {}, platform("debian-12"))
    work = result.todo.transaction
    assert {name for name, value in vars(work).items() if value} == {"hold"}
    names = {*there["packages"], "dkms"}
    assert {name for name in names if selects(work.hold, name, (there["packages"].get(name) or {}).get("version"))} == (
        names - {"nvidia-container-toolkit", "dkms", f"linux-headers-{K12}"}
    )


@pytest.mark.parametrize("key", ["el-9", "sles-15"])
def test_a_lock_of_the_user_with_wildcards_is_not_released(key):
    there = converged(key)
    there["package_state"]["held_patterns"] = ["*"]
    result = driver_plan.plan(there, {"hold": False}, platform(key))
    assert (result.errors, result.changes, result.acts) == ([], [], False)
    there["package_state"]["held_patterns"] = ["*", "nvidia-driver-cuda", "nvidia-compute-utils-G06"]
    name, *rest = driver_plan.plan(there, {"hold": False}, platform(key)).todo.transaction.release
    assert name in there["package_state"]["held_patterns"]
    # dnf keeps locks on versions that are not installed.
    assert len(rest) == (1 if key == "el-9" else 0)


def test_hold_false_removes_holds_and_files():
    result = driver_plan.plan(converged(), {"hold": False}, platform("debian-12"))
    assert "libcuda1" in result.todo.transaction.release
    assert result.todo.transaction.hold == []
    gone = [file["path"] for file in all_files(result) if file["state"] == "absent"]
    assert gone == [owned.DRIVER_UNATTENDED_UPGRADES]
    (pin,) = (file["content"] for file in all_files(result) if file["path"] == owned.DRIVER_APT_PREFERENCES)
    assert "Pin: release o=NVIDIA\n" in pin
    assert "Pin: version" not in pin


def test_modprobe_file_has_requested_content():
    nouveau = {"nouveau": {"loaded": False, "bound": [], "available": True, "blacklisted_by": []}}
    there = converged(foreign_drivers=nouveau)
    options = {"nvidia": {"NVreg_RestrictProfilingToAdminUsers": 0}}
    there["files"] = {}
    files = driver_plan.plan(there, {"module_options": options}, platform("debian-12")).todo.files
    (content,) = [file["content"] for file in files if file["path"] == owned.MODPROBE]
    assert content.splitlines()[1:] == [
        "blacklist nouveau",
        "options nouveau modeset=0",
        "options nvidia NVreg_RestrictProfilingToAdminUsers=0",
    ]
    nouveau["nouveau"]["blacklisted_by"] = ["/etc/modprobe.d/nvidia-blacklists-nouveau.conf"]
    files = driver_plan.plan(converged(foreign_drivers=nouveau), {}, platform("debian-12")).todo.files
    assert files == []


def test_interrupted_installation_is_completed():
    there = converged(package_state={"interrupted": True})
    assert driver_plan.plan(there, {}, platform("debian-12")).applies["packages"]
    there = converged(package_state={"unfinished": ["nvidia-kernel-dkms"]})
    assert driver_plan.plan(there, {}, platform("debian-12")).applies["packages"]


def test_interrupted_run_is_recorded_on_complete_host():
    """Ansible was killed during the DKMS build, and the package manager completed its work."""
    there = converged()
    record = {"exists": True, "content": '{"pending": ["vim"], "asked": ["dkms"]}'}
    there["files"][owned.DRIVER_RECORD] = record
    plan = driver_plan.plan(there, {}, platform("debian-12"))
    assert [step for step, is_due in plan.applies.items() if is_due] == ["packages"]
    assert not any(vars(plan.todo.transaction).values())
    assert plan.changes == ["complete and record what an interrupted run installed"]
    record["content"] = '{"packages": ["dkms"]}'
    assert not driver_plan.plan(there, {}, platform("debian-12")).acts


@pytest.mark.parametrize(
    ("state", "loaded", "todo"),
    [
        ({}, "580", ["nvidia-fabricmanager.service"]),
        ({"unit_file_state": "enabled", "active_state": "active"}, "580", []),
        ({"unit_file_state": "enabled", "active_state": "failed"}, "580", ["nvidia-fabricmanager.service"]),
        ({"unit_file_state": "enabled", "active_state": "inactive"}, None, []),
    ],
)
def test_fabric_manager_is_enabled_and_started(state, loaded, todo):
    there = host("el-9", (H100,), nvidia={"nvswitches": ["a"]}, driver={"loaded": loaded})
    there["services"] = {"nvidia-fabricmanager.service": state}
    there["files"] = {owned.DRIVER_RECORD: {"exists": True, "content": '{"packages": ["nvidia-driver-cuda"]}'}}
    assert driver_plan.plan(there, {"source": "nvidia"}, platform("el-9")).todo.services == todo


def test_adopted_driver_is_loaded():
    there = host("el-9", (A100,), driver={"library": "570.86.15", "on_disk": "570.86.15"}, packages={})
    result = driver_plan.plan(there, {}, platform("el-9"))
    assert result.action == "adopt"
    assert result.applies["packages"] is False
    assert result.todo.modules["load"] == ["nvidia", "nvidia_uvm"]
    assert driver_plan.plan(there, {"activate": False}, platform("el-9")).todo.modules["load"] == []


IGNORED = [
    ({"fabric_manager": "enabled"}, "nvidia_driver_fabric_manager (enabled)"),
    ({"imex": True}, "nvidia_driver_imex (true)"),
    ({"components": ["compute", "video", "opencl"]}, "nvidia_driver_components (video, opencl)"),
    ({"extra_packages": ["nvtop"]}, "nvidia_driver_extra_packages (nvtop)"),
    ({"fabric_manager": "auto", "imex": False, "components": ["compute"], "extra_packages": []}, None),
]


@pytest.mark.parametrize(("wish", "words"), IGNORED)
def test_ignored_settings_of_adopted_driver_are_reported(wish, words):
    there = host("el-9", (A100,), driver={"library": "570.86.15", "on_disk": "570.86.15"})
    said = [reason for reason in driver_plan.plan(there, wish, platform("el-9")).reasons if "is ignored" in reason]
    assert len(said) == (1 if words else 0)
    assert all(reason.startswith(f"{words} is ignored") for reason in said)


RUNNING = {"load_state": "loaded", "unit_file_state": "enabled", "active_state": "active"}
FABRIC, IMEX = "nvidia-fabricmanager.service", "nvidia-imex.service"
FULFILLED = [
    ({"fabric_manager": "enabled"}, {"services": {FABRIC: RUNNING}}, None),
    # The role starts it.
    ({"fabric_manager": "enabled"}, {"services": {FABRIC: {**RUNNING, "active_state": "failed"}}}, None),
    ({"fabric_manager": "enabled"}, {"services": {FABRIC: {**RUNNING, "unit_file_state": "disabled"}}}, None),
    ({"fabric_manager": "enabled"}, {"services": {FABRIC: {**RUNNING, "load_state": "masked"}}}, "(enabled)"),
    ({"fabric_manager": "enabled"}, {"services": {FABRIC: {**RUNNING, "load_state": "not-found"}}}, "(enabled)"),
    ({"imex": True}, {"services": {IMEX: {"load_state": "loaded", "active_state": "inactive"}}}, None),
    ({"imex": True}, {"services": {IMEX: {"load_state": "not-found", "active_state": "inactive"}}}, "(true)"),
    ({"extra_packages": ["nvtop", "clinfo"]}, {"packages": {"nvtop": "3.0", "clinfo": "3.0"}}, None),
    ({"extra_packages": ["nvtop", "clinfo"]}, {"packages": {"nvtop": "3.0"}}, "(clinfo)"),
    ({"components": ["video"]}, {"packages": dict.fromkeys(["libnvidia-encode-570", "libnvidia-decode-570"], "570")},
     None),
    ({"components": ["video", "opencl"]}, {"packages": {"libnvidia-encode-570": "570"}}, "(video, opencl)"),
]  # fmt: skip


@pytest.mark.parametrize(("wish", "changes", "words"), FULFILLED)
def test_satisfied_settings_of_adopted_driver_are_not_reported(wish, changes, words):
    driver = {"library": "570.86.15", "on_disk": "570.86.15", "loaded": "570.86.15"}
    there = host("ubuntu-22.04", driver=driver, **changes)
    result = driver_plan.plan(there, {"source": "preinstalled", **wish}, platform("ubuntu-22.04"))
    said = [reason for reason in result.reasons if "is ignored" in reason]
    assert (result.errors, len(said)) == ([], 1 if words else 0)
    assert all(f" {words} is ignored" in reason for reason in said)


@pytest.mark.parametrize(
    ("there", "peermem", "written"),
    [
        (None, False, None),
        (None, True, ["nvidia_uvm", "nvidia_peermem"]),
        ("# Something\nnvidia_peermem\n", False, ["nvidia_uvm"]),
    ],
)
def test_peermem_is_loaded_for_adopted_driver(there, peermem, written):
    files = {owned.MODULES_LOAD: {"exists": True, "content": there}} if there else {}
    adopted = host("el-9", (A100,), driver={"library": "570.86.15", "on_disk": "570.86.15"}, files=files)
    todo = driver_plan.plan(adopted, {"peermem": peermem}, platform("el-9")).todo
    texts = [file["content"] for file in todo.files if file["path"] == owned.MODULES_LOAD]
    assert [text.splitlines()[1:] for text in texts] == ([written] if written else [])
    if texts:
        adopted["files"] = {owned.MODULES_LOAD: {"exists": True, "content": texts[0]}}
        assert driver_plan.plan(adopted, {"peermem": peermem}, platform("el-9")).todo.files == []


SWITCH = {"nvlink5_switches": ["mlx5_0"]}


@pytest.mark.parametrize(
    ("loaded", "modules", "load"),
    [
        (None, [], ["ib_umad", "nvidia", "nvidia_uvm"]),
        (None, ["ib_umad"], ["nvidia", "nvidia_uvm"]),
        ("580.95.05", ["nvidia", "nvidia_uvm"], ["ib_umad"]),
        ("580.95.05", ["ib_umad", "nvidia", "nvidia_uvm"], []),
    ],
)
def test_nvlink_5_loads_ib_umad(loaded, modules, load):
    driver = {"loaded": loaded, "library": loaded, "on_disk": "580.95.05"}
    packages = {"nvidia-driver-cuda": "3:580.95.05-1"}
    there = host("el-9", (H100,), packages=packages, driver=driver, modules_loaded=modules, nvidia=SWITCH)
    todo = driver_plan.plan(there, {}, platform("el-9")).todo
    assert todo.modules["load"] == load
    assert "\nnvidia_uvm\nib_umad\n" in next(
        file["content"] for file in todo.files if file["path"] == owned.MODULES_LOAD
    )
    todo = driver_plan.plan(there, {"fabric_manager": "disabled"}, platform("el-9")).todo
    assert "ib_umad" not in todo.modules["load"]


@pytest.mark.parametrize(
    ("key", "packages", "has_dkms"),
    [("el-9", {}, True), ("sles-15", {}, False), ("sles-15", {"dkms": "3.0-1"}, True), ("gentoo-2", {}, True)],
)
def test_installer_uses_dkms(key, packages, has_dkms):
    kernel = KERNELS.get(key, "6.12.1")
    there = host(key, packages=packages, kernel=kernel, headers=(kernel,))
    request = {"source": "runfile", "version": "580.95.05", "runfile_checksum": "sha256:" + "0" * 64}
    result = driver_plan.plan(there, request, None if key == "gentoo-2" else platform(key))
    assert result.errors == []
    assert ("--dkms" in result.todo.runfile["options"]) is has_dkms
    assert any("no DKMS:" in reason for reason in result.reasons) is not has_dkms


def test_changes_need_root_but_a_converged_host_does_not():
    (error,) = driver_plan.plan(host(uid=1000), {}, platform("debian-12")).errors
    assert error == "This task needs root, but it runs as uid 1000. Set `become: true`."
    assert driver_plan.plan({**converged(), "uid": 1000}, {}, platform("debian-12")).errors == []
