# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.transaction import (
    forbidden_changes,
    is_driver_package,
    unneeded,
    unrelated_removals,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import KERNELS, platform

OF_THE_DRIVER = """
akmod-nvidia cuda-drivers cuda-drivers-580 firmware-nvidia-gsp kmod-nvidia-latest-dkms libcuda1 libcudadebugger1
libnvcuvid1 libnvidia-cfg1-580 libnvidia-compute-580-server libnvidia-ml libnvidia-ml1 libnvidia-ptxjitcompiler1
linux-modules-nvidia-580-server-open-generic nv-prefer-signed-open-driver nvidia-alternative nvidia-compute-G06
nvidia-driver-580-open nvidia-driver-cuda-libs nvidia-fabric-manager nvidia-headless-580 nvidia-kernel-open-dkms
nvidia-open nvidia-opencl-icd nvidia-open-driver-G06-signed-cuda-kmp-default nvidia-persistenced nvidia-utils-580
"""
OF_A_TOOLKIT = """
cuda-compiler-12-6 cuda-driver-dev-12-6 cuda-nvcc-12-6 cuda-nvml-dev-12-6 cuda-toolkit-12-6 gds-tools-12-6 g++
libcu++-dev libcublas-12-6 libcudart11.0 libcuinj64-11.8 libcusolver11 libnvidia-container1 libnvidia-ml-dev
libnvjitlink-12-6 libnvvm4 nsight-compute-2024.3.2 nvidia-container-toolkit nvidia-cuda-dev nvidia-cuda-toolkit
nvidia-opencl-dev nvidia-profiler
"""


@pytest.mark.parametrize("name", OF_THE_DRIVER.split())
def test_driver_packages_are_recognized(name: str) -> None:
    assert is_driver_package(name)


@pytest.mark.parametrize("name", OF_A_TOOLKIT.split())
def test_toolkit_packages_are_not_driver_packages(name: str) -> None:
    assert not is_driver_package(name)


@pytest.mark.parametrize("key", KERNELS)
def test_all_packages_of_role_nvidia_driver_are_recognized(key: str) -> None:
    names = [
        rule["name"].format(branch="580", release="6.8.0-88-generic", kernel="generic", series="-hwe-24.04")
        for data in platform(key)["sources"].values()
        for rule in data["packages"]
    ]
    others = {"dkms", "nvlsm", "infiniband-diags"}
    assert [name for name in names if name not in others and not is_driver_package(name)] == []


APT = """NOTE: This is only a simulation!
Inst cuda-nvcc-12-6 (12.6.85-1 NVIDIA [amd64])
Inst libcuda1 [535.309.01-1] (580.95.05-1 NVIDIA [amd64]) []
Inst nvidia-driver-cuda:amd64 (580.95.05-1 NVIDIA [amd64])
Remv gpu-job [1]
Conf cuda-nvcc-12-6 (12.6.85-1 NVIDIA [amd64])
"""
DNF = "\n".join(
    [
        "Installed: cuda-toolkit-12-6-12.6.3-1.x86_64",
        "Installed: nvidia-driver-cuda-3:580.95.05-1.el9.x86_64",
        "Installed: kernel-headers-5.14.0-570.el9.x86_64",
        "Removed: kernel-headers-5.14.0-503.el9.x86_64",
        "Removed: gpu-job-1-1.noarch",
    ]
)
ZYPPER = """<?xml version='1.0'?><stream><message type="info">Resolving</message>
<install-summary packages-to-change="3">
<to-install><solvable type="package" name="cuda-toolkit-12-6" edition="12.6.3-1" arch="x86_64"/>
<solvable type="package" name="nvidia-compute-G06" edition="580.95.05-0" arch="x86_64"/></to-install>
<to-remove><solvable type="package" name="gpu-job" edition="1-1" arch="noarch"/></to-remove>
<to-upgrade><solvable type="package" name="libgomp1" edition="2" edition-old="1" arch="x86_64"/></to-upgrade>
</install-summary></stream>"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (APT, ["gpu-job", "libcuda1", "nvidia-driver-cuda"]),
        (DNF, ["gpu-job", "nvidia-driver-cuda"]),
        (ZYPPER, ["gpu-job", "nvidia-compute-G06"]),
        ("Inst cuda-nvcc-12-6 (12.6.85-1 NVIDIA [amd64])\n", []),
        ("Installed: cuda-toolkit-12-6-12.6.3-1.x86_64", []),
        ("", []),
    ],
    ids=["apt", "dnf", "zypper", "apt, a toolkit", "dnf, a toolkit", "nothing"],
)
def test_forbidden_changes_are_named(text: str, found: list[str]) -> None:
    assert forbidden_changes(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "Purg cuda-toolkit-12-6 [12.6.3-1]\nRemv gpu-job [1]\n",
        "error: Failed dependencies:\n\tcuda-toolkit-12-6 is needed by (installed) gpu-job-1-1.noarch\n",
    ],
    ids=["apt", "rpm"],
)
def test_unrelated_removals_are_named(text: str) -> None:
    assert unrelated_removals(text, ["cuda-toolkit-12-6"]) == ["gpu-job"]
    assert unrelated_removals(text, ["cuda-toolkit-12-6", "gpu-job"]) == []


@pytest.mark.parametrize(
    "text",
    [
        "Remv cuda-nvcc-12-6 [12.6.85-1]\nRemv other [1]\n",
        "cuda-nvcc-12-6\nother\n",
        "S | Repository | Name           | Version   | Arch\n--+--\n"
        "i | cuda       | cuda-nvcc-12-6 | 12.6.85-1 | x86_64\n",
    ],
    ids=["apt", "dnf", "zypper"],
)
def test_only_unneeded_packages_are_returned(text: str) -> None:
    assert unneeded(text, ["cuda-nvcc-12-6", "libgomp1"]) == ["cuda-nvcc-12-6"]
