# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_generations
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role
from ansible_collections.gpufleet.hosts.tests.unit.plugins import toolkit_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    A100,
    B200,
    FROM_NVIDIA,
    GB200,
    H100,
    KERNELS,
    T4,
    V100,
    host,
    offer,
    platform,
    resolve,
)

# Requests other than source and flavor, which test_driver_table.py covers.
RULES = [
    ("debian-12", (V100,), {}, "distribution proprietary 535 dkms"),
    ("debian-12", (A100,), {"flavor": "open"}, "distribution open 535 dkms"),
    ("debian-13", (H100,), {}, "distribution open 550 dkms"),
    ("debian-13", (B200,), {}, "nvidia open 580 dkms"),
    ("ubuntu-22.04", (T4,), {}, "distribution open 580 precompiled"),
    ("ubuntu-24.04", (V100,), {}, "distribution proprietary 580 precompiled"),
    ("ubuntu-24.04", (A100,), {"branch": 595}, "distribution open 595 precompiled"),
    ("ubuntu-24.04", (A100,), {"source": "nvidia", "branch": "595"}, "nvidia open 595 dkms"),
    ("ubuntu-26.04", (B200,), {"module_build": "dkms"}, "distribution open 580 dkms"),
    ("el-9", (V100,), {}, "nvidia proprietary 580 dkms"),
    ("el-9", (A100, H100), {}, "nvidia open 580 dkms"),
    ("el-10", (GB200,), {"minimum_version": "595"}, "nvidia open 595 dkms"),
    ("amazon-2023", (H100,), {"version": "580.95.05"}, "nvidia open 580 dkms"),
    ("sles-15", (A100,), {}, "nvidia open 580 precompiled"),
    ("el-9", (V100, A100), {"flavor": "proprietary"}, "nvidia proprietary 580 dkms"),
]


@pytest.mark.parametrize(("key", "gpus", "request_", "expected"), RULES)
def test_rules_choose_source_flavor_and_branch(key, gpus, request_, expected):
    result = resolve(host(key, gpus), request_, platform(key))
    assert result.errors == []
    assert "{source} {flavor} {branch} {module_build}".format(**vars(result)) == expected
    assert result.reasons


REFUSALS = [
    ("debian-12", (V100, B200), {}, ["0x1db1 (Volta)", "0x2901 (Blackwell)", "a host can load only one kind"]),
    ("el-9", (V100, A100), {}, ["0x1db1 (Volta)", "0x20b0 (Ampere)", "nvidia_driver_flavor to proprietary"]),
    ("el-9", (V100,), {"flavor": "open"}, ["open kernel modules do not support 0x1db1 (Volta)", "auto or proprietary"]),
    ("el-9", (B200,), {"flavor": "proprietary"}, ["only the open kernel modules support 0x2901 (Blackwell)"]),
    (
        "el-9",
        (V100,),
        {"branch": "595"},
        ["nvidia_driver_branch is 595", "0x1db1 (Volta) needs branch 580"],
    ),
    (
        "el-9",
        (B200,),
        {"branch": "550"},
        ["nvidia_driver_branch is 550", "0x2901 (Blackwell) needs branch 570 or newer"],
    ),
    (
        "debian-13",
        (B200,),
        {"source": "distribution"},
        ["0x2901 (Blackwell) needs branch 570", "distribution provides 550"],
    ),
    (
        "debian-12",
        (A100,),
        {"source": "distribution", "branch": "580"},
        ["nvidia_driver_branch is 580", "provides only 535", "another nvidia_driver_source"],
    ),
    ("debian-12", (A100,), {"source": "distribution", "minimum_version": "550"}, ["550", "provides the branches 535"]),
    (
        "el-9",
        (A100,),
        {"source": "distribution"},
        ["Enterprise Linux 9", "no NVIDIA driver", "Available sources: nvidia"],
    ),
    ("el-9", (A100,), {"branch": "595", "version": "580.95.05"}, ["580.95.05 is not in nvidia_driver_branch 595"]),
    ("el-9", (A100,), {"branch": "latest"}, ["nvidia_driver_branch is latest", "580"]),
    ("el-9", (A100,), {"version": "580"}, ["nvidia_driver_version is 580", "580.95.05"]),
    ("el-9", (A100,), {"minimum_version": ">=570"}, ["nvidia_driver_minimum_version is >=570", "570.86"]),
    (
        "el-9",
        (A100,),
        {"flavor": "proprietary", "branch": "620"},
        ["nvidia_driver_branch is 620", "has no proprietary kernel modules", "615"],
    ),
    (
        "el-9",
        (A100,),
        {"module_build": "precompiled"},
        ["nvidia_driver_module_build is precompiled", "provides only dkms", "Use auto"],
    ),
    ("el-9", (A100,), {"version": "390.157"}, ["nvidia_driver_version is 390.157", "0x20b0 (Ampere) needs branch 450"]),
    ("el-9", (A100,), {"source": "preinstalled"}, ["this host has no driver", "Install the driver first"]),
    ("el-9", (A100,), {"source": "runfile"}, ["nvidia_driver_version and nvidia_driver_runfile_checksum are not set"]),
    (
        "debian-12",
        (A100,),
        {"source": "distribution", "fabric_manager": "enabled"},
        ["nvidia_driver_fabric_manager is enabled", "no fabric manager", "nvidia_driver_source to nvidia"],
    ),
    ("debian-12", ("0x102d",), {}, ["0x102d (Kepler or older) needs branch 470"]),
]


@pytest.mark.parametrize(("key", "gpus", "request_", "words"), REFUSALS)
def test_impossible_requests_are_refused(key, gpus, request_, words):
    result = driver_plan.plan(host(key, gpus), request_, platform(key))
    assert len(result.errors) == 1
    for word in words:
        assert word in result.errors[0]


GRACE_HOPPER = "0x2342"


@pytest.mark.parametrize(
    ("key", "kernel", "request_", "source"),
    [
        ("debian-13", "6.12.107+deb13-amd64", {}, "nvidia"),
        ("debian-13", "6.12.94+deb13-amd64", {}, "distribution"),
        ("debian-12", "6.1.0-56-amd64", {}, "nvidia"),
        ("debian-12", "6.1.0-47-amd64", {}, "distribution"),
    ],
)
def test_source_with_build_failure_is_skipped(key, kernel, request_, source):
    result = resolve(host(key, (GRACE_HOPPER,), kernel=kernel), request_, platform(key))
    assert (result.errors, result.source, result.flavor) == ([], source, "open")
    assert any("do not build" in reason for reason in result.reasons) is (source == "nvidia")


def test_an_unknown_platform_or_architecture_is_refused():
    (error,) = resolve(host("gentoo-2"), {}, None).errors
    assert "gentoo-2" in error
    assert "nvidia_driver_source auto or preinstalled" in error
    (error,) = resolve(host("debian-12", arch="ppc64le"), {}, platform("debian-12")).errors
    assert "ppc64le" in error
    assert "x86_64" in error


@pytest.mark.parametrize("gpus", [(), (A100,)])
@pytest.mark.parametrize(
    "request_", [{"branch": "5x0"}, {"source": "ftp"}, {"version": "abc"}, {"mirror": "nonsense"}, {"surprise": 1}]
)
def test_invalid_input_is_refused_without_gpu(gpus, request_):
    (error,) = driver_plan.plan(host("debian-12", gpus), request_, platform("debian-12")).errors
    assert next(iter(request_)) in error


@pytest.mark.parametrize("gpu", [A100, V100])
@pytest.mark.parametrize("key", ["ubuntu-24.04", "gentoo-2"])
def test_the_installer_of_620_has_no_proprietary_modules(key, gpu):
    request = {"source": "runfile", "flavor": "proprietary", "runfile_checksum": "sha256:" + "0" * 64}
    data = platform(key) if key == "ubuntu-24.04" else None
    there = host(key, (gpu,), headers=("6.1.0-47-amd64",))
    (error,) = resolve(there, {**request, "version": "620.10.01"}, data).errors
    assert ("615 is the last branch with them" if gpu == A100 else "needs branch 580 or older") in error
    assert resolve(there, {**request, "version": "580.95.05"}, data).errors == []


def test_host_without_gpu_needs_no_driver():
    result = resolve(host("debian-12", ()), {}, platform("debian-12"))
    assert (result.action, result.errors, result.packages) == ("none", [], [])
    assert "no NVIDIA GPU" in result.reasons[0]


def test_gpus_of_virtual_machines_need_no_driver():
    guests = {"gpus_of_guests": ["0000:3b:00.0", "0000:af:00.0"]}
    result = resolve(host("debian-12", (), nvidia=guests), {}, platform("debian-12"))
    assert (result.action, result.errors, result.packages) == ("none", [], [])
    assert result.reasons == [
        "all GPUs are assigned to virtual machines (0000:3b:00.0, 0000:af:00.0): this host needs no NVIDIA driver"
    ]


def test_proprietary_modules_are_used_if_open_ones_do_not_build():
    result = resolve(host("debian-13", kernel="6.12.117+deb13-amd64"), {}, platform("debian-13"))
    assert result.flavor == "proprietary"
    assert any("6.12.117+deb13-amd64" in reason for reason in result.reasons)


# --- installed drivers ---

PROPRIETARY_535 = {"nvidia-kernel-dkms": "535.309.01-0+deb12u1", "libcuda1": "535.309.01-0+deb12u1"}


def test_installed_packages_decide_source_flavor_and_branch():
    there = host("debian-12", packages=PROPRIETARY_535, driver={"library": "535.309.01"})
    result = resolve(there, {}, platform("debian-12"))
    assert "{source} {flavor} {branch}".format(**vars(result)) == "distribution proprietary 535"


def test_ubuntu_desktop_packages_are_kept():
    packages = {
        "libnvidia-compute-580": "580.95.05-0ubuntu0.24.04.1",
        "nvidia-dkms-580-open": "580.95.05-0ubuntu0.24.04.1",
    }
    there = host("ubuntu-24.04", packages=packages, driver={"library": "580.95.05"})
    assert resolve(there, {}, platform("ubuntu-24.04")).action == "adopt"
    packages = dict.fromkeys(packages, "580.95.05-0ubuntu1")
    origins = {name: [FROM_NVIDIA] for name in packages}
    driver = {"library": "580.95.05"}
    there = host("ubuntu-24.04", packages=packages, package_origins=origins, driver=driver)
    assert resolve(there, {}, platform("ubuntu-24.04")).source == "nvidia"


ADOPTED = {"library": "570.86.15", "loaded": "570.86.15", "kernel_module_flavor": "open"}


@pytest.mark.parametrize("key", ["debian-12", "el-9", "gentoo-2"])
def test_a_driver_of_other_origin_is_adopted_on_any_platform(key):
    data = None if key == "gentoo-2" else platform(key)
    result = resolve(host(key, driver=ADOPTED), {}, data)
    assert (result.action, result.source, result.version) == ("adopt", "preinstalled", "570.86.15")
    assert "the role keeps this driver" in result.reasons[0]


ONLY_LOADED = {"loaded": "535.261.03", "kernel_module_flavor": "open"}


@pytest.mark.parametrize("source", ["auto", "distribution", "nvidia"])
def test_only_loaded_driver_is_installed_again(source):
    there = host("debian-12", driver=ONLY_LOADED, modules_loaded=["nvidia"])
    result = resolve(there, {"source": source}, platform("debian-12"))
    assert (result.errors, result.action) == ([], "install")
    assert result.source == ("distribution" if source == "auto" else source)
    assert result.branch == ("580" if source == "nvidia" else "535")
    assert any(
        "module 535.261.03 is loaded, but the files of its driver are gone" in reason for reason in result.reasons
    )
    (error,) = resolve(there, {"source": "preinstalled"}, platform("debian-12")).errors
    assert "the kernel still has module 535.261.03 loaded, but its files are gone" in error


CONTAINER = "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("debian-12", {"driver": {**ONLY_LOADED, "library": "535.261.03", "library_path": CONTAINER}}),
        ("debian-12", {"driver": {**ONLY_LOADED, "library_path": CONTAINER}}),
        ("debian-12", {"driver": ONLY_LOADED, "modules": {KERNELS["debian-12"]: None}}),
        ("gentoo-2", {"driver": ONLY_LOADED}),
    ],
    ids=["container", "container, version unknown", "module of unknown version", "unknown platform"],
)
def test_loaded_driver_with_files_is_adopted(key, changes):
    data = None if key == "gentoo-2" else platform(key)
    result = resolve(host(key, **changes), {}, data)
    assert (result.errors, result.action, result.version) == ([], "adopt", "535.261.03")


ADOPTION_REFUSALS = [
    (
        (A100,),
        ADOPTED,
        {"version": "580.95.05"},
        ["580.95.05", "570.86.15", "replace the driver with the tool that installed it"],
    ),
    ((A100,), ADOPTED, {"branch": "580"}, ["nvidia_driver_branch is 580", "570.86.15"]),
    ((A100,), ADOPTED, {"minimum_version": "580"}, ["nvidia_driver_minimum_version is 580", "570.86.15"]),
    (("0x3182",), ADOPTED, {}, ["570.86.15 does not support 0x3182 (Blackwell Ultra)"]),
    ((V100,), ADOPTED, {}, ["The installed open kernel modules do not support 0x1db1 (Volta)"]),
    ((B200,), {**ADOPTED, "kernel_module_flavor": "proprietary"}, {}, ["proprietary kernel modules", "0x2901"]),
    ((A100,), {**ADOPTED, "runfile": True}, {"source": "nvidia"}, ["NVIDIA's installer", "nvidia-uninstall"]),
]


@pytest.mark.parametrize(("gpus", "driver", "request_", "words"), ADOPTION_REFUSALS)
def test_unsuitable_driver_is_not_replaced(gpus, driver, request_, words):
    (error,) = resolve(host("el-9", gpus, driver=driver), request_, platform("el-9")).errors
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    ("record", "source"),
    [
        ('{"key": "EB693B30"}', "nvidia"),
        ('{"key": "EB693B30", "packages": ["libcuda1", "nvidia-kernel-dkms"]}', "nvidia"),
        # The user purged the recorded packages.
        ('{"key": "EB693B30", "packages": ["dkms", "libnvidia-cfg1-555"]}', "distribution"),
        ('{"key": "EB693B30", "packages": ["dkms"], "removed": ["libnvidia-cfg1-555"]}', "distribution"),
        ('{"packages": ["libcuda1"]}', "distribution"),
        ("{half of", "distribution"),
        (None, "distribution"),
    ],
)
def test_record_identifies_nvidias_older_branches(record, source):
    files = {record_of_role.DRIVER: {"exists": record is not None, "content": record}}
    there = host("debian-12", packages=PROPRIETARY_535, driver={"library": "535.309.01"}, files=files)
    assert resolve(there, {}, platform("debian-12")).source == source


@pytest.mark.parametrize(
    ("source", "words"),
    [("nvidia", ["from source distribution are installed"]), ("runfile", ["driver packages are installed"])],
)
def test_sources_are_not_mixed(source, words):
    there = host("debian-12", packages=PROPRIETARY_535, driver={"library": "535.309.01"})
    request = {"source": source, "version": "535.309.01", "runfile_checksum": "sha256:" + "0" * 64}
    (error,) = resolve(there, request, platform("debian-12")).errors
    for word in words:
        assert word in error
    assert "nvidia_driver_state absent" in error


OF_DEBIAN = {"debian-12": "535.309.01", "debian-13": "550.163.01"}
OTHER_BRANCHES = [{"branch": "580"}, {"version": "580.95.05"}, {"minimum_version": "570"}, {"branch": "595"}]


def debian_driver(key: str, record: dict | None) -> dict:
    """Describe a host with the distribution's driver, which the role installed unless `record` is None."""
    version = OF_DEBIAN[key]
    packages = dict.fromkeys(("nvidia-driver-libs", "nvidia-smi", "libnvidia-ml1"), f"{version}-1~deb12u1")
    files = {record_of_role.DRIVER: {"exists": record is not None, "content": json.dumps(record)}}
    return host(key, packages=packages, driver={"library": version}, files=files, headers=(KERNELS[key],))


@pytest.mark.parametrize("key", OF_DEBIAN)
@pytest.mark.parametrize("request_", OTHER_BRANCHES, ids=str)
@pytest.mark.parametrize("recorded", [True, False])
def test_branch_of_another_source_is_refused_once_with_the_whole_way(key, request_, recorded):
    data, record = platform(key), {"packages": ["nvidia-smi", "libnvidia-ml1"]} if recorded else None
    there = debian_driver(key, record)
    removal = "remove the installed driver with " + ("nvidia_driver_state absent" if recorded else "apt")
    for source in ("auto", "distribution"):
        resolved = resolve(there, {**request_, "source": source}, data)
        available = offer(there, [*resolved.packages, *resolved.lockstep], f"{OF_DEBIAN[key]}-1")
        (error,) = driver_plan.plan(there, {**request_, "source": source}, data, available).errors
        assert error.lower().index(removal) < error.index("set nvidia_driver_source to nvidia")
        assert "set another nvidia_driver_source" not in error
    (second,) = resolve(there, {**request_, "source": "nvidia"}, data).errors
    assert second.lower().index(removal) < second.index("with nvidia_driver_source nvidia")
    # The distribution does not have this branch.
    assert "to distribution" not in second
    assert "use source" not in second
    # The way ends with a driver.
    assert resolve(host(key), {**request_, "source": "nvidia"}, data).errors == []


def test_other_source_without_reason_names_both_ways():
    there = debian_driver("debian-12", {"packages": ["nvidia-smi"]})
    (error,) = resolve(there, {"source": "nvidia"}, platform("debian-12")).errors
    assert "set nvidia_driver_state to present with nvidia_driver_source nvidia" in error
    assert "To keep the driver instead, set nvidia_driver_source to distribution" in error


# --- Secure Boot, headers, fabric ---

SECURE = {"enabled": True}


def test_secure_boot_refuses_untrusted_modules():
    (error,) = resolve(host("debian-12", secure_boot=SECURE), {}, platform("debian-12")).errors
    for word in (
        "Secure Boot is enabled",
        "mokutil --import /var/lib/dkms/mok.pub",
        "nvidia_driver_secure_boot_key_enrolled",
    ):
        assert word in error


@pytest.mark.parametrize(
    ("key", "secure_boot", "request_"),
    [
        ("ubuntu-24.04", SECURE, {}),
        ("debian-12", SECURE, {"secure_boot_key_enrolled": True}),
        ("debian-12", {"enabled": True, "trusted_signers": ["DKMS module signing key: 0123"]}, {}),
    ],
)
def test_secure_boot_accepts_trusted_modules(key, secure_boot, request_):
    assert resolve(host(key, secure_boot=secure_boot), request_, platform(key)).errors == []


ACME = {"enabled": True, "trusted_signers": ["ACME Inc: ACME module signing: 0123"]}
SIGNED = [
    ("trusted key", {}, {}, "ACME module signing", True),
    ("unsigned", {}, {}, None, False),
    ("untrusted key", {}, {}, "another", False),
    ("without its packages", {"packages": {}}, {"source": "distribution"}, "ACME module signing", False),
    ("only for another kernel", {"next_kernel": "6.1.0-56-amd64"}, {}, "ACME module signing", False),
]


@pytest.mark.parametrize(("changes", "request_", "signer", "goes"), [row[1:] for row in SIGNED],
                         ids=[row[0] for row in SIGNED])  # fmt: skip
def test_modules_with_the_signer_of_installed_ones_are_accepted(changes, request_, signer, goes):
    there = host("debian-12", **{"packages": {"nvidia-kernel-dkms": "535.261.03-1"}, "secure_boot": ACME, **changes})
    for entry in there["kernel"]["kernels"]:
        if entry["release"] == there["kernel"]["running"]:
            entry["nvidia_module"] = {"version": "535.261.03", "flavor": None, "signer": signer}
    result = resolve(there, request_, platform("debian-12"))
    assert (result.errors == []) is goes
    assert any("signed the installed modules (ACME module signing)" in text for text in result.reasons) is goes


def test_signer_of_prebuilt_modules_does_not_count_for_dkms():
    packages = {"linux-modules-nvidia-580-server-open-6.8.0-88-generic": "6.8.0-88.89", "nvidia-utils-580-server": "1"}
    trusts = {"enabled": True, "trusted_signers": ["Canonical Ltd. Kernel Module Signing: 88f7"]}
    there = host("ubuntu-24.04", packages=packages, secure_boot=trusts)
    there["kernel"]["kernels"][0]["nvidia_module"] = {"flavor": None, "signer": "Canonical Ltd. Kernel Module Signing"}
    request = {"module_build": "dkms"}
    (error,) = resolve(there, request, platform("ubuntu-24.04")).errors
    assert "they are built on this host and not signed" in error


@pytest.mark.parametrize("key", ["debian-12", "debian-13"])
@pytest.mark.parametrize(
    ("branch", "package", "other"),
    [
        ("535", "nvidia-smi", "nvidia-driver-cuda"),
        ("550", "nvidia-smi", "nvidia-driver-cuda"),
        ("570", "nvidia-driver-cuda", "nvidia-smi"),
        ("610", "nvidia-driver-cuda", "nvidia-smi"),
    ],
)
def test_branch_determines_nvidias_debian_packages(key, branch, package, other):
    result = resolve(host(key), {"source": "nvidia", "branch": branch}, platform(key))
    assert package in result.packages
    assert package in result.lockstep
    assert other not in result.packages


@pytest.mark.parametrize("fabric_manager", ["auto", "enabled", "disabled"])
@pytest.mark.parametrize("switches", [[], ["0000:83:00.0", "0000:84:00.0"]])
def test_fabric_manager_is_added_for_switches_or_on_request(switches, fabric_manager):
    there = host("el-9", (H100,), nvidia={"nvswitches": switches})
    result = resolve(there, {"fabric_manager": fabric_manager}, platform("el-9"))
    wanted = fabric_manager == "enabled" or (fabric_manager == "auto" and bool(switches))
    assert ("nvidia-fabricmanager" in result.packages) is wanted
    why = "fabric manager: this host has 2 NVSwitches" if switches else "fabric manager: requested"
    assert (why in result.reasons) is wanted


# Without a requested source, the request and the hardware decide.
SOURCES = [
    ("debian-12", {}, {}, "distribution", None),
    ("debian-12", {"branch": "580"}, {}, "nvidia", "source distribution is not used: none of its branches is suitable"),
    (
        "debian-12",
        {"version": "580.95.05"},
        {},
        "nvidia",
        "source distribution is not used: none of its branches is suitable",
    ),
    ("debian-12", {"version": "535.261.03"}, {}, "distribution", None),
    (
        "debian-12",
        {"minimum_version": "550"},
        {},
        "nvidia",
        "source distribution is not used: none of its branches is suitable",
    ),
    ("debian-13", {"minimum_version": "550.100"}, {}, "distribution", None),
    (
        "debian-13",
        {},
        {"nvswitches": ["0000:83:00.0"]},
        "nvidia",
        "it provides no fabric manager, which this host needs",
    ),
    ("debian-13", {"fabric_manager": "disabled"}, {"nvswitches": ["0000:83:00.0"]}, "distribution", None),
    ("debian-13", {"imex": True}, {}, "nvidia", "it provides no IMEX"),
    ("ubuntu-24.04", {}, {"nvswitches": ["0000:83:00.0"]}, "distribution", None),
    ("ubuntu-24.04", {}, {"nvlink5_switches": ["mlx5_0"]}, "nvidia", "no subnet manager for NVLink 5 (nvlsm)"),
    ("ubuntu-24.04", {"imex": True}, {}, "distribution", None),
]


@pytest.mark.parametrize(("key", "request_", "nvidia", "source", "why"), SOURCES)
def test_first_suitable_source_is_chosen(key, request_, nvidia, source, why):
    result = resolve(host(key, (H100,), nvidia=nvidia), request_, platform(key))
    assert result.source == source
    rejections = [reason for reason in result.reasons if " is not used: " in reason]
    assert [why in reason for reason in rejections] == ([True] if why else [])


def test_missing_fabric_manager_is_no_error():
    nvidia = {"nvswitches": ["0000:83:00.0"]}
    there, request = host("debian-13", (H100,), nvidia=nvidia), {"source": "distribution"}
    result = resolve(there, request, platform("debian-13"))
    assert result.errors == []
    assert any("error 802" in reason for reason in result.reasons)


def test_mirror_and_proxy_reach_the_repository():
    request = {"source": "nvidia", "mirror": "https://mirror.example/cuda/", "proxy": "http://proxy.example:3128"}
    repository = resolve(host("el-9", arch="aarch64"), request, platform("el-9")).repository
    assert repository["url"] == "https://mirror.example/cuda/rhel9/sbsa"
    assert repository["key"] == "https://mirror.example/cuda/rhel9/sbsa/D42D0685.pub"
    assert repository["proxy"] == "http://proxy.example:3128"
    assert "/etc/yum.repos.d/cuda-rhel9-sbsa.repo" in repository["legacy_files"]


EL_10 = "sha256:afbea87d3b979b3788ef34223aeeb323ade481128e2c133723ae99b8a51368bb"


@pytest.mark.parametrize(
    ("key", "request_", "url", "trusted"),
    [
        ("el-10", {}, "https://m.example/rhel10/sbsa/CDF6BA43.pub", EL_10),
        ("el-10", {"key_url": "https://keys.example/cuda.pub"}, "https://keys.example/cuda.pub", EL_10),
        ("el-9", {"key_fingerprint": EL_10}, "https://m.example/rhel9/sbsa/D42D0685.pub", EL_10),
        (
            "debian-13",
            {
                "key_url": "file:///srv/cuda.pub",
                "key_fingerprint": "eb69 3b30 35cd 5710 e231  e123 a4b4 6996 3bf8 63cc",
            },
            "file:///srv/cuda.pub",
            "EB693B3035CD5710E231E123A4B469963BF863CC",
        ),
    ],
)
def test_key_address_and_fingerprint_reach_the_repository(key, request_, url, trusted):
    wish = {"source": "nvidia", "mirror": "https://m.example", **request_}
    there = host(key, arch="aarch64")
    plan = driver_plan.plan(there, wish, platform(key))
    assert plan.errors == []
    for repository in (plan.repository, *plan.todo.transaction.repositories):
        assert (repository["key"], repository["fingerprint"]) == (url, trusted)
    toolkit = {name: value for name, value in wish.items() if name != "source"}
    done = toolkit_samples.nvidia(toolkit_samples.bare(key, arch="aarch64"), "13.0", **toolkit)
    assert done["problems"] == []
    (repository,) = done["transaction"]["repositories"]
    assert (repository["key"], repository["fingerprint"]) == (url, trusted)


def test_input_is_not_modified():
    there, data, request = host("el-9"), platform("el-9"), {"branch": 580}
    before = copy.deepcopy((there, data, request))
    resolve(there, request, data)
    assert (there, data, request) == before


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (0x1180, "Kepler or older"),
        (0x13C2, "Maxwell"),
        (0x15F8, "Pascal"),
        (0x17C8, "Maxwell"),
        (0x1B38, "Pascal"),
        (0x1DB1, "Volta"),
        (0x1DF6, "Volta"),
        (0x1E02, "Turing"),
        (0x1EB8, "Turing"),
        (0x20B0, "Ampere"),
        (0x2184, "Turing"),
        (0x2237, "Ampere"),
        (0x2330, "Hopper"),
        (0x2335, "Hopper"),
        (0x2342, "Grace Hopper"),
        (0x2484, "Ampere"),
        (0x26B9, "Ada Lovelace"),
        (0x27B8, "Ada Lovelace"),
        (0x2901, "Blackwell"),
        (0x2BB5, "Blackwell"),
        (0x3182, "Blackwell Ultra"),
        (0x31C2, "Blackwell Ultra"),
        (0x4000, "newer than all known generations"),
    ],
)
def test_device_id_determines_generation(device, name):
    assert nvidia_generations.of(device).name == name
    assert nvidia_generations.of(f"{device:#06x}").name == name


def test_host_whose_gpus_are_excluded_is_left_alone():
    nvidia = {"gpus": [], "device_ids": [], "gpus_excluded": ["0000:17:00.0"]}
    result = resolve(host("ubuntu-24.04", (), nvidia=nvidia), {}, platform("ubuntu-24.04"))
    assert (result.action, result.errors) == ("none", [])
    assert "NVreg_ExcludedGpus" in result.reasons[0]
    assert "0000:17:00.0" in result.reasons[0]
