# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands for dnf, and its parsed output. The samples are from dnf 4."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.transaction import forbidden_changes
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import dnf as packages_dnf
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import removable

OPTIONS = {
    "state": "present",
    "install_weak_deps": True,
    "allowerasing": False,
    "allow_downgrade": False,
    "download_only": False,
    "lock_timeout": 30,
}
HEAD = """Last metadata expiration check: 0:00:29 ago on Sun Nov 22 00:08:22 2026.
Dependencies resolved.
================================================================================
 Package                 Arch   Version              Repository            Size
================================================================================
"""
NOTHING = "Package dkms-3:3.0-1.el8.noarch is already installed.\nDependencies resolved.\nNothing to do.\nComplete!\n"
ABORTED = "Operation aborted.\n"
# The first two names are too long for their column, so dnf wraps their rows to two or three lines.
INSTALL = (
    HEAD
    + """Installing:
 kmod-nvidia-open-dkms
                         x86_64 3:580.82.07-1.el8    gpufleet-nvidia-cuda 5.6 k
 nvidia-driver-cuda-libs
                         x86_64 3:580.82.07-1.el8-which-is-long
                                                     gpufleet-nvidia-cuda 5.5 k
 nvidia-fabricmanager    x86_64 3:580.95.05-1.el8    gpufleet-nvidia-cuda 5.5 k
     replacing  nvidia-fabric-manager.x86_64 3:570.172.08-1.el8
Upgrading:
 dkms                    noarch 3.1-1.el8            epel                 5.5 k
Installing dependencies:
 gcc                     x86_64 8.5.0-28.el8_10      appstream             23 M
Installing weak dependencies:
 weakling                noarch 1-1.el8              appstream            5.4 k
Enabling module streams:
 perl                           5.26

Transaction Summary
================================================================================
Install  5 Packages
Upgrade  1 Package

Total size: 23 M
"""
)
DOWNGRADE = (
    HEAD
    + """Removing dependent packages:
 gpu-job                 noarch 1-1.el8              @System                0
Downgrading:
 kmod-nvidia-open-dkms   x86_64 3:570.172.08-1.el8   gpufleet-nvidia-cuda 5.6 k
 nvidia-driver-cuda      x86_64 3:570.172.08-1.el8   gpufleet-nvidia-cuda 5.5 k

Transaction Summary
================================================================================
Remove     1 Package
Downgrade  2 Packages

Total size: 17 k
"""
)
REMOVAL = (
    "No match for argument: not-there\n"
    + HEAD
    + """Removing:
 nvidia-driver-cuda-libs x86_64 3:580.82.07-1.el8    @gpufleet-nvidia-cuda  0
Removing dependent packages:
 gpu-job                 noarch 1-1.el8              @System                0
Removing unused dependencies:
 weakling                noarch 1-1.el8              @appstream             0

Transaction Summary
================================================================================
Remove  3 Packages

Freed space: 0
"""
)
SKIPPED = (
    HEAD
    + """Installing:
 dkms                    noarch 3.1-1.el8            epel                 5.5 k
Skipping packages with conflicts:
(add '--best --allowerasing' to command line to force their upgrade):
 kmod-nvidia-latest-dkms x86_64 3:580.82.07-1.el8    gpufleet-nvidia-cuda 5.6 k

Transaction Summary
================================================================================
Install  1 Package
Skip     1 Package
"""
)
TABLES = [
    (
        INSTALL,
        [
            "Installed: kmod-nvidia-open-dkms-3:580.82.07-1.el8.x86_64",
            "Installed: nvidia-driver-cuda-libs-3:580.82.07-1.el8-which-is-long.x86_64",
            "Installed: nvidia-fabricmanager-3:580.95.05-1.el8.x86_64",
            "Installed: gcc-8.5.0-28.el8_10.x86_64",
            "Installed: weakling-1-1.el8.noarch",
            "Installed: dkms-3.1-1.el8.noarch",
            "Removed: nvidia-fabric-manager-3:570.172.08-1.el8.x86_64",
        ],
    ),
    (
        DOWNGRADE,
        [
            "Installed: kmod-nvidia-open-dkms-3:570.172.08-1.el8.x86_64",
            "Installed: nvidia-driver-cuda-3:570.172.08-1.el8.x86_64",
            "Removed: gpu-job-1-1.el8.noarch",
        ],
    ),
    (
        REMOVAL,
        [
            "Removed: nvidia-driver-cuda-libs-3:580.82.07-1.el8.x86_64",
            "Removed: gpu-job-1-1.el8.noarch",
            "Removed: weakling-1-1.el8.noarch",
        ],
    ),
    (SKIPPED, ["Installed: dkms-3.1-1.el8.noarch"]),
]


@pytest.mark.parametrize(("text", "results"), TABLES, ids=["install", "downgrade", "remove", "skip"])
def test_the_transaction_table_of_dnf_is_parsed(text, results):
    assert sorted(packages_dnf.transaction(text).results()) == sorted(results)


def test_the_filters_accept_the_results_like_those_of_ansible_builtin_dnf():
    said = "\n".join(packages_dnf.transaction(INSTALL).results())
    assert removable.unrelated(said, ["nvidia-fabric-manager"]) == []
    assert removable.unrelated(said, []) == ["nvidia-fabric-manager"]
    said = "\n".join(packages_dnf.transaction(DOWNGRADE).results())
    assert removable.unrelated(said, []) == ["gpu-job"]
    assert forbidden_changes(said) == ["gpu-job", "kmod-nvidia-open-dkms", "nvidia-driver-cuda"]


@pytest.mark.parametrize(
    "text",
    [REMOVAL.replace("Removing dependent packages:", "Taking away:"), REMOVAL.replace("3 Packages", "4 Packages")],
    ids=["an unknown heading", "fewer rows than dnf counts"],
)
def test_an_unexpected_table_is_an_error(text):
    with pytest.raises(packages_dnf.DnfError, match="could not be parsed"):
        packages_dnf.transaction(text)


COMMANDS = [
    ({}, "--setopt=install_weak_deps=True install a b-1"),
    ({"install_weak_deps": False}, "--setopt=install_weak_deps=False install a b-1"),
    ({"allowerasing": True}, "--setopt=install_weak_deps=True --allowerasing install a b-1"),
    ({"download_only": True}, "--setopt=install_weak_deps=True --downloadonly install a b-1"),
    ({"state": "absent"}, "--setopt=install_weak_deps=True remove a b-1"),
]


@pytest.mark.parametrize(("options", "end"), COMMANDS)
def test_options_become_arguments_of_dnf(options, end):
    always = "--debuglevel=2 --noautoremove --setopt=exit_on_lock=True"
    simulation, command = (
        " ".join(packages_dnf.command(["a", "b-1"], {**OPTIONS, **options}, simulate)) for simulate in (True, False)
    )
    assert simulation == f"dnf --assumeno {always} {end}"
    assert command == f"dnf --assumeyes {always} {end}"


def test_missing_packages_come_from_rpm():
    answer = "dkms-3.0-1.el8.noarch\npackage nvidia-driver-cuda-580.95.05-1.el8 is not installed\n"
    names = ["dkms", "nvidia-driver-cuda-580.95.05-1.el8"]
    assert packages_dnf.missing(names, lambda argv: (1, answer, "")) == {"nvidia-driver-cuda-580.95.05-1.el8"}
    assert packages_dnf.missing(["dkms"], lambda argv: (0, "dkms-3.0-1.el8.noarch\n", "")) == set()
    with pytest.raises(
        packages_dnf.DnfError, match="rpm --query failed with exit status 1: error: cannot open Packages database"
    ):
        packages_dnf.missing(["dkms"], lambda argv: (1, "", "error: cannot open Packages database"))


def test_there_is_no_transaction_if_nothing_changes():
    assert packages_dnf.simulate(["dkms"], OPTIONS, lambda argv: (0, NOTHING, "")) is None


def test_a_downgrade_requires_allow_downgrade():
    def dnf(argv):
        assert "--assumeno" in argv
        return 1, DOWNGRADE, ABORTED

    assert packages_dnf.simulate(["x-570"], {**OPTIONS, "allow_downgrade": True}, dnf).downgraded
    with pytest.raises(
        packages_dnf.DnfError, match=r"would downgrade packages to kmod-nvidia-open-dkms-3:570\.172\.08.*, but allow_"
    ):
        packages_dnf.simulate(["x-570"], OPTIONS, dnf)


FAILURES = [
    (
        1,
        "No match for argument: x\nError: Unable to find a match: x",
        "dnf install x failed with exit status 1: .*find a match: x",
    ),
    (1, "Error: Failed to download https://me:secret@m.example/x", r"https://\.\.\.@m.example/x"),
    (127, "dnf is not installed", "dnf install x failed with exit status 127: dnf is not installed"),
]


@pytest.mark.parametrize(("rc", "err", "words"), FAILURES)
def test_a_failure_has_dnfs_message_without_passwords(rc, err, words):
    for call in (packages_dnf.simulate, packages_dnf.apply):
        with pytest.raises(packages_dnf.DnfError, match=f"(?s){words}"):
            call(["x"], OPTIONS, lambda argv: (rc, "", err))


@pytest.fixture
def clock(monkeypatch):
    """Advance the clock only in sleep()."""
    passed = [0.0]
    monkeypatch.setattr(packages_dnf.time, "monotonic", lambda: passed[0])
    monkeypatch.setattr(packages_dnf.time, "sleep", lambda seconds: passed.__setitem__(0, passed[0] + seconds))
    return passed


def test_dnf_is_repeated_while_another_program_holds_the_lock(clock):
    answers = [(200, "", "metadata already locked by 7"), (200, "", "RPMDB already locked by 7"), (0, NOTHING, "")]
    assert packages_dnf.simulate(["x"], OPTIONS, lambda argv: answers.pop(0)) is None
    assert clock[0] > 0


def test_waiting_for_the_lock_times_out(clock):
    with pytest.raises(
        packages_dnf.DnfError, match="Another program still holds the lock of dnf after 30 s: RPMDB already locked by 7"
    ):
        packages_dnf.apply(["x"], OPTIONS, lambda argv: (200, "", "RPMDB already locked by 7"))
    assert 30 <= clock[0] < 40
