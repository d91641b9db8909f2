# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gaudi's accelerators in the neutral schema, read from directory trees."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    gather_all_vendors as accelerators_gather,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gaudi_trees import (
    CARD,
    GAUDI,
    GAUDI2,
    GAUDI3,
    NETWORK,
    PCI,
    UNKNOWN,
    VERSION,
    GaudiTree,
)


def read(tree: GaudiTree) -> tuple[list[dict], dict]:
    found = accelerators_gather.gather(dict, root=tree.root, vendors=["gaudi"])
    return found["accelerators"], found["accelerator_vendors"]["gaudi"]


@pytest.mark.parametrize(
    ("device", "generation", "model", "firmware"),
    [
        (GAUDI, "Gaudi", "HL-205", "hl-gaudi-1.23.0-fw-62.0.0-sec-9"),
        (GAUDI2, "Gaudi2", "HL-225H", "hl-gaudi2-1.23.0-fw-62.0.0-sec-9"),
        (GAUDI3, "Gaudi3", "HL-325L", "hl-gaudi3-1.23.0-fw-62.0.0-sec-9"),
        # The PCI ID has no known generation, but the driver tells it.
        (UNKNOWN, "Gaudi3", "HL-325", "hl-gaudi3-1.23.0-fw-62.0.0-sec-9"),
    ],
)
def test_a_module_of_a_board(tmp_path, device, generation, model, firmware):
    tree = GaudiTree(tmp_path)
    tree.accelerator("0000:19:00.0", 0, 4, device)
    (one,), vendor = read(tree)
    assert (one["stable_id"], one["stable_id_kind"], one["index"]) == ("module-4", "module_id", 0)
    assert (one["generation"], one["model"], one["kind"]) == (generation, model, "accelerator")
    assert one["firmware"] == {"fw_os": firmware, "cpld": "0x00000010"}
    assert (one["driver_version"], one["numa_node"], one["health"]) == (VERSION, 0, {"state": "ok", "reasons": []})
    assert [(node["path"], node["role"]) for node in one["nodes"]] == [
        ("/dev/accel/accel0", "device"),
        ("/dev/accel/accel_controlD0", "control"),
        ("/dev/infiniband/uverbs0", "rdma"),
    ]
    assert [one[key] for key in ("memory_total_mib", "memory_used_mib", "temperature_c", "power_w")] == [None] * 4
    assert (vendor["state"], vendor["devices"], vendor["driver_version"]) == ("ready", 1, VERSION)
    assert vendor["reason"] == "Kernel module habanalabs shows 1 Gaudi accelerator."


def test_a_pcie_card_is_named_by_its_address(tmp_path):
    tree = GaudiTree(tmp_path)
    tree.accelerator("0000:19:00.0", 0, 0, CARD, uverbs=False)
    tree.accelerator("0000:5a:00.0", 1, 0, CARD, uverbs=False)
    devices, vendor = read(tree)
    assert [one["stable_id"] for one in devices] == ["0000:19:00.0", "0000:5a:00.0"]
    assert {one["stable_id_kind"] for one in devices} == {"pci_address"}
    assert [one["model"] for one in devices] == ["HL-338"] * 2
    assert [len(one["nodes"]) for one in devices] == [2, 2]
    assert vendor["state"] == "ready"


def test_modules_with_the_same_id_are_an_error(tmp_path):
    tree = GaudiTree(tmp_path)
    tree.accelerator("0000:19:00.0", 0, 4)
    tree.accelerator("0000:5a:00.0", 1, 4)
    assert read(tree)[1]["state"] == "error"


def test_the_index_of_a_board_is_not_the_module_id(tmp_path):
    devices, _vendor = read(GaudiTree(tmp_path).board())
    assert [one["stable_id"] for one in devices] == [f"module-{number}" for number in range(8)]
    assert [one["index"] for one in devices] == [3, 4, 5, 6, 7, 0, 1, 2]
    assert devices[0]["nodes"][2]["path"] == "/dev/infiniband/uverbs3"


@pytest.mark.parametrize(
    ("status", "health", "word"),
    [
        ("Disabled", "lost", "power-cycle"),
        ("Malfunction", "lost", "power-cycle"),
        ("Needs reset", "lost", "reset it or reboot"),
        ("In reset", "degraded", "Try again"),
        ("In device creation", "degraded", "Try again"),
        ("In reset after device release", "degraded", "Try again"),
        ("Something\x1b[31mnew", "unknown", "Something\\x1b[31mnew"),
    ],
)
def test_the_status_is_the_health(tmp_path, status, health, word):
    tree = GaudiTree(tmp_path)
    tree.board(statuses={2: status})
    devices, vendor = read(tree)
    assert devices[2]["health"]["state"] == health
    assert word in devices[2]["health"]["reasons"][0]
    assert [one["health"]["state"] for one in devices].count("ok") == 7
    assert (vendor["state"], "Check the health of module-2." in vendor["reason"]) == ("ready", True)


def test_a_host_without_a_usable_accelerator_is_an_error(tmp_path):
    tree = GaudiTree(tmp_path)
    tree.accelerator("0000:19:00.0", 0, 4, status="Disabled")
    _devices, vendor = read(tree)
    assert (vendor["state"], "module-4: the driver disabled" in vendor["reason"]) == ("error", True)


def test_the_driver_in_the_kernel_is_named_with_what_it_lacks(tmp_path):
    tree = GaudiTree(tmp_path, version=None)
    tree.accelerator("0000:19:00.0", 0, None, GAUDI2, uverbs=False)
    tree.function("0000:5a:00.0", GAUDI3, vendor="0x1da3", class_id="0x120000")
    (bound, unbound), vendor = read(tree)
    # Kernels before 6.8 do not show module IDs.
    assert (bound["stable_id"], bound["stable_id_kind"]) == ("0000:19:00.0", "pci_address")
    assert (bound["driver_version"], bound["health"]["state"]) == (tree.kernel, "ok")
    assert (unbound["index"], unbound["nodes"], unbound["health"]["state"]) == (None, None, "lost")
    assert (vendor["state"], vendor["driver_version"]) == ("ready", tree.kernel)
    for words in ("the one in the kernel", ", ".join(NETWORK), "does not drive Gaudi3"):
        assert words in vendor["reason"]


def test_network_modules_that_are_not_loaded_are_named(tmp_path):
    tree = GaudiTree(tmp_path)
    tree.accelerator("0000:19:00.0", 0, 4)
    (tree.path / "sys/module/habanalabs_ib").rmdir()
    assert "Not loaded: habanalabs_ib" in read(tree)[1]["reason"]


def test_first_generation_accelerators_need_no_rdma_module(tmp_path):
    tree = GaudiTree(tmp_path)
    tree.accelerator("0000:19:00.0", 0, 4, GAUDI)
    (tree.path / "sys/module/habanalabs_ib").rmdir()
    assert "Not loaded" not in read(tree)[1]["reason"]


def test_kernels_before_drm_accel(tmp_path):
    tree = GaudiTree(tmp_path, legacy=True)
    tree.accelerator("0000:19:00.0", 0, 4, GAUDI2, uverbs=False)
    (one,), _vendor = read(tree)
    assert [node["path"] for node in one["nodes"]] == ["/dev/hl0", "/dev/hl_controlD0"]
    assert (one["stable_id"], one["index"], one["health"]["state"]) == ("module-4", 0, "ok")


def test_the_vendors_driver_on_kernels_without_drm_accel(tmp_path):
    tree = GaudiTree(tmp_path)
    place = tree.path / tree.accelerator("0000:19:00.0", 0, 4, GAUDI2)
    virtual = tree.path / "sys/devices/virtual/accel/accel0/device"
    virtual.mkdir(parents=True)
    for name in ("pci_addr", "status", "device_type", "module_id"):
        (place / name).rename(virtual / name)
    (tree.path / "sys/class/accel/accel0/device").unlink()
    (one,), _vendor = read(tree)
    assert (one["stable_id"], one["index"], one["health"]["state"]) == ("module-4", 0, "ok")
    assert one["nodes"][0]["path"] == "/dev/accel/accel0"


def test_the_states_without_a_working_driver(tmp_path):
    tree = GaudiTree(tmp_path, loaded=False)
    assert read(tree)[1]["state"] == "no_hardware"
    tree.function("0000:19:00.0", GAUDI3, vendor="0x1da3", class_id="0x120000", numa_node=1)
    (one,), vendor = read(tree)
    assert (one["stable_id"], one["generation"], one["numa_node"]) == ("0000:19:00.0", "Gaudi3", 1)
    assert (one["health"]["state"], one["nodes"], vendor["driver_version"]) == ("unknown", None, None)
    assert (vendor["state"], "gaudi_driver" in vendor["reason"]) == ("no_driver", True)
    tree.module("1", name="habanalabs")
    vendor = read(tree)[1]
    assert (vendor["state"], "modprobe habanalabs" in vendor["reason"]) == ("driver_not_loaded", True)
    (tree.path / "sys/module/habanalabs").mkdir(parents=True)
    (one,), vendor = read(tree)
    assert (one["health"]["state"], vendor["state"]) == ("lost", "driver_not_loaded")
    assert "drives none of the 1 Gaudi accelerator" in vendor["reason"]
    tree.link(f"{PCI}/0000:19:00.0/driver", "../../../../bus/pci/drivers/habanalabs")
    assert read(tree)[1]["state"] == "error"


def test_unexpected_contents_are_reported_and_not_used(tmp_path):
    tree = GaudiTree(tmp_path)
    tree.accelerator("0000:19:00.0", 0, 4, attributes={"module_id": "-1", "fw_os_ver": "bad\x1b[31m"})
    (one,), _vendor = read(tree)
    assert one["stable_id"] == "0000:19:00.0"
    assert one["firmware"] == {"cpld": "0x00000010"}
    assert "module_id: unexpected content -1" in one["unread"]["stable_id"]
    assert "\x1b" not in one["unread"]["firmware"]


def test_missing_nodes_are_reported(tmp_path):
    tree = GaudiTree(tmp_path)
    tree.accelerator("0000:19:00.0", 0, 4)
    (tree.path / "dev/infiniband/uverbs0").unlink()
    (one,), _vendor = read(tree)
    assert one["unread"]["nodes"] == "/dev/infiniband/uverbs0 does not exist here"


def test_no_device_node_is_opened_and_no_reset_is_triggered(tmp_path, monkeypatch):
    tree = GaudiTree(tmp_path).board()
    opened: list[tuple[str, int]] = []
    real = os.open

    def record(path, flags, *more, **named):
        opened.append((str(path), flags))
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", record)
    read(tree)
    assert len(opened) > 8
    assert not [path for path, _flags in opened if path.startswith(f"{tree.root}/dev/")]
    assert not [path for path, flags in opened if flags & (os.O_WRONLY | os.O_RDWR)]


def test_devices_of_guests_and_other_accel_drivers_are_no_gaudi(tmp_path):
    tree = GaudiTree(tmp_path)
    tree.function("0000:19:00.0", GAUDI3, vendor="0x1da3", class_id="0x120000", driver="vfio-pci")
    (tree.path / "sys/class/accel/accel0/device").mkdir(parents=True)
    devices, vendor = read(tree)
    assert (devices, vendor["state"], vendor["skipped"][0]["pci_address"]) == ([], "no_hardware", "0000:19:00.0")
