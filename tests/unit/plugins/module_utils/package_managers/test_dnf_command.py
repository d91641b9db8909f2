# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the dnf 4 backend decides without a host. The outputs in files/dnf are from dnf 4.23 and rpm 4.20."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    dnf_command,
    dnf_interrupted,
    dnf_view,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    Steps,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
    item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile

FILES = Path(__file__).parent / "files" / "dnf"
INSTALLED = {"drv", "drvlib", "fca"}
PREFIX = ["--debuglevel=2", "--noautoremove", "--setopt=install_weak_deps=False"]


def read(name):
    """Return a recorded output, or an empty text if the program printed nothing."""
    path = FILES / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.mark.parametrize(
    ("steps", "words", "script"),
    [
        (Steps(install=[item("drv=2-1.el9"), Item("app")]), ["install", "drv-2-1.el9", "app"], None),
        (Steps(install=[Item(file="/root/a b.rpm")]), ["install", "/root/a b.rpm"], None),
        (
            Steps(install=[item("ep=3:2.0-1.el9")], may_erase=True),
            ["--allowerasing", "install", "ep-3:2.0-1.el9"],
            None,
        ),
        # dnf would remove a package that provides `gone`.
        (Steps(remove=["drv", "gone"]), ["remove", "drv"], None),
        (Steps(install=[item("drv=2-1.el9")], remove=["gone"]), ["install", "drv-2-1.el9"], None),
        (
            Steps(install=[Item(file="/root/a b.rpm")], remove=["fca"], purge=["drv"], streams=["gpu:s1"]),
            ["--setopt=module_stream_switch=True", "shell"],
            "module enable gpu:s1\ninstall '/root/a b.rpm'\nremove drv fca\nrun\n",
        ),
    ],
)
def test_command(steps, words, script):
    """dnf's shell is used only for what one command cannot do."""
    assert dnf_command.transaction(steps, INSTALLED, "--assumeno") == (["dnf", "--assumeno", *PREFIX, *words], script)


def test_command_for_nothing():
    """Packages that are not installed need no removal."""
    assert dnf_command.transaction(Steps(remove=["gone"]), INSTALLED, "--assumeno") is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("shell-unknown", "Error: Unable to find a match: nope-3"),
        (
            "shell-unmet",
            "Problem: conflicting requests - nothing provides nothere needed by bad-1-1.el9.noarch from base",
        ),
        (
            "file-conflict",
            "Error: Transaction test error: file /opt/fc from install of fcb-1-1.el9.noarch conflicts with file from "
            "package fca-1-1.el9.noarch",
        ),
        (
            "failed-scriptlet",
            "Error in PREIN scriptlet in rpm package failpre Error: Transaction failed error: "
            "%prein(failpre-1-1.el9.noarch) scriptlet failed, exit status 1",
        ),
    ],
)
def test_failure_with_exit_status_0(name, reason):
    """dnf's shell exits with status 0 after an error."""
    out, err = read(f"{name}.out"), read(f"{name}.err")
    assert dnf_command.failed(0, out, err)
    assert dnf_command.reason(out, err) == reason


@pytest.mark.parametrize("name", ["shell-streams", "shell-upgrade", "shell-rival", "shell-nothing"])
def test_aborted_simulation_is_no_failure(name):
    """With --assumeno, dnf ends with an error message."""
    assert not dnf_command.failed(0, read(f"{name}.out"), read(f"{name}.err"), simulated=True)


@pytest.mark.parametrize("name", ["complete", "failed"])
def test_ended_transaction(name):
    """A transaction that failed by itself was not interrupted."""
    assert dnf_interrupted.unfinished(read(f"history-{name}.txt")) == (set(), set())


def test_killed_transaction():
    """The history names all packages of the transaction."""
    came, gone = dnf_interrupted.unfinished(read("history-killed.txt"))
    assert came == {"newdrv-4-1.el9.noarch", "ep-3:2.0-1.el9.noarch", "slow-2-1.el9.noarch"}
    assert gone == {"drv-1-1.el9.noarch"}


def test_epoch_that_is_0():
    """rpm prints an epoch that a package sets to 0. dnf's history does not."""
    listing = "slow\t0:2-1.el9\tnoarch\t1\t1\nnewdrv\t4-1.el9\tnoarch\t1\t2\nep\t3:2.0-1.el9\tnoarch\t1\t3\n"
    found = dnf_interrupted.damage(lambda _argv: (0, read("history-killed.txt"), ""), dnf_interrupted.parse(listing))
    assert [one.nevra for one in found.came] == [
        "ep-3:2.0-1.el9.noarch",
        "newdrv-4-1.el9.noarch",
        "slow-2-1.el9.noarch",
    ]


def test_removal_is_completed_only_with_its_replacement():
    """An obsoleted package stays until the packages of the transaction are installed."""

    def run(_argv):
        return 0, read("history-killed.txt"), ""

    packages = [one for one in dnf_interrupted.parse(read("rpm-killed.txt")) if one.name not in ("slow", "ep")]
    assert dnf_interrupted.damage(run, packages).gone == ()
    arrived = [("newdrv", "4-1.el9"), ("ep", "3:2.0-1.el9"), ("slow", "2-1.el9")]
    packages += [dnf_interrupted.DnfPackage(name, version, "noarch") for name, version in arrived]
    assert [one.label for one in dnf_interrupted.damage(run, packages).gone] == ["drv-1-1.el9.noarch"]


def test_view():
    """Files are added, replaced and removed. Entries use the copies of new keys."""
    host = {
        "/etc/yum.repos.d/a.repo": "[a]\nskip_if_unavailable=1\n",
        "/etc/yum.repos.d/old.repo": "[old]\n",
        "/etc/yum.repos.d/new.repo": "[new]\nbaseurl=http://former/\n",
    }
    entry = b"[new]\nbaseurl=http://new/\nskip_if_unavailable=1\ngpgkey=file:///etc/new.key file:///etc/new.keyring\n"
    files = [
        RepositoryFile("/etc/yum.repos.d/new.repo", entry),
        RepositoryFile("/etc/yum.repos.d/old.repo", None),
        RepositoryFile("/etc/new.key", b"key"),
    ]
    assert dnf_view.contents("/view", host, files) == {
        "/view/keys/0": b"key",
        "/view/repositories/000-a.repo": b"[a]\nskip_if_unavailable=1\n",
        "/view/repositories/001-new.repo": b"[new]\nskip_if_unavailable=0\nbaseurl=http://new/\n"
        b"gpgkey=file:///view/keys/0 file:///etc/new.keyring\n",
    }


@pytest.mark.parametrize(
    ("history", "repeated"),
    [
        ("", ["slow-2-1.el9.noarch"]),
        (read("history-complete.txt").replace("slow-2", "other-2"), ["slow-2-1.el9.noarch"]),
        (read("history-complete.txt"), []),
    ],
    ids=["history lost", "history of another transaction", "history complete"],
)
def test_planned_packages_are_complete_only_if_the_history_says_so(history, repeated):
    def run(argv):
        return 0, history if "history" in argv else "", ""

    planned = [
        SimulatedChange("slow", "install", None, "2-1.el9", "noarch"),
        SimulatedChange("app", "install", None, "1-1.el9", "noarch"),
    ]
    found = dnf_interrupted.damage(run, [dnf_interrupted.DnfPackage("slow", "2-1.el9", "noarch")], planned)
    assert [one.nevra for one in found.came] == repeated
