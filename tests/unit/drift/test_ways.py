# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways to break items: every item has one, and the scripts do what they say."""

from __future__ import annotations

import json
import subprocess

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.tests.drift import items as drift_items
from ansible_collections.gpufleet.hosts.tests.drift import ways
from ansible_collections.gpufleet.hosts.tests.drift.items import Item, UnknownKind
from ansible_collections.gpufleet.hosts.tests.drift.run import platforms
from ansible_collections.gpufleet.hosts.tests.unit.drift import converged_host as sample

HOST = sample.converged_host()
ITEMS = drift_items.items(HOST, sample.values(), platforms(sample.KEY))


def test_every_item_has_a_case() -> None:
    assert {case.item for case in ways.cases(ITEMS, HOST)} == set(ITEMS)


def test_no_two_cases_have_the_same_name() -> None:
    found = [str(case) for case in ways.cases(ITEMS, HOST)]
    assert sorted(found) == sorted(set(found))


def test_an_item_of_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(UnknownKind, match=r"sysctl vm\.nr_hugepages"):
        ways.cases([Item("nvidia_driver", "sysctl", "vm.nr_hugepages")], HOST)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("service", ["stopped", "disabled", "masked", "masked and stopped"]),
        ("file", ["edited", "deleted"]),
        ("option", ["changed", "removed"]),
        ("registration", ["removed"]),
        (
            "volume",
            [
                f"without lib64/libnvidia-ml.so.{sample.VERSION}",
                "without bin/nvidia-smi",
                "without a link",
                "with another file",
                "with a replaced file",
                "deleted",
            ],
        ),
    ],
)
def test_items_break_in_every_way(kind: str, expected: list[str]) -> None:
    item = next(item for item in ITEMS if item.kind == kind)
    assert [case.way for case in ways.cases([item], HOST)] == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia_uvm", "rmmod nvidia_uvm"),
        # The daemon has module nvidia open, and nvidia_uvm uses it.
        ("nvidia", "systemctl stop nvidia-persistenced.service\nrmmod nvidia_uvm nvidia"),
    ],
)
def test_modules_are_unloaded_with_their_users(name: str, expected: str) -> None:
    (case,) = ways.cases([Item("nvidia_driver", "module", name)], HOST)
    assert case.script == expected


@pytest.mark.parametrize(
    ("option", "way", "expected"),
    [
        ("live-restore", "changed", {"live-restore": False, "labels": ["a"], "features": {"cdi": True}, "mtu": 9000}),
        ("live-restore", "removed", {"labels": ["a"], "features": {"cdi": True}, "mtu": 9000}),
        ("features.cdi", "removed", {"live-restore": True, "labels": ["a"], "features": {}, "mtu": 9000}),
        ("labels", "changed", {"live-restore": True, "labels": [], "features": {"cdi": True}, "mtu": 9000}),
        ("mtu", "changed", {"live-restore": True, "labels": ["a"], "features": {"cdi": True}, "mtu": 9001}),
    ],
)
def test_daemon_json_is_edited(tmp_path, option: str, way: str, expected: dict) -> None:
    path = tmp_path / "daemon.json"
    path.write_text(json.dumps({"live-restore": True, "labels": ["a"], "features": {"cdi": True}, "mtu": 9000}))
    case = next(case for case in ways.cases([Item("container_engine", "option", option)], HOST) if case.way == way)
    subprocess.run(["sh", "-ec", case.script.replace(owned.DAEMON_JSON, str(path))], check=True)
    assert json.loads(path.read_text()) == expected


def test_one_rebuild_of_the_modules_is_enough() -> None:
    removals = {
        **{item.name: [item.name] for item in ITEMS if item.kind == "package"},
        "dkms": ["nvidia-open-kernel-dkms", "dkms"],
        "nvidia-open-kernel-support": ["nvidia-open-kernel-dkms", "nvidia-open-kernel-support"],
        f"linux-headers-{sample.KERNEL}": [f"linux-headers-{sample.KERNEL}", "linux-headers-amd64"],
    }
    found = ways.cases(ITEMS, HOST)
    kept = ways.without_rebuilds(found, removals, ["nvidia-open-kernel-dkms"])
    skipped = {case.item.name for case in found} - {case.item.name for case in kept if case.item.kind == "package"}
    left_out = {case.item.name for case in found if case not in kept}
    assert left_out == {"dkms", "nvidia-open-kernel-dkms"}
    assert "libcuda1" not in skipped
    assert [case for case in found if case.item.kind != "package"] == [
        case for case in kept if case.item.kind != "package"
    ]


def test_removed_packages_are_read_from_the_simulation() -> None:
    text = "NOTE: This is only a simulation!\nRemv nvidia-smi [550.163.01-2] \nInst x (1)\nPurg docker.io [26.1]\n"
    assert ways.removed_with(text) == ["nvidia-smi", "docker.io"]
