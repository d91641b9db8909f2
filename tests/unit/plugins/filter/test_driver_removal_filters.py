# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.filter import nvidia_driver_removal as filters


def test_what_apt_would_remove():
    text = "Reading...\nRemv dkms [3.0.10-8]\nRemv gcc-12 [12.2.0]\nRemv vim [9]\n"
    assert filters.apt_removable(text, ["dkms", "gcc-12", "make"]) == ["dkms", "gcc-12"]


def erased(name, *needed_by, rc=None, said=""):
    lines = [f"\tlib{name}.so.1()(64bit) is needed by (installed) {other}-2:51.0-1.2.x86_64" for other in needed_by]
    stderr = "\n".join(["error: Failed dependencies:", *lines] if lines else [said])
    return {"item": name, "rc": bool(lines) if rc is None else rc, "stderr": stderr}


@pytest.mark.parametrize(
    ("tests", "gone", "expected"),
    [
        ([], [], []),
        ([erased("nvlsm"), erased("libOpenCL1")], [], ["libOpenCL1", "nvlsm"]),
        # Needed by what goes along, or anyway.
        (
            [erased("libibumad3", "infiniband-diags"), erased("infiniband-diags")],
            [],
            ["infiniband-diags", "libibumad3"],
        ),
        ([erased("libOpenCL1", "nvidia-compute-G06")], ["nvidia-compute-G06"], ["libOpenCL1"]),
        # Needed by somebody, and what these need again.
        ([erased("a", "b"), erased("b", "c", "mine"), erased("c"), erased("d")], [], ["c", "d"]),
        ([erased("a", "b"), erased("b", "c"), erased("c", "mine")], ["mine-too"], []),
        # rpm could not tell.
        ([erased("a", rc=1, said="error: package a is not installed"), erased("b")], [], ["b"]),
    ],
)
def test_what_nothing_needs_can_go_from_rpms_hosts(tests, gone, expected):
    assert filters.rpm_removable(tests, gone) == expected


SIMULATED = """\
Inst libcuda1 [535.261.03-1] (535.309.01-0+deb12u1 Debian:12 [amd64])
Inst docker.io [20.10.24] (26.1 Debian:12 [amd64])
Inst vim:amd64 [2] (3 Debian:12 [amd64])
Inst new-one (1 Debian:12 [amd64])
Remv nvidia-kernel-dkms [535.261.03-1]
Purg zfs-dkms [2.1]
Conf libcuda1 (535.309.01-0+deb12u1 Debian:12 [amd64])
"""
REMOVED = "Installed: kmod-nvidia-open-dkms-3:580.95.05-1.x86_64\nRemoved: kmod-nvidia-latest-dkms-3:580.95.05-1.x86_64"
MOVED = (
    "Installed: dkms-3.2.0-1.el9.noarch\nInstalled: nvidia-driver-cuda-3:570.172.08-1.x86_64\n"
    "Removed: dkms-3.1.0-1.el9.noarch\nRemoved: nvidia-driver-cuda-3:580.95.05-1.x86_64\n"
    "Removed: nvidia-fabricmanager-3:580.95.05-1.x86_64"
)
STRANGERS = [
    (SIMULATED, ["nvidia-kernel-dkms"], ["libcuda1", "docker.io"], ["libcuda1"], ["docker.io", "zfs-dkms"]),
    (SIMULATED, ["nvidia-kernel-dkms", "zfs-dkms"], ["libcuda1"], ["libcuda1"], []),
    (SIMULATED, [], ["vim"], [], ["nvidia-kernel-dkms", "vim", "zfs-dkms"]),
    (REMOVED, ["kmod-nvidia-latest-dkms"], [], [], []),
    (REMOVED, [], [], [], ["kmod-nvidia-latest-dkms"]),
    (MOVED, ["nvidia-fabricmanager"], [], [], []),
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


@pytest.mark.parametrize(("text", "may_go", "held", "released", "expected"), STRANGERS)
def test_who_else_would_lose_something_by_an_installation(text, may_go, held, released, expected):
    packages = {name: {"held": name in held} for name in ("libcuda1", "docker.io", "vim")}
    assert filters.nvidia_driver_strangers(text, may_go, packages, released) == expected
