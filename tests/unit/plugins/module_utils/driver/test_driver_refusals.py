# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong and unknown input to the driver's plan: one text each, with the value, the place and the way out.

What each platform refuses by source and flavor is in `files/driver_table.yml`.
"""

from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record
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
    r"(Set|set|Choose|Ask|Lower|Remove|Install|install|Drop|Enrol|Run|Name|name|Take|Boot|Replace|Upgrade) "
    r"|(Finish|Check|The form is|of the form) |have to be named"
)
K80 = "0x102d"
KEPT = {"library": "570.86.15", "loaded": "570.86.15", "kernel_module_flavor": "open"}
DKMS_KEY = "/var/lib/dkms/mok.pub"
SUM = "sha256:" + "0" * 64


def refusal(there: dict, request: dict, data: dict | None, available: dict | None = None) -> str:
    """Return the one text that says no, after asserting that nothing is to be done."""
    result = driver_plan.plan(there, request, data, available)
    assert (len(result["errors"]), result["acts"]) == (1, False)
    assert WAY_OUT.search(result["errors"][0]), result["errors"]
    return result["errors"][0]


# --- platforms and architectures ---

UNKNOWN = ["debian-11", "debian-14", "ubuntu-20.04", "ubuntu-25.10", "el-7", "amazon-2", "sles-16", "gentoo-2"]


@pytest.mark.parametrize("source", ["auto", "distribution", "nvidia"])
@pytest.mark.parametrize("key", UNKNOWN)
def test_an_unknown_platform(key, source):
    error = refusal(host(key), {"source": source}, None)
    assert key in error
    assert "set nvidia_driver_source to preinstalled" in error


def test_the_installer_serves_an_unknown_platform_that_has_headers():
    there = host("gentoo-2", kernel="6.12.1", headers=("6.12.1",))
    request = {"source": "runfile", "version": "580.95.05", "runfile_checksum": SUM}
    result = driver_plan.plan(there, request, None)
    assert (result["errors"], result["flavor"]) == ([], "open")
    assert "6.12.1" in refusal(host("gentoo-2", kernel="6.12.1"), request, None)


@pytest.mark.parametrize("request_", [{}, {"source": "nvidia"}, {"source": "runfile", "version": "580.95.05"}])
@pytest.mark.parametrize("arch", ["ppc64le", "riscv64", "armv7l"])
def test_an_unknown_architecture(arch, request_):
    request = {**request_, "runfile_checksum": SUM}
    error = refusal(host("debian-12", arch=arch), request, platform("debian-12"))
    assert arch in error
    assert "known: aarch64, x86_64" in error
    assert "nvidia_driver_source to preinstalled" in error


# --- GPUs ---


def test_a_gpu_that_came_out_after_the_table_gets_the_newest_modules():
    result = driver_plan.plan(host("el-9", ("0x4abc",)), {}, platform("el-9"))
    assert (result["errors"], result["flavor"], result["branch"]) == ([], "open", "580")
    assert "open kernel modules: the only ones for 0x4abc (newer than any that is known here)" in result["reasons"]
    error = refusal(host("el-9", ("0x4abc",)), {"flavor": "proprietary"}, platform("el-9"))
    assert "0x4abc (newer than any that is known here)" in error


# Request, GPUs, and the words; on Enterprise Linux 9, where every branch may be asked for.
GPUS = [
    ({"branch": "390"}, (A100,), ["nvidia_driver_branch is 390", "0x20b0 (Ampere) needs branch 450 or newer"]),
    ({"branch": "550"}, (B200,), ["nvidia_driver_branch is 550", "0x2901 (Blackwell) needs branch 570 or newer"]),
    ({"branch": "595"}, (V100,), ["nvidia_driver_branch is 595", "0x1db1 (Volta) is served by branches up to 580"]),
    (
        {"version": "595.58.03"},
        (V100,),
        ["nvidia_driver_version is 595.58.03", "0x1db1 (Volta)", "up to 580"],
    ),
    ({"minimum_version": "595"}, (V100,), ["nvidia_driver_minimum_version 595", "0x1db1 (Volta)", "up to 580"]),
    (
        {"branch": "470", "flavor": "open"},
        (T4,),
        ["branch 470 has no open kernel modules", "515", "nvidia_driver_flavor"],
    ),
    ({"branch": "620", "flavor": "proprietary"}, (T4,), ["branch 620 has no proprietary kernel modules", "615"]),
    ({}, ("0x102d",), ["0x102d (Kepler or older) is served by branches up to 470"]),
    ({"flavor": "open"}, (V100,), ["nvidia_driver_flavor is open", "0x1db1 (Volta)", "auto or proprietary"]),
    ({"flavor": "proprietary"}, (B200,), ["nvidia_driver_flavor is proprietary", "0x2901 (Blackwell)", "auto or open"]),
    (
        {},
        (V100, A100),
        ["0x1db1 (Volta)", "0x20b0 (Ampere)", "branch 580 or older", "set nvidia_driver_flavor to proprietary"],
    ),
    ({}, (K80, A100), ["0x102d (Kepler", "0x20b0 (Ampere)", "branch 470 or older", "flavor to proprietary"]),
    ({}, (K80, V100, A100), ["branch 470 or older"]),
    ({"flavor": "proprietary"}, (K80, A100), ["0x102d (Kepler or older) is served by branches up to 470"]),
    *(
        (
            wish,
            (K80, H100),
            [
                "no driver branch serves all GPUs",
                "0x102d (Kepler or older) is served by branches up to 470",
                "0x2330 (Hopper) needs branch 525 or newer",
                "Take one sort of card out",
                "nvidia_driver_source to runfile",
            ],
        )
        for wish in ({}, {"flavor": "proprietary"}, {"branch": "470"}, {"source": "nvidia"})
    ),
    ({}, (K80, B200), ["mixes GPUs that only the open kernel modules drive", "Take one sort of card out"]),
]


@pytest.mark.parametrize(("request_", "gpus", "words"), GPUS)
def test_what_the_gpus_do_not_allow(request_, gpus, words):
    error = refusal(host("el-9", gpus), request_, platform("el-9"))
    for word in words:
        assert word in error


def test_turing_with_a_branch_from_before_the_open_modules_gets_the_others():
    result = driver_plan.plan(host("el-9", (T4,)), {"branch": "470"}, platform("el-9"))
    assert (result["errors"], result["flavor"]) == ([], "proprietary")
    assert "proprietary kernel modules: branch 470 has no others" in result["reasons"]


# --- values ---

JUNK = {
    "branch": ["R580", "58", "5800", "580-server", "latest", "580.95", "5 80", "580\n"],
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
def test_a_value_with_junk_names_its_variable(name, value):
    there, data = host("debian-12"), platform("debian-12")
    try:
        error = refusal(there, {name: value}, data)
    except driver_plan.driver_request.RequestError as refused:
        error = str(refused)
    assert f"nvidia_driver_{name}" in error
    assert "\n" not in error
    shown = value if isinstance(value, str) and "\n" not in value and "," not in value else ""
    assert shown in error


def test_a_wish_that_there_is_not_is_named():
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
def test_wishes_that_no_one_version_can_be(request_, words):
    error = refusal(host("el-9"), request_, platform("el-9"))
    for word in [*words, "Set one of them"]:
        assert word in error


@pytest.mark.parametrize(
    ("key", "request_", "words"),
    [
        (
            "el-9",
            {"minimum_version": "700"},
            ["700", "580, 595, 610, 570, 550", "newer branch", "nvidia_driver_branch"],
        ),
        (
            "debian-12",
            {"source": "distribution", "minimum_version": "550"},
            ["550", "has the branches 535. Lower it or"],
        ),
        ("debian-12", {"source": "distribution", "branch": "580"}, ["580", "has 535 only", "nvidia_driver_source"]),
        (
            "el-9",
            {"module_build": "precompiled"},
            ["nvidia_driver_module_build is precompiled", "has dkms only", "auto"],
        ),
        ("sles-15", {"module_build": "dkms"}, ["nvidia_driver_module_build is dkms", "has precompiled only", "auto"]),
    ],
)
def test_what_the_source_does_not_have(key, request_, words):
    error = refusal(host(key), request_, platform(key))
    for word in words:
        assert word in error


# What the repositories offer is known later, and before the first change nevertheless.
OFFERS = [
    (
        "el-9",
        {"branch": "999"},
        "580.95.05-1",
        ["nvidia_driver_branch is 999", "580.95.05", "580, 595, 610"],
    ),
    ("ubuntu-24.04", {"branch": "999"}, None, ["nvidia-utils-999-server", "Branch 999 is none that is known here"]),
    ("el-9", {"version": "580.1.2"}, "580.95.05-1", ["nvidia_driver_version is 580.1.2", "of the form 580.95.05"]),
    ("el-9", {"version": "580.10.20"}, "580.95.05-1", ["nvidia_driver_version is 580.10.20", "it has: 580.95.05"]),
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
        ["minimum_version is 580.200", "it has: 580.95.05"],
    ),
]


@pytest.mark.parametrize(("key", "request_", "offer", "words"), OFFERS)
def test_what_the_repositories_do_not_have(key, request_, offer, words):
    there, request = host(key, headers=(KERNELS[key],)), {**request_, "module_build": "dkms"}
    asked = driver_plan.plan(there, request, platform(key))["todo"]["query"]
    available = {name: [offer] if offer else [] for name in asked}
    result = driver_plan.plan(there, request, platform(key), available)
    (error,) = result["errors"]
    assert WAY_OUT.search(error)
    for word in words:
        assert word in error


# --- the installer, a driver that is there, Secure Boot ---


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({}, ["nvidia_driver_version and nvidia_driver_runfile_checksum are not set"]),
        ({"version": "580.95.05"}, ["nvidia_driver_runfile_checksum is not set"]),
        ({"runfile_checksum": SUM}, ["nvidia_driver_version is not set"]),
    ],
)
def test_an_installer_without_version_or_checksum(request_, words):
    error = refusal(host("el-9"), {"source": "runfile", **request_}, platform("el-9"))
    for word in [*words, "nvidia_driver_source is runfile", "sha256:"]:
        assert word in error


@pytest.mark.parametrize(
    ("there", "request_", "words"),
    [
        ({}, {"source": "preinstalled"}, ["nvidia_driver_source is preinstalled", "no driver is on this host"]),
        (
            {"packages": {"nvidia-driver-cuda": "3:580.95.05-1"}},
            {"source": "preinstalled"},
            ["nvidia_driver_source is preinstalled", "packages alone", "Finish its installation"],
        ),
        ({"driver": KEPT}, {"version": "580.95.05"}, ["nvidia_driver_version is 580.95.05", "is 570.86.15", "Drop"]),
        ({"driver": KEPT}, {"branch": "580"}, ["nvidia_driver_branch is 580", "is 570.86.15", "Drop the branch"]),
        (
            {"driver": KEPT},
            {"minimum_version": "580"},
            ["nvidia_driver_minimum_version is 580", "570.86.15", "Lower it"],
        ),
        (
            {"driver": KEPT},
            {"flavor": "proprietary"},
            ["nvidia_driver_flavor is proprietary", "the open ones", "to auto"],
        ),
    ],
)
def test_a_driver_that_is_not_there_or_not_what_was_asked_for(there, request_, words):
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
def test_nothing_is_installed_over_a_driver_of_unknown_origin(driver, what, source):
    request = {"source": source, "version": "580.95.05", "runfile_checksum": SUM}
    error = refusal(host("debian-12", driver=driver), request, platform("debian-12"))
    for word in (f"nvidia_driver_source is {source}", what, "preinstalled or auto", "by its own means"):
        assert word in error


@pytest.mark.parametrize(
    "changes",
    [
        {"packages": {"nvidia-utils-570": "570.86.15-0ubuntu0.24.04.1"}},
        {"packages": {"linux-modules-nvidia-570-6.8.0-88-generic": "6.8.0-88.89"}},
        {"files": {packages_record.DRIVER: {"exists": True, "content": '{"pending": ["vim"]}'}}},
    ],
)
def test_a_driver_from_packages_or_from_a_run_that_was_cut_off_may_be_finished(changes):
    there = host("ubuntu-24.04", driver=KEPT, **changes)
    assert driver_plan.plan(there, {"source": "distribution"}, platform("ubuntu-24.04"))["errors"] == []


@pytest.mark.parametrize("secure_boot", [{"enabled": True}, {"signatures_enforced": True}])
@pytest.mark.parametrize("key", ["debian-12", "debian-13", "el-8", "el-9", "el-10", "amazon-2023"])
def test_secure_boot_without_a_key(key, secure_boot):
    there = host(key, headers=(KERNELS[key],), secure_boot={**secure_boot, "dkms_key": "/var/lib/dkms/mok.pub"})
    error = refusal(there, {}, platform(key))
    for word in (
        "Secure Boot is on",
        "mokutil --import /var/lib/dkms/mok.pub",
        "nvidia_driver_secure_boot_key_enrolled",
    ):
        assert word in error


# Where, and what is to be done for a key; the last column is the key's place, which is nowhere yet.
NO_KEY = [
    ("debian-12", {}, ["Install dkms and mokutil", "openssl req ", "-out /var/lib/dkms/mok.pub"], DKMS_KEY),
    ("debian-13", {}, ["Install dkms and mokutil", "(dkms generate_mok; with DKMS before 3.1 "], DKMS_KEY),
    ("el-9", {}, ["Install dkms and mokutil", "(dkms generate_mok; "], DKMS_KEY),
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
def test_secure_boot_on_a_host_that_has_made_no_key_says_how_to_make_one(key, packages, words, place):
    there = host(key, headers=(KERNELS[key],), packages=packages, secure_boot={"enabled": True})
    error = refusal(there, {"source": "nvidia"}, platform(key))
    for word in (
        *words,
        "DKMS has made no key here yet",
        f"'mokutil --import {place}'",
        "nvidia_driver_secure_boot_key",
    ):
        assert word in error


def test_secure_boot_names_another_source_only_where_that_has_signed_modules():
    def error(key: str, request: dict, **more) -> str:
        there = host(key, headers=(KERNELS[key],), secure_boot={"enabled": True}, **more)
        return refusal(there, request, platform(key))

    offer = "choose nvidia_driver_source distribution with its prebuilt signed modules"
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
    ):
        text = error(key, request, **more)
        assert "signed modules" not in text, (key, text)


def test_prebuilt_modules_that_nobody_signed_are_not_sent_to_the_key_of_dkms():
    there = host("sles-15", (V100,), secure_boot={"enabled": True, "dkms_key": DKMS_KEY})
    error = refusal(there, {}, platform("sles-15"))
    assert "would be prebuilt ones" in error
    assert "the key of the vendor who signs them" in error
    assert "dkms" not in error.lower()


def test_an_installer_that_failed_half_way_runs_again():
    record = {"exists": True, "content": packages_record.begin_runfile(host(), packages_record.DRIVER, "580.95.05")}
    there = host("debian-12", driver={"library": "580.95.05"}, files={packages_record.DRIVER: record})
    request = {"source": "runfile", "version": "580.95.05", "runfile_checksum": SUM}
    result = driver_plan.plan(there, request, platform("debian-12"))
    assert (result["errors"], result["source"], result["todo"]["runfile"]["checksum"]) == ([], "runfile", SUM)
