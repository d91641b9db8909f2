# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages can be removed, and which unrelated packages a transaction would affect."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import removable


def erased(name, *needed_by, rc=None, error=""):
    lines = [f"\tlib{name}.so.1()(64bit) is needed by (installed) {other}-2:51.0-1.2.x86_64" for other in needed_by]
    stderr = "\n".join(["error: Failed dependencies:", *lines] if lines else [error])
    return {"item": name, "rc": bool(lines) if rc is None else rc, "stderr": stderr}


@pytest.mark.parametrize(
    ("tests", "removed", "expected"),
    [
        ([], [], []),
        ([erased("nvlsm"), erased("libOpenCL1")], [], ["libOpenCL1", "nvlsm"]),
        # Needed only by each other, or by removed packages.
        (
            [erased("libibumad3", "infiniband-diags"), erased("infiniband-diags")],
            [],
            ["infiniband-diags", "libibumad3"],
        ),
        ([erased("libOpenCL1", "nvidia-compute-G06")], ["nvidia-compute-G06"], ["libOpenCL1"]),
        # Needed by a package that stays, directly or indirectly.
        ([erased("a", "b"), erased("b", "c", "mine"), erased("c"), erased("d")], [], ["c", "d"]),
        ([erased("a", "b"), erased("b", "c"), erased("c", "mine")], ["mine-too"], []),
        # rpm failed for another reason.
        ([erased("a", rc=1, error="error: package a is not installed"), erased("b")], [], ["b"]),
    ],
)
def test_removable_returns_packages_that_nothing_else_needs(tests, removed, expected):
    assert removable.removable(tests, removed) == expected


SIMULATED = """\
Inst libcuda1 [535.261.03-1] (535.309.01-0+deb12u1 Debian:12 [amd64])
Inst docker.io [20.10.24] (26.1 Debian:12 [amd64])
Inst vim:amd64 [2] (3 Debian:12 [amd64])
Inst new-one (1 Debian:12 [amd64])
Remv nvidia-kernel-dkms [535.261.03-1]
Purg zfs-dkms [2.1]
Conf libcuda1 (535.309.01-0+deb12u1 Debian:12 [amd64])
"""
REUPDATED = (
    "Installed: kmod-nvidia-open-dkms-3:580.95.05-1.x86_64\nRemoved: kmod-nvidia-latest-dkms-3:580.95.05-1.x86_64"
)
UPDATED = (
    "Installed: dkms-3.2.0-1.el9.noarch\nInstalled: nvidia-driver-cuda-3:570.172.08-1.x86_64\n"
    "Removed: dkms-3.1.0-1.el9.noarch\nRemoved: nvidia-driver-cuda-3:580.95.05-1.x86_64\n"
    "Removed: nvidia-fabricmanager-3:580.95.05-1.x86_64"
)
UNRELATED = [
    (SIMULATED, ["nvidia-kernel-dkms"], ["libcuda1", "docker.io"], ["libcuda1"], ["docker.io", "zfs-dkms"]),
    (SIMULATED, ["nvidia-kernel-dkms", "zfs-dkms"], ["libcuda1"], ["libcuda1"], []),
    (SIMULATED, [], ["vim"], [], ["nvidia-kernel-dkms", "vim", "zfs-dkms"]),
    (REUPDATED, ["kmod-nvidia-latest-dkms"], [], [], []),
    (REUPDATED, [], [], [], ["kmod-nvidia-latest-dkms"]),
    (UPDATED, ["nvidia-fabricmanager"], [], [], []),
    (
        "error: Failed dependencies:\n\tlibcuda.so.1()(64bit) is needed by (installed) cuda-demo-0:1.0-1.x86_64\n"
        "\tnvidia-kmod-common = 3:580.95.05 is needed by (installed) kmod-nvidia-open-dkms-3:580.95.05-1.x86_64\n",
        ["kmod-nvidia-open-dkms"],
        [],
        [],
        ["cuda-demo"],
    ),
    ("", [], [], [], []),
]


@pytest.mark.parametrize(("text", "changeable", "held", "released", "expected"), UNRELATED)
def test_unrelated_packages_are_found(text, changeable, held, released, expected):
    packages = {name: {"held": name in held} for name in ("libcuda1", "docker.io", "vim")}
    assert removable.unrelated(text, changeable, packages, released) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Purg cuda-toolkit-12-6 [12.6.3-1]\nRemv gpu-job [1]\n",
        "error: Failed dependencies:\n\tcuda-toolkit-12-6 is needed by (installed) gpu-job-1-1.noarch\n",
    ],
    ids=["apt", "rpm"],
)
def test_unrelated_packages_are_found_without_holds(text):
    assert removable.unrelated(text, ["cuda-toolkit-12-6"]) == ["gpu-job"]
    assert removable.unrelated(text, ["cuda-toolkit-12-6", "gpu-job"]) == []


APT = """\
Reading package lists...
The following packages will be REMOVED:
  cuda-nvcc-12-6
The following packages have been kept back:
  libgomp1
Remv cuda-nvcc-12-6 [12.6.85-1]
Remv other [1]
"""
ZYPPER = """\
S | Repository | Name           | Version   | Arch
--+------------+----------------+-----------+-------
i | cuda       | cuda-nvcc-12-6 | 12.6.85-1 | x86_64
i | libgomp1   | other          | 1         | noarch
"""


@pytest.mark.parametrize("text", [APT, "\ncuda-nvcc-12-6\nother\n", ZYPPER], ids=["apt", "dnf", "zypper"])
def test_only_unneeded_packages_are_selected(text):
    assert removable.unneeded(text, ["libgomp1", "cuda-nvcc-12-6"]) == ["cuda-nvcc-12-6"]
    assert removable.unneeded(text, ["other", "cuda-nvcc-12-6"]) == ["other", "cuda-nvcc-12-6"]
