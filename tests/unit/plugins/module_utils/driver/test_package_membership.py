# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_membership
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import H100, KERNELS, host, platform, resolve

SWITCHES = {"nvswitches": ["0000:83:00.0"]}
FULL = {"source": "nvidia", "imex": True}
RELEASES = {
    "550": "550.163.01-1",
    "570": "570.172.08-1",
    "580": "580.95.05-1",
    "590": "590.44.01-1",
    "595": "595.91.07-1",
}
# Installed packages, the request, and the packages to remove: only those whose names change with the branch.
MOVES = [
    *((key, {"branch": "570"}, {"branch": "580"}, ["libnvidia-nscq-570", "nvidia-fabric-manager", "nvidia-imex-570"])
      for key in ("el-8", "el-9", "el-10", "amazon-2023", "sles-15")),
    *((key, {"branch": "580"}, {"branch": "570"}, ["libnvidia-nscq", "nvidia-fabricmanager", "nvidia-imex"])
      for key in ("el-8", "el-9", "el-10", "amazon-2023")),
    ("sles-15", {"branch": "580"}, {"branch": "570"},
     ["libnvidia-cfg", "libnvidia-gpucomp", "libnvidia-ml", "libnvidia-nscq", "nvidia-fabricmanager", "nvidia-imex"]),
    *((key, {"branch": "570"}, {"branch": "580"}, ["libnvidia-nscq-570", "nvidia-fabricmanager-570", "nvidia-imex-570"])
      for key in ("debian-12", "debian-13")),
    *((key, {"branch": "580"}, {"branch": "570"}, ["libnvidia-nscq", "nvidia-fabricmanager", "nvidia-imex"])
      for key in ("debian-12", "debian-13")),
    ("debian-12", {"branch": "570"}, {"branch": "550"},
     ["libnvidia-nscq-570", "nvidia-driver-cuda", "nvidia-fabricmanager-570", "nvidia-imex-570"]),
    ("debian-12", {"branch": "550"}, {"branch": "570"},
     ["libnvidia-nscq-550", "nvidia-fabricmanager-550", "nvidia-imex-550", "nvidia-smi"]),
    ("ubuntu-24.04", {"branch": "580"}, {"branch": "570"},
     ["libnvidia-cfg1-580", "libnvidia-compute-580", "libnvidia-nscq", "nvidia-compute-utils-580",
      "nvidia-dkms-580-open", "nvidia-fabricmanager", "nvidia-imex", "nvidia-utils-580"]),
    ("ubuntu-24.04", {"branch": "580"}, {"branch": "590"},
     ["libnvidia-cfg1-580", "libnvidia-compute-580", "nvidia-compute-utils-580", "nvidia-dkms-580-open",
      "nvidia-utils-580"]),
    ("ubuntu-24.04", {"branch": "590"}, {"branch": "580"},
     ["libnvidia-cfg1", "libnvidia-compute", "nvidia-dkms-open"]),
    ("el-9", {"branch": "580"}, {"branch": "590"}, []),
    ("el-9", {}, {"flavor": "proprietary"}, ["kmod-nvidia-open-dkms"]),
    ("el-9", {"flavor": "proprietary"}, {"branch": "590", "flavor": "open"}, ["kmod-nvidia-latest-dkms"]),
    ("debian-12", {}, {"flavor": "proprietary"}, ["nvidia-kernel-open-dkms"]),
    ("ubuntu-24.04", {}, {"flavor": "proprietary"}, ["nvidia-dkms-580-open"]),
    ("sles-15", {}, {"flavor": "proprietary"}, ["nvidia-open-driver-G06-signed-cuda-kmp-default"]),
    # No package of G06 stays with G07.
    ("sles-15", {}, {"branch": "595"},
     ["nvidia-common-G06", "nvidia-compute-G06", "nvidia-compute-utils-G06",
      "nvidia-open-driver-G06-signed-cuda-kmp-default"]),
    ("sles-15", {"flavor": "proprietary"}, {"branch": "595"},
     ["nvidia-common-G06", "nvidia-compute-G06", "nvidia-compute-utils-G06", "nvidia-driver-G06"]),
    ("el-9", {}, {"version": "580.82.07"}, []),
    # A package of the same branch stays, even if it is no longer requested.
    ("el-9", {}, {"fabric_manager": "disabled", "version": "580.82.07"}, []),
    ("ubuntu-24.04", {"components": ["compute", "video"]}, {"components": ["compute"], "version": "580.82.07"}, []),
]  # fmt: skip


# Packages of the driver, by version.
OF_THE_DRIVER = {
    "535.261.03-1~deb12u1": "firmware-nvidia-gsp libcuda1 libcudadebugger1 libnvcuvid1 libnvidia-ml1 libnvidia-nvvm4 "
    "libnvidia-ptxjitcompiler1 libnvidia-tesla-cuda1 nvidia-alternative nvidia-opencl-icd nvidia-smi "
    "xserver-xorg-video-nvidia",
    "390.157-0ubuntu0.22.04.2": "libnvidia-compute-390",
    "580.95.05-0ubuntu0.24.04.1": "libnvidia-cfg1-580 libnvidia-compute-580-server nvidia-driver-580-open "
    "nvidia-firmware-580-server-580.95.05 nvidia-headless-580 nvidia-kernel-common-580-server nvidia-utils-580",
    "580.95.05-1": "cuda-drivers cuda-drivers-580 libnvoptix1 libnvsdm nvidia-kernel-open-dkms nvidia-open",
    "3:580.95.05-1.el9": "akmod-nvidia kmod-nvidia-latest-dkms libnvidia-ml nvidia-driver-cuda-libs "
    "nvidia-fabric-manager nvidia-open-kmod nvidia-persistenced xorg-x11-drv-nvidia-cuda",
    "580.95.05-0": "nvidia-compute-G06 nv-prefer-signed-open-driver",
    "580.95.05_k6.4.0_150700.51-1": "nvidia-open-driver-G06-signed-cuda-kmp-default",
    # Prebuilt modules have the kernel's version.
    "6.8.0-88.89+1": "linux-modules-nvidia-580-server-open-generic linux-objects-nvidia-580-server-6.8.0-88-generic "
    "linux-signatures-nvidia-6.8.0-88-generic",
}
# Packages of CUDA toolkits, of containers, and of the distribution.
OF_OTHERS = {
    "12.6.85-1": "cuda-compiler-12-6 cuda-driver-dev-12-6 cuda-nvcc-12-6 cuda-nvml-dev-12-6 cuda-toolkit-12-6 "
    "libcublas-12-6 libcusolver11 libnvjitlink-12-6 libnvidia-ml-dev nvidia-gds",
    "11.8.89~11.8.0-5~deb12u1": "libcudart11.0 libcuinj64-11.8 libnvidia-ml-dev libnvvm4 nvidia-cuda-dev "
    "nvidia-cuda-toolkit nvidia-opencl-dev nvidia-profiler",
    "12.0.140~12.0.1-4build4": "nvidia-cuda-toolkit libnvrtc12",
    "2024.3.2.3-1": "nsight-compute-2024.3.2",
    "1.11.1.6-1": "gds-tools-12-6",
    "1.18.0-1": "libnvidia-container1 nvidia-container-toolkit",
    # Libraries of a newer driver, below /usr/local/cuda-12.6/compat.
    "560.35.05-1": "cuda-compat-12-6",
    "20220217+3~deb12u1": "nvidia-installer-cleanup nvidia-kernel-common nvidia-support",
    "6.8.0-88.89": "linux-image-nvidia linux-modules-6.8.0-88-nvidia linux-modules-nvidia-fs-generic",
    "580.95.05-1": "cuda-keyring gpu-job vim",
}


@pytest.mark.parametrize(
    ("version", "name", "expected"),
    [
        (version, name, expected)
        for table, expected in ((OF_THE_DRIVER, True), (OF_OTHERS, False))
        for version, names in table.items()
        for name in names.split()
    ],
)
def test_packages_of_the_driver_are_recognized(version, name, expected):
    assert package_membership.is_part_of_driver(name, version) is expected


def test_packages_of_other_driver_versions_are_told_apart():
    assert package_membership.is_part_of_driver("libcuda1", "580.95.05-1", {"580.95.05"})
    assert not package_membership.is_part_of_driver("libcuda1", "580.82.07-1", {"580.95.05"})
    assert not package_membership.is_part_of_driver("linux-modules-nvidia-580-generic", "6.8.0-88.89", {"580.95.05"})


@pytest.mark.parametrize("key", KERNELS)
def test_all_packages_of_the_platform_are_recognized(key):
    names = [
        rule["name"].format(branch="580", release="6.8.0-88-generic", kernel="generic", series="-hwe-24.04")
        for data in platform(key)["sources"].values()
        for rule in data["packages"]
    ]
    others = {"dkms", "nvlsm", "infiniband-diags"}
    assert [
        name for name in names if name not in others and not package_membership.is_part_of_driver(name, "3:580.95.05-1")
    ] == []


@pytest.mark.parametrize(("key", "before", "after", "expected"), MOVES)
def test_branch_change_removes_renamed_packages(key, before, after, expected):
    bare = host(key, (H100,), nvidia=SWITCHES, headers=(KERNELS[key],))
    first = resolve(bare, {**FULL, **before}, platform(key))
    assert first.replaced == []
    version = RELEASES[first.branch]
    others = {"nvidia-container-toolkit": "1.18.0-1", "dkms": "3.1.0-1", "nvidia-gds": "13.0-1", "vim": "9"}
    there = host(key, (H100,), nvidia=SWITCHES, headers=(KERNELS[key],), driver={"library": version.partition("-")[0]},
                 packages={**others, **dict.fromkeys(first.packages, version), "dkms": "3.1.0-1"})  # fmt: skip
    result = resolve(there, {**FULL, **after}, platform(key))
    assert (result.errors, result.replaced) == ([], expected)
    assert set(expected) <= set(result.removable)


def test_prebuilt_modules_of_other_kernels_stay():
    older = "linux-modules-nvidia-580-server-open-6.8.0-71-generic"
    there = host("ubuntu-24.04", packages={older: "6.8.0-71.71+1"}, driver={"library": "580.95.05"})
    for request, goes in (({}, False), ({"flavor": "proprietary"}, True), ({"branch": "595"}, True)):
        replaced = resolve(there, request, platform("ubuntu-24.04")).replaced
        assert replaced == ([older] if goes else [])


LOCK = "nvidia-driver-cuda-3:580.95.05-1.el9.*"


@pytest.mark.parametrize(
    ("locks", "expected"),
    [
        # apt has no locks.
        ([], True),
        ([LOCK], True),
        (["nvidia-driver-cuda"], True),
        (["nvidia*", LOCK], True),
        # The user's locks with wildcards, and a lock on another package.
        (["nvidia*"], False),
        (["nvidia*", "nvidia-driver"], False),
    ],
)
def test_only_holds_on_single_packages_are_releasable(locks, expected):
    packages = {"nvidia-driver-cuda": "3:580.95.05-1.el9", "kmod-nvidia-open-dkms": "3:580.95.05-1.el9"}
    there = host("el-9", packages=packages, held=("nvidia-driver-cuda",), package_state={"held_patterns": locks})
    assert package_membership.releasable(there, list(packages)) == (["nvidia-driver-cuda"] if expected else [])
