# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is the same in the plans of all roles' packages. The tests of the roles cover what differs."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import role_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import RoleTransaction

UNIT = ["main", "base"]
RECORD = "/var/lib/gpufleet/some.json"


@pytest.mark.parametrize(
    ("install", "installed", "held", "hold", "expected"),
    [
        (["main=2.1-1", "base=2.1-1"], [], [], True, (UNIT, [], ["lock-plugin"])),
        (["main=2.1-1", "base=2.1-1"], ["lock-plugin"], [], True, (UNIT, [], [])),
        # An upgrade releases and holds again.
        (["main=2.1-1"], ["lock-plugin"], UNIT, True, (UNIT, [], [])),
        ([], ["lock-plugin"], ["main"], True, (UNIT, [], [])),
        ([], ["lock-plugin"], UNIT, True, ([], [], [])),
        # Only what the role holds is released.
        ([], [], ["main", "base", "foreign"], False, ([], ["base", "main"], [])),
    ],
)
def test_holds(install: list[str], installed: list[str], held: list[str], hold: bool, expected: t.Any) -> None:
    record = '{"requested": ["main", "base"], "holds": ["main", "base"]}'
    host: t.Any = {
        "files": {RECORD: {"exists": True, "content": record}},
        "held_packages": held,
        "os": {"package_manager": "dnf", "arch": "x86_64"},
        "keyrings": {},
        "installed_packages": dict.fromkeys(installed, "1"),
    }
    work = RoleTransaction(install=list(install))
    role_packages.plan_holds(host, RECORD, work, UNIT, hold=hold, needs="lock-plugin")
    assert (work.hold, work.release, work.install[len(install) :]) == expected


@pytest.mark.parametrize(
    ("work", "texts"),
    [
        (RoleTransaction(), ["finish the interrupted installation of the packages"]),
        # What only removes something is said, too.
        (RoleTransaction(purge=["old"]), ["purge old"]),
        (RoleTransaction(files=[{"path": "/etc/apt/b", "state": "absent"}]), ["remove /etc/apt/b"]),
        (RoleTransaction(release=["main"]), ["release main"]),
        (
            RoleTransaction(
                remove=["other"],
                purge=["old"],
                repositories=[{"url": "https://packages.example.org"}],
                files=[{"path": "/etc/apt/a", "state": "present"}, {"path": "/etc/apt/b", "state": "absent"}],
                install=["main", "base"],
                hold=["main"],
            ),
            [
                "remove other",
                "purge old",
                "add repository https://packages.example.org",
                "write /etc/apt/a",
                "remove /etc/apt/b",
                "install main, base",
                "hold main",
            ],
        ),
    ],
)
def test_changes_are_imperative_texts_in_their_order(work: RoleTransaction, texts: list[str]) -> None:
    assert work.changes() == texts
