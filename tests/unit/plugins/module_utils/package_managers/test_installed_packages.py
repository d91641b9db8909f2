# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import versions
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import platform as host_platform
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    installed_packages,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import offers as packages_offers
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared

STATUS = """\
Package: nvidia-smi
Status: hold ok installed
Priority: optional
Architecture: amd64
Version: 535.309.01-0+deb12u1
Description: something
 that mentions Package: libcuda1

Package: libcuda1
Status: install ok installed
Architecture: amd64
Version: 535.309.01-0+deb12u1

Package: libcuda1
Status: install ok installed
Architecture: i386
Version: 1

Package: nvidia-kernel-dkms
Status: install ok half-configured
Architecture: amd64
Version: 535.309.01-0+deb12u1

Package: nvidia-kernel-dkms
Status: deinstall ok config-files
Architecture: i386
Version: 1

Package: nvidia-settings
Status: deinstall ok config-files
Architecture: amd64
Version: 530.0

Package: vim
Status: hold ok installed
Architecture: amd64
Version: 9

Package: mine
Status: install ok triggers-pending
Architecture: all
Version: 1.0
"""

PATTERNS = ["nvidia|^libcud"]


def nothing(argv):
    return 127, "", ""


def test_dpkg_packages_holds_and_unfinished_packages_are_read(tmp_path):
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(STATUS)
    state = installed_packages.read(str(tmp_path), "apt", nothing, declared.PLACES["package_patterns"])
    assert state["details"] == {
        "nvidia-smi": {"version": "535.309.01-0+deb12u1", "held": True, "arch": "amd64"},
        "libcuda1": {"version": "535.309.01-0+deb12u1", "held": False, "arch": "amd64"},
    }
    assert state["all"] == {
        "nvidia-smi": "535.309.01-0+deb12u1 amd64",
        "libcuda1": "535.309.01-0+deb12u1 amd64, 1 i386",
        "mine": "1.0 all",
        "vim": "9 amd64",
    }
    assert state["held"] == ["nvidia-smi", "vim"]
    assert state["unfinished"] == ["nvidia-kernel-dkms"]
    assert state["config_files"] == ["nvidia-kernel-dkms", "nvidia-settings"]
    assert not state["interrupted"]
    journal = tmp_path / "var/lib/dpkg/updates"
    journal.mkdir()
    (journal / "tmp.i").write_text("")
    assert not installed_packages.read(str(tmp_path), "apt", nothing, declared.PLACES["package_patterns"])[
        "interrupted"
    ]
    (journal / "0001").write_text("")
    assert installed_packages.read(str(tmp_path), "apt", nothing, declared.PLACES["package_patterns"])["interrupted"]


FOREIGN = """\
Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1.22.1

Package: nvtop
Status: install ok installed
Architecture: amd64
Version: 3.0.1-1

Package: libfoo
Status: install ok installed
Architecture: i386
Version: 1.0-1

Package: data
Status: install ok installed
Architecture: all
Version: 1.0-1

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0-1
"""
NAMES_FOR_APT = {
    "nvtop": True, "nvtop:amd64": True, "nvtop:any": True, "nvtop:native": True, "nvtop:i386": False,
    "libfoo:i386": True, "libfoo:any": True, "libfoo": False, "libfoo:amd64": False,
    "data": True, "data:all": True, "data:amd64": True, "data:i386": False,
    "gone": False, "nonesuch": False,
}  # fmt: skip


def observed(root, manager: str | None, run=nothing) -> dict:
    """Describe only the packages of a host."""
    return {
        "os": {"package_manager": manager},
        "installed_packages": installed_packages.read(str(root), manager, run)["all"],
    }


def test_requested_names_are_matched_like_apt_does(tmp_path):
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(FOREIGN)
    host = observed(tmp_path, "apt")
    assert {name: installed_packages.is_installed(host, name) for name in NAMES_FOR_APT} == NAMES_FOR_APT


def test_a_host_without_package_manager_has_no_package(tmp_path):
    assert not installed_packages.is_installed(observed(tmp_path, None), "nvtop")


KERNELS = (
    "kernel-devel\t5.14.0-570.el9\tx86_64\nkernel-devel\t5.14.0-611.el9\tx86_64\n"
    "nvtop\t3.1.0-2.el9\tx86_64\nbind\t32:9.16.23-1.el9\tx86_64\ncuda\t13.0.2-1\tx86_64\n"
)
NAMES_FOR_RPM = {
    "kernel-devel": True, "kernel-devel.x86_64": True, "kernel-devel-5.14.0-570.el9.x86_64": True,
    "kernel-devel-5.14.0-611.el9": True, "kernel-devel-5.14.0": True, "kernel-devel-5.14.0-570.el9.aarch64": False,
    "kernel-devel-5.14.0-427.el9.x86_64": False, "kernel-devel-5.14": False, "kernel": False,
    "nvtop": True, "nvtop-3.1.0": True, "nvtop-0:3.1.0-2.el9.x86_64": True, "nvtop-3.1.1": False,
    "bind-9.16.23-1.el9": True, "bind-32:9.16.23": True, "bind-31:9.16.23": False, "cuda-13": False,
}  # fmt: skip


@pytest.mark.parametrize("manager", ["dnf", "zypper"])
def test_requested_names_are_matched_like_dnf_and_zypper_do(tmp_path, manager):
    host = observed(tmp_path, manager, lambda argv: (0, KERNELS, ""))
    assert {name: installed_packages.is_installed(host, name) for name in NAMES_FOR_RPM} == NAMES_FOR_RPM


RPMS = "nvidia-driver-cuda\t3:580.95.05-1.el9\tx86_64\nkernel-devel\t5.14.0-570.el9\tx86_64\nbash\t5.1-1\tx86_64\n"
LOCKS = [
    ("nvidia-driver-cuda-3:580.95.05-1.el9.*", True),
    ("nvidia-driver-cuda-580.95.05-1.el9", True),
    ("nvidia-driver-cuda", True),
    ("*nvidia*580*", True),
    ("nvidia-driver-3:580.95.05-1.el9.*", False),
    ("# nvidia-driver-cuda", False),
    ("!nvidia-driver-cuda-3:570.1-1.el9.*", False),
]


@pytest.mark.parametrize(("lock", "held"), LOCKS)
def test_rpm_packages_are_read_with_the_locks_of_dnf(tmp_path, lock, held):
    path = tmp_path / "etc/dnf/plugins/versionlock.list"
    path.parent.mkdir(parents=True)
    path.write_text(f"\n{lock}\n")
    state = installed_packages.read(
        str(tmp_path), "dnf", lambda argv: (0, RPMS, ""), declared.PLACES["package_patterns"]
    )
    assert sorted(state["details"]) == ["kernel-devel", "nvidia-driver-cuda"]
    assert sorted(state["all"]) == ["bash", "kernel-devel", "nvidia-driver-cuda"]
    assert state["held"] == (["nvidia-driver-cuda"] if held else [])
    assert [name for name, package in state["details"].items() if package["held"]] == state["held"]


def test_rpm_keys_are_listed_with_their_version():
    out = "gpg-pubkey\td42d0685-62589a51\t(none)\ngpg-pubkey\tfd431d51-4ae0493b\t(none)\nglibc\t2.34-1\ti686\n"
    names = installed_packages.read("/", "dnf", lambda argv: (0, out, ""), declared.PLACES["package_patterns"])["all"]
    assert list(names) == ["glibc", "gpg-pubkey-d42d0685", "gpg-pubkey-fd431d51"]


def test_locks_of_dnf5_and_zypper_are_read(tmp_path):
    for path, text in (
        ("etc/dnf/versionlock.toml", 'version = "1.0"\n[[packages]]\nname = "nvidia-driver-cuda"\n'),
        (
            "etc/zypp/locks",
            "\ntype: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: nvidia-driver-cuda\n",
        ),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for manager in ("dnf", "zypper"):
        state = installed_packages.read(
            str(tmp_path), manager, lambda argv: (0, RPMS, ""), declared.PLACES["package_patterns"]
        )
        assert state["held"] == ["nvidia-driver-cuda"], manager


def test_a_host_with_no_known_package_manager_has_no_packages(tmp_path):
    state = installed_packages.read(str(tmp_path), None, nothing, declared.PLACES["package_patterns"])
    assert (state["all"], state["unfinished"], state["held_patterns"]) == ({}, [], [])


# --- package offers ---


def test_dnf_offers_match_names_with_a_version():
    out = "nvidia-driver-cuda\t580.95.05-1.el9\nnvidia-driver-cuda\t580.82.07-1.el9\nkernel-devel\t5.14.0-570.el9\n"
    names = ["nvidia-driver-cuda", "kernel-devel-5.14.0-570.el9.x86_64"]
    offers = packages_offers.read("dnf", names, lambda argv: (0, out, ""))
    assert offers == {
        "nvidia-driver-cuda": ["580.95.05-1.el9", "580.82.07-1.el9"],
        "kernel-devel-5.14.0-570.el9.x86_64": ["5.14.0-570.el9"],
    }


def test_zypper_offers_contain_only_packages():
    out = (
        "S | Name | Type | Version | Arch | Repository\n--+------+------+---------+------+---\n"
        "  | nvidia-compute-G06 | package | 580.95.05-0 | x86_64 | cuda\n"
        "  | nvidia-compute-G06 | srcpackage | 570.1-0 | noarch | cuda\n"
    )
    assert packages_offers.read("zypper", ["nvidia-compute-G06"], lambda argv: (0, out, "")) == {
        "nvidia-compute-G06": ["580.95.05-0"]
    }


def test_zypper_supports_wildcards_only_without_match_exact():
    asked = []

    def zypper(argv):
        asked.append("--match-exact" in argv)
        names = ("cuda-toolkit-12-6", "cuda-toolkit-12-6-config-common", "cuda-toolkit-13-0")
        return 0, "".join(f" | {name} | package | 1-1 | x86_64 | cuda\n" for name in names), ""

    assert sorted(packages_offers.read("zypper", ["cuda-toolkit-*-[0-9]"], zypper)) == [
        "cuda-toolkit-12-6",
        "cuda-toolkit-13-0",
    ]
    assert packages_offers.read("zypper", ["cuda-toolkit-12-6"], zypper) == {"cuda-toolkit-12-6": ["1-1"]}
    assert asked == [False, True]


STREAMS = """\
Name          Stream       Profiles   Summary
nvidia-driver 580-open [e] default    stand-in
nvidia-driver latest [d]   default    stand-in
other         1            default    another module

Hint: [d]efault, [e]nabled, [x]disabled, [i]nstalled
"""


def test_module_streams_are_read_through_the_view():
    def dnf(argv):
        assert "--own" in argv
        return 0, STREAMS, ""

    assert packages_offers.streams(["nvidia-driver", "x"], dnf, ["--own"]) == {
        "nvidia-driver": ["latest", "580-open"],
        "x": [],
    }
    missing = (1, "", "Error: No matching Modules to list\n")
    assert packages_offers.streams(["x"], lambda argv: missing) == {"x": []}
    assert packages_offers.streams([], nothing) == {}
    with pytest.raises(PackageManagerError, match="no space left"):
        packages_offers.streams(["x"], lambda argv: (1, "", "no space left"))


@pytest.mark.parametrize(
    ("manager", "asked", "there"),
    [
        ("dnf", "kernel-devel.x86_64", True),
        ("dnf", "kernel-devel-5.14.0-570.el9.x86_64", True),
        ("dnf", "kernel-devel.12", False),
    ],
)
def test_offers_match_names_with_an_architecture(manager, asked, there):
    offers = packages_offers.read(manager, [asked], lambda argv: (0, "kernel-devel\t5.14.0-570.el9\n", ""))
    assert offers == {asked: ["5.14.0-570.el9"] if there else []}


def test_no_names_run_no_command():
    assert packages_offers.read("dnf", [], nothing) == {}


@pytest.mark.parametrize("manager", ["dnf", "zypper"])
def test_the_error_of_the_package_manager_is_reported(manager):
    with pytest.raises(PackageManagerError, match="the lists are broken"):
        packages_offers.read(manager, ["x"], lambda argv: (1, "", "the lists are broken"))


# --- locks ---

DRIVER_LOCK = "nvidia-driver-cuda-3:580.95.05-1.el9.*"
HOLDS = [
    ([DRIVER_LOCK], "nvidia-driver-cuda", True),
    # A lock on another version does not hold the installed one.
    (["nvidia-driver-cuda-3:570.1-1.el9.*"], "nvidia-driver-cuda", False),
    (["nvidia-driver-cuda"], "nvidia-driver-cuda", True),
    (["nvidia*"], "nvidia-driver-cuda", True),
    (["nvidia-driver-*", DRIVER_LOCK], "nvidia-driver-cuda", True),
    ([], "nvidia-driver-cuda", False),
]


@pytest.mark.parametrize(("locks", "name", "is_held"), HOLDS)
def test_the_locks_of_dnf_hold_installed_packages(tmp_path, locks, name, is_held):
    path = tmp_path / "etc/dnf/plugins/versionlock.list"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(locks))
    state = installed_packages.read(
        str(tmp_path), "dnf", lambda argv: (0, RPMS, ""), declared.PLACES["package_patterns"]
    )
    assert state["details"][name]["held"] is is_held
    assert state["held_patterns"] == locks


@pytest.mark.parametrize("lock", ["nvidia-driver-cuda", "nvidia-*"])
def test_the_locks_of_zypper_hold_installed_packages(tmp_path, lock):
    path = tmp_path / "etc/zypp/locks"
    path.parent.mkdir(parents=True)
    path.write_text(f"type: package\nsolvable_name: {lock}\n")
    state = installed_packages.read(
        str(tmp_path), "zypper", lambda argv: (0, RPMS, ""), declared.PLACES["package_patterns"]
    )
    assert "nvidia-driver-cuda" in state["held"]
    assert state["held_patterns"] == [lock]


# --- versions and platforms ---


@pytest.mark.parametrize(
    ("version", "upstream"),
    [
        ("535.309.01-0+deb12u1", "535.309.01"),
        ("1:550.163.01-2", "550.163.01"),
        ("580.95.05-0ubuntu0.24.04.1", "580.95.05"),
        ("3:580.95.05-1.el9", "580.95.05"),
        ("580.95.05_k6.4.0_150700.51-0", "580.95.05"),
        ("580.95.05", "580.95.05"),
        ("570~rc1", "570"),
        (None, ""),
    ],
)
def test_the_upstream_version_is_extracted(version, upstream):
    assert versions.upstream_version(version) == upstream


PLATFORMS = [
    ('ID=debian\nVERSION_ID="12"\n', "debian-12", "apt"),
    ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n', "ubuntu-24.04", "apt"),
    ('ID="rhel"\nVERSION_ID="8.10"\n', "el-8", "dnf"),
    ('ID="almalinux"\nID_LIKE="rhel centos fedora"\nVERSION_ID="10.0"\n', "el-10", "dnf"),
    ('ID="amzn"\nID_LIKE="fedora"\nVERSION_ID="2023"\n', "amazon-2023", "dnf"),
    ('ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.7"\n', "sles-15", "zypper"),
    ('ID="miracle"\nID_LIKE="rhel fedora"\nVERSION_ID="9.4"\n', "el-9", "dnf"),
    ("ID=alpine\nVERSION_ID=3.20\n", None, None),
    ("", None, None),
]


@pytest.mark.parametrize(("text", "key", "manager"), PLATFORMS)
def test_the_platform_is_read_from_os_release(tmp_path, text, key, manager):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(text)
    system = host_platform.read(str(tmp_path), "arm64")
    assert (system["key"], system["package_manager"], system["arch"]) == (key, manager, "aarch64")
