# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_the_description_of_a_gpu_is_complete(tree):
    tree.function("0000:3b:00.0", "0x2330", driver="nvidia", numa_node=1, subsystem="0x16c1")
    assert pci_functions.scan(tree.root) == [
        {
            "address": "0000:3b:00.0",
            "vendor_id": "0x10de",
            "device_id": "0x2330",
            "class_id": "0x030200",
            "subsystem_vendor_id": "0x10de",
            "subsystem_device_id": "0x16c1",
            "numa_node": 1,
            "kernel_driver": "nvidia",
            "kind": "gpu",
        }
    ]


@pytest.mark.parametrize(
    ("class_id", "kind"),
    [
        ("0x030000", "gpu"),
        ("0x030200", "gpu"),
        ("0x068000", "nvswitch"),
        ("0x040300", "other"),
        ("0x0c0330", "other"),
        ("0x0c8000", "other"),
    ],
)
def test_the_class_determines_the_kind(tree, class_id, kind):
    tree.function("0000:3b:00.0", class_id=class_id)
    assert pci_functions.scan(tree.root)[0]["kind"] == kind


def test_virtual_functions_are_not_gpus_of_the_host(tree):
    tree.function("0000:3b:00.0")
    tree.function("0000:3b:00.4")
    tree.link("sys/bus/pci/devices/0000:3b:00.4/physfn", "../0000:3b:00.0")
    assert [function["kind"] for function in pci_functions.scan(tree.root)] == ["gpu", "other"]


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        (None, None),
        ("nvidia", "nvidia"),
        ("nouveau", "nouveau"),
        ("vfio-pci", "vfio-pci"),
        ("nova_core", "nova_core"),
        ("nova-core", "nova_core"),
        ("NovaCore", "nova_core"),
    ],
)
def test_the_name_of_the_bound_driver_is_read(tree, driver, name):
    tree.function("0000:3b:00.0", driver=driver)
    assert pci_functions.scan(tree.root)[0]["kernel_driver"] == name


def test_functions_are_in_bus_order_above_domain_ffff(tree):
    for address in ("10000:01:00.0", "ffff:01:00.0", "0000:c1:00.0", "0000:3b:00.0"):
        tree.function(address)
    assert [function["address"] for function in pci_functions.scan(tree.root)] == [
        "0000:3b:00.0",
        "0000:c1:00.0",
        "ffff:01:00.0",
        "10000:01:00.0",
    ]


def test_only_scan_all_returns_other_vendors(tree):
    tree.function("0000:00:1e.0", "0x7364", vendor="0x1d0f", class_id="0x088000")
    tree.function("0000:3b:00.0")
    assert [function["vendor_id"] for function in pci_functions.scan(tree.root)] == ["0x10de"]
    assert [(one["vendor_id"], one["kind"]) for one in pci_functions.scan_all(tree.root)] == [
        ("0x1d0f", "other"),
        ("0x10de", "gpu"),
    ]


def test_values_missing_in_sysfs_are_none(tree):
    tree.file("sys/bus/pci/devices/0000:00:06.0/vendor", "0x10de\n")
    assert pci_functions.scan(tree.root) == [
        {
            "address": "0000:00:06.0",
            "vendor_id": "0x10de",
            "device_id": None,
            "class_id": None,
            "subsystem_vendor_id": None,
            "subsystem_device_id": None,
            "numa_node": None,
            "kernel_driver": None,
            "kind": "other",
        }
    ]


def test_a_host_without_numa_nodes_has_none(tree):
    tree.function("0000:3b:00.0", numa_node=-1)
    assert pci_functions.scan(tree.root)[0]["numa_node"] is None


@pytest.mark.parametrize("content", ["", "garbage", "0x", "\xff"])
def test_an_invalid_file_affects_only_its_value(tree, content):
    tree.function("0000:3b:00.0")
    tree.file("sys/bus/pci/devices/0000:3b:00.0/device", content)
    tree.file("sys/bus/pci/devices/0000:3b:00.0/numa_node", content)
    gpu = pci_functions.scan(tree.root)[0]
    assert (gpu["device_id"], gpu["numa_node"], gpu["kind"]) == (None, None, "gpu")


def test_a_host_without_a_pci_bus_has_no_functions(tree):
    assert pci_functions.scan(tree.root) == []


def test_names_that_are_not_addresses_are_ignored(tree):
    tree.file("sys/bus/pci/devices/nonsense/vendor", "0x10de")
    assert pci_functions.scan(tree.root) == []


@pytest.mark.parametrize(
    ("written", "kernel"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("0009:01:00.0", "0009:01:00.0"),
        (" 0000:06:00.0\n", "0000:06:00.0"),
        ("", None),
        (None, None),
        ("3b:00.0", None),
    ],
)
def test_addresses_have_the_kernels_format(written, kernel):
    assert pci_functions.kernel_address(written) == kernel
