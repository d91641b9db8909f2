# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.transaction import forbidden_changes

APT = """NOTE: This is only a simulation!
Inst cuda-nvcc-12-6 (12.6.85-1 NVIDIA [amd64])
Inst libcuda1 [535.309.01-1] (580.95.05-1 NVIDIA [amd64]) []
Inst nvidia-driver-cuda:amd64 (580.95.05-1 NVIDIA [amd64])
Inst libnvidia-ml1 [535.309.01-1] (1:0-1 Mine [amd64])
Inst linux-modules-nvidia-580-server-generic [6.8.0-71.71] (6.8.0-88.88 Ubuntu [amd64])
Inst nvidia-kernel-common [20151021+13] (20220217+3~deb12u1 Debian [amd64])
Inst nvidia-cuda-dev (11.8.89~11.8.0-5~deb12u1 Debian [amd64])
Inst cuda-compat-12-6 (560.35.05-1 NVIDIA [amd64])
Remv gpu-job [1]
Conf cuda-nvcc-12-6 (12.6.85-1 NVIDIA [amd64])
"""
DNF = "\n".join(
    [
        "Installed: cuda-toolkit-12-6-12.6.3-1.x86_64",
        "Installed: kmod-nvidia-open-580.105.08-6.12.0-124.20.1-3:580.105.08-3.el10_1.x86_64",
        "Installed: nvidia-driver-cuda-3:580.95.05-1.el9.x86_64",
        "Installed: kernel-headers-5.14.0-570.el9.x86_64",
        "Removed: kernel-headers-5.14.0-503.el9.x86_64",
        "Removed: gpu-job-1-1.noarch",
    ]
)
ZYPPER = """<?xml version='1.0'?><stream><message type="info">Resolving</message>
<install-summary packages-to-change="5">
<to-install><solvable type="package" name="cuda-toolkit-12-6" edition="12.6.3-1" arch="x86_64"/>
<solvable type="package" name="nvidia-open-driver-G06-signed-cuda-kmp-default"
 edition="580.95.05_k6.4.0_150700.51-1" arch="x86_64"/>
<solvable type="package" name="nvidia-compute-G06" edition="580.95.05-0" arch="x86_64"/></to-install>
<to-remove><solvable type="package" name="gpu-job" edition="1-1" arch="noarch"/></to-remove>
<to-upgrade><solvable type="package" name="libgomp1" edition="2" edition-old="1" arch="x86_64"/></to-upgrade>
</install-summary></stream>"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            APT,
            [
                "gpu-job",
                "libcuda1",
                "libnvidia-ml1",
                "linux-modules-nvidia-580-server-generic",
                "nvidia-driver-cuda",
            ],
        ),
        (DNF, ["gpu-job", "kmod-nvidia-open-580.105.08-6.12.0-124.20.1", "nvidia-driver-cuda"]),
        (ZYPPER, ["gpu-job", "nvidia-compute-G06", "nvidia-open-driver-G06-signed-cuda-kmp-default"]),
        ("Inst cuda-nvcc-12-6 (12.6.85-1 NVIDIA [amd64])\n", []),
        ("Installed: cuda-toolkit-12-6-12.6.3-1.x86_64", []),
        ("", []),
    ],
    ids=["apt", "dnf", "zypper", "apt, a toolkit", "dnf, a toolkit", "nothing"],
)
def test_forbidden_changes_are_named(text: str, found: list[str]) -> None:
    assert forbidden_changes(text) == found
