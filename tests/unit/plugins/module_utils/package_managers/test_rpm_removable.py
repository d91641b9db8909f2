# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages can be removed."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import rpm_removable
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError

TEST = "rpm --erase --test --allmatches "


def rpm(needed_by, broken=()):
    """Return a rpm that knows which packages need each package. `broken` packages cannot be erased at all."""

    def run(argv):
        command = " ".join(argv)
        assert command.startswith(TEST)
        names = command[len(TEST) :].split()
        if {*names} & {*broken}:
            return 1, "", f"error: package {names[0]} is not installed"
        dependents = {other for name in names for other in needed_by.get(name, ())} - {*names}
        lines = [
            f"\tlib.so.1()(64bit) is needed by (installed) {name}-2:51.0-1.2.x86_64" for name in sorted(dependents)
        ]
        return (1, "", "\n".join(["error: Failed dependencies:", *lines])) if lines else (0, "", "")

    return run


@pytest.mark.parametrize(
    ("needed_by", "names", "without", "expected"),
    [
        ({}, [], [], []),
        ({}, ["nvlsm", "libOpenCL1"], [], ["nvlsm", "libOpenCL1"]),
        # Needed only by each other, or by removed packages.
        (
            {"libibumad3": ["infiniband-diags"]},
            ["libibumad3", "infiniband-diags"],
            [],
            ["libibumad3", "infiniband-diags"],
        ),
        ({"libOpenCL1": ["nvidia-compute-G06"]}, ["libOpenCL1"], ["nvidia-compute-G06"], ["libOpenCL1"]),
        # Needed by a package that stays, directly or indirectly.
        ({"a": ["b"], "b": ["c", "mine"]}, ["a", "b", "c", "d"], [], ["c", "d"]),
        ({"a": ["b"], "b": ["c"], "c": ["mine"]}, ["a", "b", "c"], ["mine-too"], []),
    ],
)
def test_packages_that_nothing_else_needs(needed_by, names, without, expected):
    assert rpm_removable.unneeded(names, without, rpm(needed_by)) == expected


def test_a_package_that_rpm_cannot_erase_stays():
    assert rpm_removable.unneeded(["a", "b"], [], rpm({}, broken=["a"])) == ["b"]


def test_dependents():
    run = rpm({"a": ["b"], "b": ["c"]}, broken=["x"])
    assert rpm_removable.dependents(["a"], run) == ["b"]
    assert rpm_removable.dependents(["a", "b"], run) == ["c"]
    assert rpm_removable.dependents(["c"], run) == []
    with pytest.raises(
        PackageManagerError, match=r"the removal of x .exit status 1.: error: package x is not installed"
    ):
        rpm_removable.dependents(["x"], run)
    # Without a name, rpm fails.
    assert rpm_removable.dependents([], rpm({}, broken=["x"])) == []


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

    assert rpm_removable.unneeded(names, without, run) == expected
    # The last test has all packages that go.
    assert not expected or {*expected, *without} == {*commands[-1].partition(" --allmatches ")[2].split()}
