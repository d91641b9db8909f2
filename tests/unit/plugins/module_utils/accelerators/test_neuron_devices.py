# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AWS Neuron's chips in the neutral schema, read from directory trees."""

from __future__ import annotations

import errno
import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    neuron_devices,
    sysfs_refusals,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions
from ansible_collections.gpufleet.hosts.tests.unit.plugins.neuron_trees import INF1, INF2, TRN1, TRN2, TRN3, NeuronTree


class RootOnlyTree(sysfs_refusals.SysfsTree):
    """A tree in which the kernel refuses some files, and that records all reads."""

    def __init__(self, root: str, refused: tuple[str, ...] = ()) -> None:
        super().__init__(root)
        self.refused = refused

    def read_bytes(self, path, limit=sysfs_refusals.MOST_BYTES):
        if path.rsplit("/", 1)[-1] in self.refused:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return super().read_bytes(path, limit)


def read(tree: NeuronTree, refused: tuple[str, ...] = ()):
    return neuron_devices.read(RootOnlyTree(tree.root, refused), pci_functions.scan_all(tree.root), tree.kernel)


def only(found) -> dict:
    (device,) = found.devices
    return device


@pytest.fixture
def host(tmp_path):
    def make(**options) -> NeuronTree:
        return NeuronTree(tmp_path / "root", **options)

    return make


def test_an_inferentia2_has_every_value(host):
    tree = host()
    (address,) = tree.host(INF2, 1)
    found = read(tree)
    assert found.vendor["state"] == "ready"
    assert only(found) == {
        "vendor": "neuron",
        "kind": "accelerator",
        "generation": "Inferentia2",
        "model": "Inferentia2",
        "pci_address": address,
        "pci_id": "1d0f:7264",
        "index": 0,
        "stable_id": "00a1b2c3d4e5f600",
        "stable_id_kind": "unique_id",
        "numa_node": 0,
        "nodes": [{"path": "/dev/neuron0", "role": "device", "gid": os.stat(tree.path / "dev/neuron0").st_gid}],
        "memory_total_mib": 32768,
        "memory_used_mib": 128,
        "temperature_c": None,
        "power_w": None,
        "utilization_percent": None,
        "errors": {"corrected": 0, "uncorrected": 0, "pending": None},
        "links": {"fabric": None, "peers": []},
        "partition": {"mode": None, "id": None, "parent": None},
        "cores": 2,
        "driver_version": "2.30.2.0",
        "firmware": None,
        "health": {"state": "ok", "reasons": []},
        "unread": {},
    }


@pytest.mark.parametrize(
    ("chips", "version", "model", "others"),
    [
        ((INF1, 4), "2.24.7.0", "Inferentia", (8192, "pci_address")),
        ((INF2, 12), "2.30.2.0", "Inferentia2", (32768, "unique_id")),
        ((TRN1, 16), "2.28.4.0", "Trainium1", (32768, "unique_id")),
        ((TRN2, 16), "2.30.2.0", "Trainium2", (98304, "unique_id")),
        ((TRN3, 16), "2.30.2.0", "Trainium3", (None, "unique_id")),
    ],
)
def test_the_generations(host, chips, version, model, others):
    (generation, count), (memory, stable_id_kind) = chips, others
    tree = host(version=version)
    addresses = tree.host(generation, count)
    found = read(tree)
    assert (found.vendor["state"], found.vendor["devices"], found.vendor["driver_version"]) == ("ready", count, version)
    assert [one["index"] for one in found.devices] == list(range(count))
    assert [one["pci_address"] for one in found.devices] == addresses
    for one in found.devices:
        assert (one["model"], one["memory_total_mib"], one["cores"]) == (model, memory, generation.cores)
        assert one["stable_id_kind"] == stable_id_kind
        assert one["health"] == {"state": "ok", "reasons": []}
    assert len({one["stable_id"] for one in found.devices}) == count
    assert {one["numa_node"] for one in found.devices} == {0, 1}
    assert found.devices[0]["errors"]["uncorrected"] == (None if generation is INF1 else 0)


def test_links_are_the_stable_ids_of_the_linked_chips(host):
    tree = host()
    tree.host(TRN2, 16, links="12, 3, 4, 1")
    found = read(tree)
    ids = [one["stable_id"] for one in found.devices]
    assert found.devices[0]["links"]["peers"] == [ids[1], ids[3], ids[4], ids[12]]


@pytest.mark.parametrize(
    ("attributes", "state", "reason"),
    [
        ({"stats__hardware__mem_ecc_uncorrected": "3\n"}, "degraded", "3 uncorrected memory errors"),
        ({"stats__hardware__mem_ecc_repairable_uncorrected": "1\n"}, "degraded", "1 uncorrected memory error."),
        ({"stats__hardware__health_status__unhealthy_components": "hbm,link_host\n"}, "degraded", "hbm, link_host"),
        ({"neuron_core3__stats__status__hw_error__total": "2\n"}, "degraded", "neuron_core3: counter hw_error is 2"),
        ({"neuron_core0__stats__status__hw_hbm_ue_error__total": "1\n"}, "degraded", "hw_hbm_ue_error is 1"),
        ({"reset": "0\n"}, "degraded", "is being reset"),
        ({"reset": "2\n"}, "lost", "reboot the host"),
        ({"reset": "1"}, "ok", ""),
        ({"stats__hardware__mem_ecc_corrected": "9\n"}, "ok", ""),
    ],
)
def test_health(host, attributes, state, reason):
    tree = host()
    tree.host(TRN2, 1, **attributes)
    found = read(tree)
    assert only(found)["health"]["state"] == state
    assert reason in " ".join(only(found)["health"]["reasons"])
    assert found.vendor["state"] == ("error" if state == "lost" else "ready")


def test_a_driver_before_2_28_shows_cores_and_links_to_root_only(host):
    tree = host(version="2.27.4.0")
    tree.host(TRN1, 16, links="1, 2, 3, 4")
    found = read(tree, refused=("core_count", "connected_devices", "reset"))
    one = found.devices[0]
    assert (one["cores"], one["links"], one["errors"]["uncorrected"]) == (None, None, 0)
    assert {key: "become: true" in reason for key, reason in one["unread"].items()} == dict.fromkeys(
        ("cores", "links", "health"), True
    )
    assert (one["health"]["state"], found.vendor["state"]) == ("unknown", "ready")


def test_an_unreadable_counter_is_not_zero(host):
    tree = host()
    tree.host(TRN2, 1)
    one = only(read(tree, refused=("mem_ecc_uncorrected",)))
    assert (one["errors"]["uncorrected"], "errors" in one["unread"]) == (None, True)


@pytest.mark.parametrize("serial", ["\n", "0000000000000000\n", "ffffffffffffffff\n", "../../etc\n"])
def test_without_a_serial_number_the_address_is_the_identity(host, serial):
    tree = host()
    addresses = tree.host(INF2, 6, info__serial_number=serial)
    found = read(tree)
    assert [one["stable_id"] for one in found.devices] == addresses
    assert found.vendor["state"] == "ready"


def test_a_container_counts_only_the_chips_that_it_has(host):
    tree = host()
    addresses = tree.bus(TRN2, 4)
    for number in range(4):
        tree.chip(TRN2, node=number in (2, 3))
    tree.log(addresses)
    found = read(tree)
    assert [one["index"] for one in found.devices] == [2, 3]
    assert [one["pci_address"] for one in found.vendor["skipped"]] == addresses[:2]
    assert (found.vendor["state"], found.vendor["devices"]) == ("ready", 2)


def test_a_container_without_chips_says_what_to_add(host):
    tree = host()
    tree.host(INF2, 2, node=False)
    found = read(tree)
    assert (found.devices, found.vendor["state"]) == ([], "error")
    assert "/dev/neuron0, /dev/neuron1 is not accessible" in found.vendor["reason"]


@pytest.mark.parametrize(
    ("hardware", "version", "state", "reason"),
    [
        ((TRN2, False), None, "no_driver", "aws-neuronx-dkms"),
        ((TRN2, True), None, "driver_not_loaded", "modprobe neuron"),
        ((TRN2, True), "2.30.2.0", "driver_not_loaded", "kernel log"),
        ((INF1, True), "2.30.2.0", "driver_not_loaded", "Install driver 2.24"),
        ((INF1, True), "2.24.7.0", "driver_not_loaded", "kernel log"),
    ],
)
def test_the_state_without_chips(host, hardware, version, state, reason):
    generation, installed = hardware
    loaded = version is not None
    tree = host(loaded=loaded, version=version)
    tree.bus(generation, 2, bound=False)
    if installed:
        tree.module("1", name="neuron")
    found = read(tree)
    assert (found.vendor["state"], reason in found.vendor["reason"]) == (state, True)
    assert [one["pci_address"] for one in found.devices] == ["0000:a0:00.0", "0000:a1:00.0"]
    assert {one["health"]["state"] for one in found.devices} == {"lost" if loaded else "unknown"}


def test_a_function_that_the_driver_gave_up_is_lost(host):
    tree = host()
    addresses = tree.bus(TRN1, 4)
    os.unlink(tree.path / f"sys/bus/pci/devices/{addresses[3]}/driver")
    for _number in range(3):
        tree.chip(TRN1)
    tree.log(addresses[:3])
    found = read(tree)
    assert [(one["index"], one["health"]["state"]) for one in found.devices] == [
        (0, "ok"),
        (1, "ok"),
        (2, "ok"),
        (None, "lost"),
    ]
    assert (found.vendor["state"], addresses[3] in found.vendor["reason"]) == ("ready", True)


def test_a_chip_off_the_bus_is_lost(host):
    tree = host()
    addresses = tree.host(TRN1, 2)
    tree.file(f"sys/bus/pci/devices/{addresses[1]}/config", b"\xff" * 64)
    assert [one["health"]["state"] for one in read(tree).devices] == ["ok", "lost"]


def test_unknown_addresses_leave_everything_else_readable(host):
    tree = host()
    tree.bus(TRN2, 16)
    for _number in range(16):
        tree.chip(TRN2)
    found = read(tree)
    assert len(found.devices) == 16
    one = found.devices[5]
    assert (one["pci_address"], one["numa_node"], one["stable_id"]) == (None, None, "00a1b2c3d4e5f605")
    assert (one["pci_id"], one["memory_total_mib"], one["generation"]) == ("1d0f:7364", 98304, "Trainium2")
    assert "pci_address" in one["unread"]


def test_functions_for_guests_are_skipped(host):
    tree = host(loaded=False)
    tree.function("0000:cc:00.0", "0x7364", vendor="0x1d0f", class_id="0x088000", driver="vfio-pci")
    found = read(tree)
    assert (found.devices, found.vendor["state"]) == ([], "no_hardware")
    assert [one["pci_address"] for one in found.vendor["skipped"]] == ["0000:cc:00.0"]
