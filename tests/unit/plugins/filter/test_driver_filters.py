# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The internal filters of the driver's roles."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.filter import driver_internal as filters
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform


def test_invalid_host_fails():
    with pytest.raises(AnsibleFilterError) as error:
        filters.plan({"os": {}}, {}, platform("debian-12"))
    assert "The input is not a host as module gpufleet.hosts.gpu_host_info returns it." in str(error.value)


def test_plan_reports_invalid_values():
    plan = filters.plan(host("debian-12"), {"hold": "perhaps"}, platform("debian-12"))
    assert plan["errors"] == ["nvidia_driver_hold is perhaps, but must be true or false."]
    assert (plan["acts"], plan["todo"]["install"]) == (False, [])


def test_plan_consists_of_plain_data():
    """Ansible's templates and facts accept only these types."""

    def types(value) -> set[type]:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        return {type(value)}.union(*map(types, inner))

    plan = filters.plan(host("ubuntu-24.04"), {"source": "nvidia", "imex": True}, platform("ubuntu-24.04"))
    assert plan["todo"]["install"]
    assert types(plan) <= {dict, list, str, bool, int, type(None)}


def test_apt_removable_returns_removed_candidates():
    text = "Reading...\nRemv dkms [3.0.10-8]\nRemv gcc-12 [12.2.0]\nRemv vim [9]\n"
    assert filters.apt_removable(text, ["dkms", "gcc-12", "make"]) == ["dkms", "gcc-12"]


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
def test_rpm_removable_returns_packages_that_nothing_else_needs(tests, removed, expected):
    assert filters.rpm_removable(tests, removed) == expected


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
    assert filters.unrelated_packages(text, changeable, packages, released) == expected
