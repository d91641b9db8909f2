# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages can be removed."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import removable


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


NEEDED = "error: Failed dependencies:\n\tbase = 2-1 is needed by (installed) app-2-1.noarch\n"


@pytest.mark.parametrize(
    ("failing", "names", "without", "expected"),
    [
        ([], ["base", "other"], [], ["base", "other"]),
        (["base"], ["base", "other"], [], ["other"]),
        (["base"], ["base", "other"], ["app"], ["base", "other"]),
        # Each alone can be removed, but app needs one of both.
        (["base other"], ["base", "other"], [], []),
        ([], [], ["app"], []),
    ],
)
def test_rpm_decides_together_which_packages_are_unneeded(failing, names, without, expected):
    commands = []

    def run(argv):
        # All copies of a package are removed.
        command = " ".join(argv)
        commands.append(command)
        assert command.startswith("rpm --erase --test --allmatches ")
        return (1, "", NEEDED) if command.partition(" --allmatches ")[2] in failing else (0, "", "")

    assert removable.unneeded_by_rpm(names, without, run) == expected
    # The last test has all packages that go.
    assert not expected or {*expected, *without} == {*commands[-1].partition(" --allmatches ")[2].split()}


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
