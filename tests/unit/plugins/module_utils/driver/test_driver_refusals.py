# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Invalid and unknown input: one message each, with the value, the place and the remedy.

`files/driver_table.yml` has the refusals by platform, source and flavor.
"""

from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    A100,
    B200,
    H100,
    KERNELS,
    T4,
    V100,
    host,
    platform,
)

WAY_OUT = re.compile(
    r"(Set|set|must be|needs|Request|Lower|Remove|Install|install|Enroll|Run|name|Boot|Replace|Upgrade) "
    r"|(Complete|check|Use|Unload|Stop|Its variables:|the role needs) "
)
K80 = "0x102d"
KEPT = {"library": "570.86.15", "loaded": "570.86.15", "kernel_module_flavor": "open"}
DKMS_KEY = "/var/lib/dkms/mok.pub"
SUM = "sha256:" + "0" * 64


def refusal(there: dict, request: dict, data: dict | None, available: dict | None = None) -> str:
    """Return the only error, after asserting that the plan has no actions."""
    result = driver_plan.plan(there, request, data, available)
    assert (len(result.errors), result.acts) == (1, False)
    assert WAY_OUT.search(result.errors[0]), result.errors
    return result.errors[0]


# --- platforms and architectures ---

UNKNOWN = ["debian-11", "debian-14", "ubuntu-20.04", "ubuntu-25.10", "el-7", "amazon-2", "sles-16", "gentoo-2"]


@pytest.mark.parametrize("source", ["auto", "distribution", "nvidia"])
@pytest.mark.parametrize("key", UNKNOWN)
def test_unknown_platform_is_refused(key, source):
    error = refusal(host(key), {"source": source}, None)
    assert key in error
    assert "nvidia_driver_source auto or preinstalled then adopts it" in error


def test_installer_is_accepted_on_unknown_platform():
    there = host("gentoo-2", kernel="6.12.1", headers=("6.12.1",))
    request = {"source": "runfile", "version": "580.95.05", "runfile_checksum": SUM}
    result = driver_plan.plan(there, request, None)
    assert (result.errors, result.flavor) == ([], "open")
    assert "6.12.1" in refusal(host("gentoo-2", kernel="6.12.1"), request, None)


@pytest.mark.parametrize("request_", [{}, {"source": "nvidia"}, {"source": "runfile", "version": "580.95.05"}])
@pytest.mark.parametrize("arch", ["ppc64le", "riscv64", "armv7l"])
def test_unknown_architecture_is_refused(arch, request_):
    request = {**request_, "runfile_checksum": SUM}
    error = refusal(host("debian-12", arch=arch), request, platform("debian-12"))
    assert arch in error
    assert "available: aarch64, x86_64" in error
    assert "nvidia_driver_source to preinstalled" in error


# --- GPUs ---


def test_unknown_gpu_gets_open_modules():
    result = driver_plan.plan(host("el-9", ("0x4abc",)), {}, platform("el-9"))
    assert (result.errors, result.flavor, result.branch) == ([], "open", "580")
    assert "open kernel modules: only they support 0x4abc (newer than all known generations)" in result.reasons
    error = refusal(host("el-9", ("0x4abc",)), {"flavor": "proprietary"}, platform("el-9"))
    assert "0x4abc (newer than all known generations)" in error


# Request, GPUs, and parts of the message; on Enterprise Linux 9, where every branch can be requested.
GPUS = [
    ({"branch": "390"}, (A100,), ["nvidia_driver_branch is 390", "0x20b0 (Ampere) needs branch 450 or newer"]),
    ({"branch": "550"}, (B200,), ["nvidia_driver_branch is 550", "0x2901 (Blackwell) needs branch 570 or newer"]),
    ({"branch": "595"}, (V100,), ["nvidia_driver_branch is 595", "0x1db1 (Volta) needs branch 580"]),
    (
        {"version": "595.58.03"},
        (V100,),
        ["nvidia_driver_version is 595.58.03", "0x1db1 (Volta)", "580 or older"],
    ),
    ({"minimum_version": "595"}, (V100,), ["nvidia_driver_minimum_version is 595", "0x1db1 (Volta)", "580 or older"]),
    (
        {"branch": "470", "flavor": "open"},
        (T4,),
        ["branch 470 has no open kernel modules", "515", "nvidia_driver_flavor"],
    ),
    ({"branch": "620", "flavor": "proprietary"}, (T4,), ["branch 620 has no proprietary kernel modules", "615"]),
    ({}, ("0x102d",), ["0x102d (Kepler or older) needs branch 470"]),
    ({"flavor": "open"}, (V100,), ["nvidia_driver_flavor is open", "0x1db1 (Volta)", "auto or proprietary"]),
    ({"flavor": "proprietary"}, (B200,), ["nvidia_driver_flavor is proprietary", "0x2901 (Blackwell)", "auto or open"]),
    (
        {},
        (V100, A100),
        ["0x1db1 (Volta)", "0x20b0 (Ampere)", "branch 580 or older", "Set nvidia_driver_flavor to proprietary"],
    ),
    ({}, (K80, A100), ["0x102d (Kepler", "0x20b0 (Ampere)", "branch 470 or older", "flavor to proprietary"]),
    ({}, (K80, V100, A100), ["branch 470 or older"]),
    ({"flavor": "proprietary"}, (K80, A100), ["0x102d (Kepler or older) needs branch 470"]),
    *(
        (
            wish,
            (K80, H100),
            [
                "No driver branch supports all GPUs",
                "0x102d (Kepler or older) needs branch 470",
                "0x2330 (Hopper) needs branch 525 or newer",
                "Remove one kind of GPU",
                "nvidia_driver_source to runfile",
            ],
        )
        for wish in ({}, {"flavor": "proprietary"}, {"branch": "470"}, {"source": "nvidia"})
    ),
    ({}, (K80, B200), ["mixes GPUs that need the open kernel modules", "Remove one kind of GPU"]),
]


@pytest.mark.parametrize(("request_", "gpus", "words"), GPUS)
def test_request_that_gpus_do_not_support_is_refused(request_, gpus, words):
    error = refusal(host("el-9", gpus), request_, platform("el-9"))
    for word in words:
        assert word in error


def test_turing_with_branch_without_open_modules_gets_proprietary_ones():
    result = driver_plan.plan(host("el-9", (T4,)), {"branch": "470"}, platform("el-9"))
    assert (result.errors, result.flavor) == ([], "proprietary")
    assert "proprietary kernel modules: branch 470 has no open modules" in result.reasons


# --- values ---

JUNK = {
    "branch": ["R580", "58", "5800", "580-server", "latest", "580.95", "5 80", "580\n5"],
    "version": ["580", "v580.95.05", "580.95.05; reboot", "580.*", "580.95.05 570.86", "latest", ">=580.95.05"],
    "minimum_version": [">=570", "570.", "v570", "570-1", "latest", "57"],
    "source": ["cuda", "NVIDIA", "repo"],
    "flavor": ["closed", "Open", "dkms"],
    "module_build": ["prebuilt", "akmods"],
    "fabric_manager": ["yes", "on"],
    "components": [["graphics"], "compute,x11"],
    "mirror": ["mirror.example/cuda", "https://", "ssh://mirror.example", "https://mirror.example/a b"],
    "proxy": ["proxy.example:3128", "socks5://proxy.example", "http://proxy.example:port", "http://p:1/x"],
    "key_fingerprint": [
        "3BF863CC",
        "EB693B3035CD5710E231E123A4B469963BF863C",
        "0x" + "A" * 40,
        "sha256:" + "0" * 63,
        "sha1:" + "0" * 40,
    ],
    "key_url": ["keys.example/cuda.pub", "ssh://keys.example/cuda.pub"],
    "runfile_url": ["/tmp/driver.run", "https://x y/driver.run"],
    "runfile_checksum": ["md5:" + "0" * 32, "0" * 64, "sha256:" + "0" * 63, "sha256:" + "g" * 64],
    "reboot_timeout": [0, -1, "soon"],
    "lock_timeout": [-1, "1.5h"],
    "hold": ["maybe"],
    "imex": ["2"],
    "extra_packages": [["nvtop=3"], "-y"],
    "kernel_packages": [["linux-headers-*"], ["a b"]],
    "module_options": ["fast", {"nvidia": 1}, {"nvidia": {"a": "b\nc"}}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in JUNK.items() for value in values])
def test_invalid_value_names_variable(name, value):
    there, data = host("debian-12"), platform("debian-12")
    error = refusal(there, {name: value}, data)
    assert f"nvidia_driver_{name}" in error
    assert "\n" not in error
    shown = value if isinstance(value, str) and "\n" not in value and "," not in value else ""
    assert shown in error


def test_unknown_key_is_named():
    error = refusal(host("debian-12"), {"brnach": "580"}, platform("debian-12"))
    assert "brnach" in error
    assert "branch" in error


TOGETHER = [
    ({"branch": "595", "version": "580.95.05"}, ["nvidia_driver_version 580.95.05", "nvidia_driver_branch 595"]),
    ({"branch": "570", "minimum_version": "580"}, ["nvidia_driver_branch 570", "nvidia_driver_minimum_version 580"]),
    (
        {"version": "570.86.15", "minimum_version": "570.100"},
        ["nvidia_driver_version 570.86.15", "nvidia_driver_minimum_version 570.100"],
    ),
]


@pytest.mark.parametrize(("request_", "words"), TOGETHER)
def test_contradicting_versions_are_refused(request_, words):
    error = refusal(host("el-9"), request_, platform("el-9"))
    for word in [*words, "Set only one of them"]:
        assert word in error


@pytest.mark.parametrize(
    ("key", "request_", "words"),
    [
        (
            "el-9",
            {"minimum_version": "700"},
            ["700", "580, 595, 615, 610, 570, 550", "newer branch", "nvidia_driver_branch"],
        ),
        (
            "debian-12",
            {"source": "distribution", "minimum_version": "550"},
            ["550", "provides the branches 535. Lower the minimum or"],
        ),
        (
            "debian-12",
            {"source": "distribution", "branch": "580"},
            ["580", "provides only 535", "nvidia_driver_source"],
        ),
        (
            "el-9",
            {"module_build": "precompiled"},
            ["nvidia_driver_module_build is precompiled", "provides only dkms", "auto"],
        ),
        (
            "sles-15",
            {"module_build": "dkms", "branch": "570"},
            ["nvidia_driver_module_build is dkms", "provides only precompiled", "auto"],
        ),
    ],
)
def test_request_that_source_does_not_offer_is_refused(key, request_, words):
    error = refusal(host(key), request_, platform(key))
    for word in words:
        assert word in error


# The available versions are known later, but before the first change.
OFFERS = [
    (
        "el-9",
        {"branch": "999"},
        "580.95.05-1",
        ["nvidia_driver_branch is 999", "580.95.05", "580, 595, 615"],
    ),
    (
        "ubuntu-24.04",
        {"source": "distribution", "branch": "999"},
        None,
        ["nvidia-utils-999-server", "Branch 999 is not a known branch"],
    ),
    ("el-9", {"version": "580.1.2"}, "580.95.05-1", ["nvidia_driver_version is 580.1.2", "Use the form 580.95.05"]),
    (
        "el-9",
        {"version": "580.10.20"},
        "580.95.05-1",
        ["nvidia_driver_version is 580.10.20", "Available drivers: 580.95.05"],
    ),
    (
        "debian-12",
        {"source": "distribution", "version": "580.95.05"},
        "535.309.01-1",
        ["nvidia_driver_version is 580.95.05", "535.309.01"],
    ),
    (
        "el-9",
        {"minimum_version": "580.200"},
        "580.95.05-1",
        ["minimum_version is 580.200", "Available drivers: 580.95.05"],
    ),
]


@pytest.mark.parametrize(("key", "request_", "offer", "words"), OFFERS)
def test_version_that_repositories_do_not_offer_is_refused(key, request_, offer, words):
    there, request = host(key, headers=(KERNELS[key],)), {**request_, "module_build": "dkms"}
    asked = driver_plan.plan(there, request, platform(key)).todo.query
    available = {name: [offer] if offer else [] for name in asked}
    result = driver_plan.plan(there, request, platform(key), available)
    (error,) = result.errors
    assert WAY_OUT.search(error)
    for word in words:
        assert word in error


# --- installer, installed driver, Secure Boot ---


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({}, ["nvidia_driver_version and nvidia_driver_runfile_checksum are not set"]),
        ({"version": "580.95.05"}, ["nvidia_driver_runfile_checksum is not set"]),
        ({"runfile_checksum": SUM}, ["nvidia_driver_version is not set"]),
    ],
)
def test_installer_without_version_or_checksum_is_refused(request_, words):
    error = refusal(host("el-9"), {"source": "runfile", **request_}, platform("el-9"))
    for word in [*words, "nvidia_driver_source is runfile", "sha256:"]:
        assert word in error


@pytest.mark.parametrize(
    ("there", "request_", "words"),
    [
        ({}, {"source": "preinstalled"}, ["nvidia_driver_source is preinstalled", "this host has no driver"]),
        (
            {"packages": {"nvidia-driver-cuda": "3:580.95.05-1"}},
            {"source": "preinstalled"},
            ["nvidia_driver_source is preinstalled", "contain neither", "Complete the installation"],
        ),
        (
            {"driver": KEPT},
            {"version": "580.95.05"},
            ["nvidia_driver_version is 580.95.05", "another tool installed driver 570.86.15", "Remove the setting"],
        ),
        (
            {"driver": KEPT},
            {"branch": "580"},
            ["nvidia_driver_branch is 580", "another tool installed driver 570.86.15", "Remove the setting"],
        ),
        (
            {"driver": KEPT},
            {"minimum_version": "580"},
            ["nvidia_driver_minimum_version is 580", "570.86.15", "Lower the minimum"],
        ),
        (
            {"driver": KEPT},
            {"flavor": "proprietary"},
            ["nvidia_driver_flavor is proprietary", "another tool installed the open kernel modules", "Use auto"],
        ),
    ],
)
def test_unsuitable_preinstalled_driver_is_refused(there, request_, words):
    error = refusal(host("el-9", **there), request_, platform("el-9"))
    for word in words:
        assert word in error


@pytest.mark.parametrize("source", ["distribution", "nvidia", "runfile"])
@pytest.mark.parametrize(
    ("driver", "what"),
    [
        (KEPT, "a loaded kernel module (570.86.15), libraries (570.86.15)"),
        ({"library": "570.86.15"}, ": libraries (570.86.15)"),
        ({"on_disk": "570.86.15"}, ": a kernel module on disk (570.86.15)"),
    ],
)
def test_driver_of_unknown_origin_is_not_overwritten(driver, what, source):
    request = {"source": source, "version": "580.95.05", "runfile_checksum": SUM}
    error = refusal(host("debian-12", driver=driver), request, platform("debian-12"))
    for word in (f"nvidia_driver_source is {source}", what, "preinstalled or auto", "with the tool that installed it"):
        assert word in error


def test_record_of_purged_packages_does_not_make_another_driver_ours():
    record = {"exists": True, "content": '{"packages": ["dkms", "nvidia-driver-cuda"], "key": "610C7B14"}'}
    files = {record_of_role.DRIVER: record}
    there = host("el-9", driver={"library": "570.86.15"}, packages={"dkms": "3.2.1-1.el9"}, files=files)
    assert "a driver of unknown origin: libraries (570.86.15)" in refusal(there, {"source": "nvidia"}, platform("el-9"))


@pytest.mark.parametrize(
    "changes",
    [
        {"packages": {"nvidia-utils-570": "570.86.15-0ubuntu0.24.04.1"}},
        {"packages": {"linux-modules-nvidia-570-6.8.0-88-generic": "6.8.0-88.89"}},
        {"files": {record_of_role.DRIVER: {"exists": True, "content": '{"pending": ["vim"]}'}}},
    ],
)
def test_incomplete_driver_may_be_completed(changes):
    there = host("ubuntu-24.04", driver=KEPT, **changes)
    assert driver_plan.plan(there, {"source": "distribution"}, platform("ubuntu-24.04")).errors == []


@pytest.mark.parametrize("secure_boot", [{"enabled": True}, {"signatures_enforced": True}])
@pytest.mark.parametrize("key", ["debian-12", "debian-13", "el-8", "el-9", "el-10", "amazon-2023"])
def test_secure_boot_without_key_is_refused(key, secure_boot):
    there = host(key, headers=(KERNELS[key],), secure_boot={**secure_boot, "dkms_key": "/var/lib/dkms/mok.pub"})
    error = refusal(there, {}, platform(key))
    for word in (
        "Secure Boot is enabled",
        "mokutil --import /var/lib/dkms/mok.pub",
        "Then run the role again. If it still fails although the key is enrolled, set nvidia_driver_secure_boot_key_",
    ):
        assert word in error


# Platform, packages, parts of the message, and the path of the key, which does not exist yet.
NO_KEY = [
    ("debian-12", {}, ["Install dkms and mokutil", "openssl req ", "-out /var/lib/dkms/mok.pub"], DKMS_KEY),
    ("debian-13", {}, ["Install dkms and mokutil", "(dkms generate_mok; docs/driver.md has "], DKMS_KEY),
    ("el-9", {}, ["Install dkms and mokutil (dkms is in EPEL)", "(dkms generate_mok; "], DKMS_KEY),
    ("el-9", {"dkms": "3.0.13-1.el9"}, ["(openssl req "], DKMS_KEY),
    ("amazon-2023", {"dkms": "3.2.1-1"}, ["(dkms generate_mok; "], DKMS_KEY),
    (
        "ubuntu-24.04",
        {},
        ["Install dkms, mokutil and shim-signed", "(update-secureboot-policy --new-key)"],
        "/var/lib/shim-signed/mok/MOK.der",
    ),
]


@pytest.mark.parametrize(("key", "packages", "words", "place"), NO_KEY)
def test_secure_boot_without_dkms_key_is_refused(key, packages, words, place):
    there = host(key, headers=(KERNELS[key],), packages=packages, secure_boot={"enabled": True})
    error = refusal(there, {"source": "nvidia"}, platform(key))
    for word in (
        *words,
        "DKMS has not created a key on this host",
        f"'mokutil --import {place}'",
        "nvidia_driver_secure_boot_key",
    ):
        assert word in error


def test_secure_boot_suggests_source_with_signed_modules():
    def error(key: str, request: dict, **more) -> str:
        there = host(key, headers=(KERNELS[key],), secure_boot={"enabled": True}, **more)
        return refusal(there, request, platform(key))

    offer = "set nvidia_driver_source to distribution for prebuilt signed modules"
    assert offer in error("ubuntu-24.04", {"source": "nvidia"})
    for key, request, more in (
        ("debian-12", {}, {}),
        ("debian-13", {"source": "nvidia"}, {}),
        ("el-9", {}, {}),
        ("amazon-2023", {}, {}),
        ("sles-15", {}, {"gpus": (V100,)}),
        ("ubuntu-24.04", {"source": "nvidia", "branch": "390"}, {"gpus": (K80,)}),
        ("ubuntu-24.04", {"source": "nvidia", "module_build": "dkms"}, {}),
        ("ubuntu-24.04", {"source": "nvidia"}, {"kernel": "6.12.1-custom", "next_kernel": "6.12.1-custom"}),
        # Ubuntu's archive lacks the subnet manager.
        ("ubuntu-24.04", {"source": "nvidia"}, {"gpus": (B200,), "nvidia": {"nvlink5_switches": ["mlx5_0"]}}),
    ):
        text = error(key, request, **more)
        assert "signed modules" not in text, (key, text)


def test_unsigned_prebuilt_modules_are_refused():
    there = host("sles-15", (V100,), secure_boot={"enabled": True, "dkms_key": DKMS_KEY})
    error = refusal(there, {"branch": "570"}, platform("sles-15"))
    assert "they are prebuilt and not signed" in error
    assert "the vendor's signing key" in error
    assert "dkms" not in error.lower()


def test_incomplete_installer_runs_again():
    record = {"exists": True, "content": '{"pending": "580.95.05"}'}
    there = host("debian-12", driver={"library": "580.95.05"}, files={owned.DRIVER_RUNFILE_RECORD: record})
    request = {"source": "runfile", "version": "580.95.05", "runfile_checksum": SUM}
    result = driver_plan.plan(there, request, platform("debian-12"))
    assert (result.errors, result.source, result.todo.runfile["checksum"]) == ([], "runfile", SUM)
