# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drivers that a distribution or another vendor built: which driver a host has, and what happens to it.

Names of packages: NVIDIA/yum-packaging-precompiled-kmod, DISTROS.md and dnf-kmod-nvidia.spec (main, a66bc12); for
AlmaLinux also AlmaLinux/wiki, docs/documentation/nvidia.md (555643f). User space of Red Hat: mizdebsk/rhel-drivers,
internal/provider/nvidia/nvidia.go (e016a4d). Inferred: the versions of CIQ's user space, the vendors, and that packages
of Red Hat's user space have the names of NVIDIA's.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_ownership
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    A100,
    FROM_DEBIAN,
    FROM_NVIDIA,
    FROM_UBUNTU,
    H100,
    KERNELS,
    T4,
    V100,
    host,
    origin,
    platform,
    resolve,
)

V = "580.105.08"
PLUGIN = {"python3-dnf-plugin-versionlock": "4.3.0-16.el9"}
NVIDIA_KEY = {"el-9": "9cd0a493d42d0685", "el-10": "00000000cdf6ba43", "amazon-2023": "9cd0a493d42d0685"}
RED_HAT = origin("Red Hat, Inc.", "rhel-10-for-x86_64-extensions-rpms", "199e2f91fd431d51")
ALMALINUX = origin("AlmaLinux", "almalinux-nvidia", "2ae81e8aced7258b")
USER_SPACE = ("nvidia-driver-cuda", "nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-persistenced")


class Dressed(NamedTuple):
    """A host with a driver whose modules another vendor built."""

    key: str
    system: dict[str, str]
    # Packages with kernel modules: name and version.
    modules: dict[str, str]
    user_space: dict[str, str]
    # Where the modules came from, and the user space.
    origins: tuple[dict, dict]
    flavor: str = "open"
    stream: str | None = None


def _user_space(release: str, names: tuple[str, ...] = USER_SPACE) -> dict[str, str]:
    return dict.fromkeys(names, f"3:{V}-1{release}")


HOSTS = {
    "RHEL 10.1, Red Hat": Dressed(
        "el-10",
        {"id": "rhel", "version": "10.1"},
        {f"kmod-nvidia-open-{V}-6.12.0-124.20.1": f"{V}-3.el10_1"},
        _user_space(".el10", (*USER_SPACE, "nvidia-driver")),
        (RED_HAT, RED_HAT),
    ),
    "RHEL 9, Red Hat": Dressed(
        "el-9",
        {"id": "rhel", "version": "9.7"},
        {f"kmod-nvidia-open-{V}-5.14.0-611.5.1": f"{V}-3.el9_7"},
        _user_space(".el9"),
        (RED_HAT, RED_HAT),
    ),
    "RHEL 9, NVIDIA's precompiled stream": Dressed(
        "el-9",
        {"id": "rhel", "version": "9.6"},
        {f"kmod-nvidia-{V}-5.14.0-570.12.1": f"3:{V}-3.el9_6"},
        _user_space(".el9"),
        (origin(key=NVIDIA_KEY["el-9"]), origin(key=NVIDIA_KEY["el-9"])),
        "proprietary",
        "580",
    ),
    # The user space comes from NVIDIA's repository, which almalinux-release-nvidia-driver enables.
    "AlmaLinux 9": Dressed(
        "el-9",
        {"id": "almalinux", "version": "9.7"},
        {"kmod-nvidia-open": f"3:{V}-2.el9_7", "nvidia-open-kmod": f"3:{V}-2.el9_7"},
        _user_space(".el9"),
        (ALMALINUX, origin(key=NVIDIA_KEY["el-9"])),
    ),
    "AlmaLinux 10": Dressed(
        "el-10",
        {"id": "almalinux", "version": "10.1"},
        {"kmod-nvidia-open": f"3:{V}-2.el10_1", "nvidia-open-kmod": f"3:{V}-2.el10_1"},
        _user_space(".el10"),
        (ALMALINUX, origin(key=NVIDIA_KEY["el-10"])),
    ),
    "Rocky Linux 10, CIQ": Dressed(
        "el-10",
        {"id": "rocky", "version": "10.1"},
        {"kmod-nvidia-dc-open-latest": f"{V}-1.el10_1_ciq"},
        {"nvidia-dc-driver-latest": f"{V}-1.el10_1_ciq", "nvidia-driver-cuda": f"3:{V}-1.el10"},
        (origin("CIQ"), origin("CIQ")),
    ),
    # Same names and signatures as in NVIDIA's repository, which Amazon mirrors.
    "Amazon Linux 2023, Amazon": Dressed(
        "amazon-2023",
        {"id": "amzn", "version": "2023"},
        {"kmod-nvidia-open-dkms": f"3:{V}-1.amzn2023"},
        _user_space(".amzn2023"),
        (
            origin(repository="amazonlinux-nvidia", key=NVIDIA_KEY["amazon-2023"]),
            origin(repository="amazonlinux-nvidia", key=NVIDIA_KEY["amazon-2023"]),
        ),
    ),
}  # fmt: skip


def data_of(name: str) -> dict:
    """Return the data of the role for the distribution of a host."""
    return platform(HOSTS[name].key, {"key": HOSTS[name].key, **HOSTS[name].system})


def dressed(name: str, *, known: bool = True, loaded: bool = True, **changes: Any) -> dict:
    """Describe the host. Without `known`, the package manager does not know where the packages came from."""
    key, system, modules, user_space, (built, rest), flavor, stream = HOSTS[name]
    packages = {**modules, **user_space}
    origins = {**{name: [built] for name in modules}, **{name: [rest] for name in user_space}}
    settings = {
        "os": system,
        "packages": {**packages, **PLUGIN},
        "package_origins": origins if known else {},
        "module_streams": {"nvidia-driver": stream} if stream else {},
        "driver": {
            "loaded": V if loaded else None,
            "kernel_module_flavor": flavor if loaded else None,
            "on_disk_flavor": flavor,
            "library": V,
        },
        "modules": {KERNELS[key]: V},
        "modules_loaded": ["nvidia", "nvidia_uvm"] if loaded else [],
        **changes,
    }
    return host(key, (A100,), **settings)


def built_on_host(name: str) -> bool:
    return any(package.endswith("-dkms") for package in HOSTS[name].modules)


@pytest.mark.parametrize("loaded", [True, False])
@pytest.mark.parametrize("name", HOSTS)
def test_vendor_driver_is_adopted_and_never_converted(name, loaded):
    there = dressed(name, loaded=loaded)
    result = driver_plan.plan(there, {}, data_of(name))
    assert (result.errors, result.action, result.source) == ([], "adopt", "preinstalled")
    assert (result.flavor, result.version) == (HOSTS[name].flavor, V)
    work = result.todo.transaction
    assert {option for option, value in vars(work).items() if value} == {"hold"}
    assert (result.todo.query, result.todo.prerequisites, result.todo.build) == ([], [], [])
    (reason,) = [text for text in result.reasons if text.startswith("source preinstalled")]
    assert sorted(HOSTS[name].modules)[0] in reason
    # A hold on modules that were built for a kernel would keep out those for the next kernel.
    expected = {**HOSTS[name].user_space, **(HOSTS[name].modules if built_on_host(name) else {})}
    assert work.hold == sorted(expected)


@pytest.mark.parametrize("name", HOSTS)
def test_second_run_changes_nothing(name):
    first = driver_plan.plan(dressed(name), {}, data_of(name))
    held = first.todo.transaction.hold
    there = dressed(name, held=held)
    record = json.dumps({"packages": [], "files": {}, "holds": held})
    there["files"] = {owned.DRIVER_RECORD: {"exists": True, "content": record}}
    second = driver_plan.plan(there, {}, data_of(name))
    assert (second.errors, second.acts, second.source) == ([], False, "preinstalled")


@pytest.mark.parametrize("name", [name for name in HOSTS if not built_on_host(name)])
def test_names_of_the_modules_suffice(name):
    result = driver_plan.plan(dressed(name, known=False), {}, data_of(name))
    assert (result.errors, result.action, result.source) == ([], "adopt", "preinstalled")


AMAZON = "Amazon Linux 2023, Amazon"
MIRROR_OF_AMAZON = {
    "id": "amazonlinux-nvidia",
    "file": "/etc/yum.repos.d/amazonlinux-nvidia.repo",
    "url": None,
    "enabled": True,
}
CUDA = {
    "id": "cuda-amzn2023-x86_64",
    "file": "/etc/yum.repos.d/cuda-amzn2023.repo",
    "url": "https://developer.download.nvidia.com/compute/cuda/repos/amzn2023/x86_64",
    "enabled": True,
}


@pytest.mark.parametrize(
    ("repositories", "source"),
    [
        ([MIRROR_OF_AMAZON], "preinstalled"),
        ([MIRROR_OF_AMAZON, {**CUDA, "enabled": False}], "preinstalled"),
        ([MIRROR_OF_AMAZON, CUDA], "nvidia"),
        ([MIRROR_OF_AMAZON, {**CUDA, "id": "mirror", "url": "https://mirror.example.com/amzn2023/x86_64/"}], "nvidia"),
        ([{**MIRROR_OF_AMAZON, "enabled": False}, CUDA], "nvidia"),
        ([], "nvidia"),
    ],
)
def test_enabled_mirror_decides_without_the_history_of_dnf(repositories, source):
    # The packages have the same names and signatures in both repositories.
    there = dressed(AMAZON, repositories=repositories)
    for entries in there["package_origins"].values():
        entries[0] = {**entries[0], "repository": None}
    result = driver_plan.plan(there, {}, data_of(AMAZON))
    assert (result.errors, result.source) == ([], source)
    if source == "preinstalled":
        assert any("amazonlinux-nvidia" in text for text in result.reasons)


@pytest.mark.parametrize("name", [name for name in HOSTS if not built_on_host(name)])
def test_modules_without_libraries_are_not_converted(name):
    there = dressed(name, loaded=False, modules={}, packages=HOSTS[name].modules)
    there["accelerators"]["nvidia"]["driver"].update(library=None, on_disk_flavor=None)
    result = driver_plan.plan(there, {}, data_of(name))
    (error,) = result.errors
    assert "Complete the installation first" in error
    assert not result.acts


@pytest.mark.parametrize(
    ("name", "vendor"),
    [
        ("RHEL 10.1, Red Hat", "Red Hat, Inc."),
        ("AlmaLinux 10", "AlmaLinux"),
        ("RHEL 9, NVIDIA's precompiled stream", "NVIDIA"),
        ("Amazon Linux 2023, Amazon", "amazonlinux-nvidia"),
    ],
)
def test_reason_names_the_vendor(name, vendor):
    result = driver_plan.plan(dressed(name), {}, data_of(name))
    (reason,) = [text for text in result.reasons if text.startswith("source preinstalled")]
    assert vendor in reason


@pytest.mark.parametrize("name", [name for name in HOSTS if not built_on_host(name)])
def test_other_source_does_not_replace_vendor_modules(name):
    result = driver_plan.plan(dressed(name), {"source": "nvidia"}, data_of(name))
    (error,) = result.errors
    assert f"kernel modules from other packages are installed ({sorted(HOSTS[name].modules)[0]}" in error
    assert "nvidia_driver_source to auto" in error
    assert not result.acts


def recorded(**content: Any) -> dict:
    return {owned.DRIVER_RECORD: {"exists": True, "content": json.dumps({"files": {}, **content})}}


@pytest.mark.parametrize("secure_boot", [False, True])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", [name for name in HOSTS if not built_on_host(name)])
def test_vendor_driver_replaced_the_driver_of_the_role(name, known, secure_boot):
    # The user removed the role's modules. The libraries of the vendors have the same names.
    packages = ["dkms", "kmod-nvidia-open-dkms", *HOSTS[name].user_space]
    record = recorded(packages=packages, requested=packages, repositories=[owned.REPOSITORY_ID])
    there = dressed(name, known=known, files=record, **({"secure_boot": SECURE_BOOT} if secure_boot else {}))
    result = driver_plan.plan(there, {}, data_of(name))
    assert (result.errors, result.action, result.source) == ([], "adopt", "preinstalled")
    assert (result.todo.transaction.install, result.todo.transaction.remove) == ([], [])


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", HOSTS)
def test_interrupted_hold_does_not_convert_the_vendor_driver(name, known):
    plain = dressed(name, known=known)
    # The run was killed while it installed dnf's plugin.
    begun = record_ownership.begin(
        {}, [item for item in plain["installed_packages"] if item not in PLUGIN], asked=[*PLUGIN]
    )
    there = dressed(name, known=known, files=recorded(**begun))
    found, expected = driver_plan.plan(there, {}, data_of(name)), driver_plan.plan(plain, {}, data_of(name))
    assert (found.errors, found.action, found.source) == (expected.errors, expected.action, expected.source)
    assert found.todo.transaction.install == expected.todo.transaction.install


@pytest.mark.parametrize("name", HOSTS)
def test_absent_keeps_the_vendor_driver(name):
    plan = driver_removal.plan(dressed(name), data_of(name))
    assert (plan["errors"], plan["acts"], plan["packages"], plan["unload"]) == ([], False, [], [])


# --- Secure Boot --------------------------------------------------------------------------------------------------

SECURE_BOOT = {"enabled": True, "trusted_signers": ["Red Hat Enterprise Linux kernel signing key"]}


@pytest.mark.parametrize("name", HOSTS)
def test_secure_boot_accepts_the_adopted_driver(name):
    there = dressed(name, secure_boot=SECURE_BOOT)
    assert driver_plan.plan(there, {}, data_of(name)).errors == []


SIGNED = "set nvidia_driver_source to distribution"


@pytest.mark.parametrize(
    ("key", "system", "gpu", "request_", "vendor"),
    [
        ("el-10", {"id": "rhel", "version": "10.1"}, H100, {}, "Red Hat"),
        ("el-10", {"id": "almalinux", "version": "10.1"}, T4, {}, "AlmaLinux"),
        ("el-9", {"id": "almalinux", "version": "9.7"}, H100, {}, "AlmaLinux"),
        # No public source shows such packages there.
        ("el-9", {"id": "rhel", "version": "9.7"}, H100, {}, None),
        ("el-10", {"id": "rhel", "version": "10.0"}, H100, {}, None),
        ("el-8", {"id": "almalinux", "version": "8.10"}, H100, {}, None),
        ("el-9", {"id": "rocky", "version": "9.6"}, H100, {}, None),
        # DKMS builds the modules of Amazon's mirror, too.
        ("amazon-2023", {"id": "amzn", "version": "2023"}, H100, {}, None),
        # The vendors build only the open modules, and the user may require another build.
        ("el-9", {"id": "almalinux", "version": "9.7"}, V100, {}, None),
        ("el-9", {"id": "almalinux", "version": "9.7"}, H100, {"flavor": "proprietary"}, None),
        ("el-9", {"id": "almalinux", "version": "9.7"}, H100, {"module_build": "dkms"}, None),
        ("el-9", {"id": "almalinux", "version": "9.7"}, H100, {"version": V}, "AlmaLinux"),
    ],
)
def test_secure_boot_refusal_names_signed_modules_first(key, system, gpu, request_, vendor):
    there = host(key, (gpu,), os=system, secure_boot=SECURE_BOOT)
    (error,) = resolve(there, {"source": "nvidia", **request_}, platform(key, there["os"])).errors
    assert "Secure Boot is enabled" in error
    assert "mokutil --import" in error
    if vendor is None:
        assert "signs kernel modules" not in error
    else:
        assert error.index(f"{vendor} signs kernel modules") < error.index(SIGNED) < error.index("mokutil")


def test_secure_boot_refusal_removes_the_installed_modules_before_others():
    # With both modules installed, the role would not adopt the driver.
    installed = {"kmod-nvidia-open-dkms": f"3:{V}-1.el9", **_user_space(".el9")}
    system = {"id": "almalinux", "version": "9.7"}
    there = host("el-9", (H100,), os=system, packages=installed, driver={"library": V}, secure_boot=SECURE_BOOT)
    (error,) = resolve(there, {}, platform("el-9", there["os"])).errors
    assert error.index("nvidia_driver_state absent") < error.index(SIGNED)


# --- where packages came from -------------------------------------------------------------------------------------

PPA = origin("LP-PPA-graphics-drivers", "ppa.example.com/ubuntu")
MIRROR = origin(None, "mirror.example.com/cuda/debian12/x86_64")
APTLY = origin(". noble", "mirror.example.com/ubuntu")
# Release pocket of Ubuntu's archive, and NVIDIA's 590.48.01: the same suffix.
POCKET, SAME = "535.171.04-0ubuntu1", "590.48.01-0ubuntu1"
DESKTOP = ("libnvidia-compute-535", "nvidia-dkms-535-open", "nvidia-utils-535")
SERVER = ("libnvidia-compute-535-server", "nvidia-dkms-535-server-open", "nvidia-utils-535-server")
WITH_BRANCH = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580")
PLAIN = ("libnvidia-compute", "nvidia-dkms-open")
DEBIAN_NAMES = ("libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms", "nvidia-smi")
ORIGINS = [
    ("ubuntu-24.04", DESKTOP, POCKET, [FROM_UBUNTU], "preinstalled", "Ubuntu"),
    ("ubuntu-24.04", SERVER, POCKET, [FROM_UBUNTU], "distribution", "come from it"),
    ("ubuntu-24.04", PLAIN, SAME, [FROM_NVIDIA], "nvidia", "come from it"),
    ("ubuntu-24.04", WITH_BRANCH, "580.95.05-0ubuntu1", [FROM_NVIDIA], "nvidia", "come from it"),
    ("ubuntu-24.04", WITH_BRANCH, "580.95.05-1ubuntu1", [PPA], "preinstalled", "LP-PPA-graphics-drivers"),
    ("ubuntu-24.04", SERVER, "535.171.04-1ubuntu1", [PPA], "preinstalled", "LP-PPA-graphics-drivers"),
    ("debian-12", DEBIAN_NAMES, "550.163.01-1", [FROM_NVIDIA], "nvidia", "come from it"),
    ("debian-13", DEBIAN_NAMES, "550.163.01-1", [FROM_NVIDIA], "nvidia", "come from it"),
    ("debian-13", DEBIAN_NAMES, "550.163.01-2", [FROM_DEBIAN], "distribution", "come from it"),
    # Canonical's and Debian's other archives.
    ("ubuntu-24.04", SERVER, POCKET, [origin("UbuntuESM", "esm.example.com/infra")], "distribution", "come from it"),
    ("ubuntu-24.04", SERVER, POCKET, [origin("UbuntuESMApps", "esm.example.com/apps")], "distribution", "come from it"),
    ("debian-12", DEBIAN_NAMES, "550.163.01-2", [origin("Debian Backports", "x")], "distribution", "come from it"),
    # The vendor of Ubuntu's archive is not another vendor, but the role does not use these names.
    ("ubuntu-24.04", DESKTOP, POCKET, [FROM_UBUNTU], "preinstalled", "not the ones that source distribution installs"),
    ("ubuntu-24.04", DESKTOP, POCKET, [PPA], "preinstalled", "come from another vendor"),
    ("ubuntu-24.04", SERVER, POCKET, [origin("pop-os-release", "x")], "preinstalled", "come from another vendor"),
    # Mirrors with a Release file of their own.
    ("ubuntu-24.04", SERVER, POCKET, [APTLY], "distribution", "names"),
    ("ubuntu-24.04", PLAIN, SAME, [APTLY], "nvidia", "names"),
    ("ubuntu-24.04", DESKTOP, POCKET, [APTLY], "preinstalled", "is unknown (libnvidia-compute-535 from . noble"),
    ("debian-13", DEBIAN_NAMES, "550.163.01-2", [APTLY], "distribution", "names"),
    # A mirror without NVIDIA's Release file.
    ("debian-12", DEBIAN_NAMES, "550.163.01-1", [MIRROR], "nvidia", "come from it"),
    # Both repositories have this version.
    ("debian-13", DEBIAN_NAMES, "550.163.01-2", [FROM_DEBIAN, FROM_NVIDIA], "distribution", "names"),
    # apt's lists were removed.
    ("ubuntu-24.04", SERVER, POCKET, [], "distribution", "names"),
    ("ubuntu-24.04", PLAIN, SAME, [], "nvidia", "names"),
    ("ubuntu-24.04", DESKTOP, POCKET, [], "preinstalled", "unknown"),
    ("ubuntu-24.04", WITH_BRANCH, "580.95.05-1ubuntu1", [], "preinstalled", "unknown"),
    ("debian-13", DEBIAN_NAMES, "550.163.01-2", [], "distribution", "names"),
]  # fmt: skip


def with_origins(key: str, names: tuple[str, ...], version: str, origins: list[dict]) -> dict:
    upstream = version.partition("-")[0]
    return host(
        key,
        (A100,),
        packages={**dict.fromkeys(names, version), "dkms": "3.0.11-1ubuntu13"},
        package_origins=dict.fromkeys(names, origins) if origins else {},
        driver={"loaded": upstream, "kernel_module_flavor": "open", "library": upstream},
        modules={KERNELS[key]: upstream},
        headers=(KERNELS[key],),
    )


@pytest.mark.parametrize("case", ORIGINS, ids=str)
def test_source_is_read_from_the_package_manager(case):
    key, names, version, origins, source, why = case
    there = with_origins(key, names, version, origins)
    assert driver_source.installed(there, platform(key)) == source
    result = resolve(there, {}, platform(key))
    assert (result.errors, result.source) == ([], source)
    assert any(text.startswith(f"source {source}") and why in text for text in result.reasons)


@pytest.mark.parametrize(
    ("key", "distribution", "names", "version", "vendor"),
    [
        ("ubuntu-24.04", "pop", SERVER, POCKET, "Ubuntu"),
        ("ubuntu-24.04", "neon", SERVER, POCKET, "UbuntuESM"),
        ("debian-13", "a-derivative", DEBIAN_NAMES, "550.163.01-2", "Debian"),
    ],
)
def test_derivatives_use_the_archive_of_their_family(key, distribution, names, version, vendor):
    there = with_origins(key, names, version, [origin(vendor, "archive.example.com")])
    there["os"]["id"] = distribution
    result = resolve(there, {}, platform(key))
    assert (result.errors, result.source) == ([], "distribution")
    assert "source distribution: the installed driver packages come from it" in result.reasons


@pytest.mark.parametrize("vendor", ["UbuntuESM", ". noble", "ACME Ubuntu mirror"])
def test_minimum_version_is_not_refused_behind_a_mirror(vendor):
    there = with_origins("ubuntu-24.04", SERVER, POCKET, [origin(vendor, "mirror.example.com/ubuntu")])
    result = resolve(there, {"minimum_version": "535.200"}, platform("ubuntu-24.04"))
    assert (result.errors, result.source) == ([], "distribution")


def test_record_of_the_role_comes_first():
    there = with_origins("debian-13", DEBIAN_NAMES, "550.163.01-2", [FROM_DEBIAN, FROM_NVIDIA])
    record = json.dumps({"packages": ["libcuda1"], "repositories": [owned.REPOSITORY_ID], "files": {}})
    there["files"] = {owned.DRIVER_RECORD: {"exists": True, "content": record}}
    result = resolve(there, {}, platform("debian-13"))
    assert (result.source, result.reasons[0]) == (
        "nvidia",
        "source nvidia: the installed driver packages come from it",
    )


# --- a driver that the user purged --------------------------------------------------------------------------------

PURGED = {
    "packages": [
        *("dkms", "libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-driver-cuda"),
        "nvidia-kernel-open-dkms",
    ],
    "requested": ["libcuda1", "nvidia-kernel-open-dkms"],
    "repositories": [owned.REPOSITORY_ID],
    "key": "02182E60104FCDC26EAE1B8597A5D4CB8793F200",
    "files": {},
}


@pytest.mark.parametrize("source", ["distribution", "auto"])
def test_source_changes_after_a_purge_that_left_a_library(source):
    left = {"libnvidia-ptxjitcompiler1": "580.95.05-1", "dkms": "3.2.0-1"}
    kernel = KERNELS["debian-13"]
    before = host("debian-13", packages=left, headers=(kernel,), files=recorded(**PURGED))
    first = driver_plan.plan(before, {"source": "distribution"}, platform("debian-13"))
    assert first.errors == []
    names = [item.partition("=")[0] for item in first.todo.transaction.install]
    begun = record_ownership.begin(PURGED, left, asked=names)
    record = record_ownership.finish(begun, left, [*left, *names], enabled={})
    version = "550.163.01"
    # Debian's libcuda1 requires the remaining library in its own version.
    after = host(
        "debian-13",
        packages={**left, **dict.fromkeys([*names, "libnvidia-ptxjitcompiler1"], f"{version}-2")},
        package_origins={name: [FROM_DEBIAN] for name in names},
        files={owned.DRIVER_RECORD: {"exists": True, "content": record_ownership.text(record)}},
        driver={"loaded": version, "library": version, "kernel_module_flavor": "open"},
        modules={kernel: version},
        headers=(kernel,),
    )
    second = driver_plan.plan(after, {"source": source}, platform("debian-13"))
    assert (second.errors, second.source, second.todo.transaction.install) == ([], "distribution", [])


def test_known_origin_decides_after_the_user_installed_another_driver():
    # Debian's packages have names of the role's record.
    there = with_origins("debian-13", DEBIAN_NAMES, "550.163.01-2", [FROM_DEBIAN])
    there["files"] = recorded(**PURGED)
    result = resolve(there, {}, platform("debian-13"))
    assert (result.errors, result.source) == ([], "distribution")
