# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accelerators of all vendors of whole hosts."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    gather_all_vendors as accelerators_gather,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import VENDORS
from ansible_collections.gpufleet.hosts.tests.unit.plugins.amd_trees import AmdTree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.neuron_trees import TRN2, NeuronTree


def never() -> dict:
    raise AssertionError("NVML was read")


def nvidia_facts(tree: Tree):
    return lambda: facts_gather.gather(root=tree.root, driver_root=str(tree.path / "nothing"))["facts"]


def states(found: dict) -> dict[str, str]:
    return {vendor: state["state"] for vendor, state in found["accelerator_vendors"].items()}


def test_an_empty_host_has_a_state_for_each_vendor(tmp_path):
    found = accelerators_gather.gather(never, root=str(tmp_path))
    assert found["accelerators"] == []
    assert states(found) == dict.fromkeys(VENDORS, "no_hardware")


def test_an_amd_host_needs_no_nvml(tmp_path):
    tree = AmdTree(tmp_path)
    tree.gpu("0000:05:00.0", 128, unique_id="e3a9c0ffee123456")
    found = accelerators_gather.gather(never, root=tree.root)
    assert states(found)["amd"] == "ready"
    assert [one["vendor"] for one in found["accelerators"]] == ["amd"]


def test_a_host_with_two_vendors(tmp_path):
    tree = AmdTree(tmp_path)
    tree.gpu("0000:05:00.0", 128, unique_id="e3a9c0ffee123456")
    tree.function("0000:3b:00.0", "0x2330")
    found = accelerators_gather.gather(nvidia_facts(tree), root=tree.root)
    assert [one["vendor"] for one in found["accelerators"]] == ["nvidia", "amd"]
    assert (states(found)["nvidia"], states(found)["amd"]) == ("no_driver", "ready")
    nvidia = found["accelerators"][0]
    assert (nvidia["pci_id"], nvidia["generation"], nvidia["nodes"]) == ("10de:2330", "hopper", None)
    assert nvidia["health"]["state"] == "unknown"
    only = accelerators_gather.gather(never, root=tree.root, vendors=["amd"])
    assert (list(states(only)), len(only["accelerators"])) == (["amd"], 1)


@pytest.mark.parametrize(
    ("vendor", "function", "drivers", "generation"),
    [
        ("intel", ("0x8086", "0x56c0", "0x038000"), ("i915", "i915"), None),
        ("intel", ("0x8086", "0x56c0", "0x038000"), ("xe", "xe"), None),
    ],
)
def test_other_vendors_come_from_pci(tmp_path, vendor, function, drivers, generation):
    (pci_vendor, device, class_id), (module, driver) = function, drivers
    tree = Tree(tmp_path)

    def read() -> tuple[list, dict]:
        found = accelerators_gather.gather(never, root=tree.root)
        return found["accelerators"], found["accelerator_vendors"][vendor]

    tree.function("0000:cc:00.0", device, vendor=pci_vendor, class_id=class_id, numa_node=1)
    (one,), state = read()
    assert (one["vendor"], one["pci_id"], one["generation"]) == (vendor, f"{pci_vendor[2:]}:{device[2:]}", generation)
    assert (one["stable_id"], one["stable_id_kind"], one["numa_node"]) == ("0000:cc:00.0", "pci_address", 1)
    assert (one["index"], one["nodes"], one["memory_total_mib"]) == (None, None, None)
    assert one["health"]["state"] == "unknown"
    assert state["state"] == "no_driver"
    tree.module("1", name=module)
    _devices, state = read()
    assert (state["state"], f"modprobe {module}" in state["reason"]) == ("driver_not_loaded", True)
    (tree.path / "sys/module" / module).mkdir(parents=True)
    _devices, state = read()
    assert (state["state"], "kernel log" in state["reason"]) == ("driver_not_loaded", True)
    tree.link("sys/bus/pci/devices/0000:cc:00.0/driver", f"../../../../bus/pci/drivers/{driver}")
    _devices, state = read()
    assert (state["state"], "Only the values of PCI" in state["reason"]) == ("ready", True)


def test_a_host_with_neuron_chips(tmp_path):
    tree = NeuronTree(tmp_path)
    tree.host(TRN2, 2)
    found = accelerators_gather.gather(never, root=tree.root)
    assert [(one["vendor"], one["index"]) for one in found["accelerators"]] == [("neuron", 0), ("neuron", 1)]
    assert states(found)["neuron"] == "ready"


def test_devices_for_guests_are_skipped(tmp_path):
    tree = Tree(tmp_path)
    tree.function("0000:cc:00.0", "0x1060", vendor="0x1da3", class_id="0x120000", driver="vfio-pci")
    found = accelerators_gather.gather(never, root=tree.root)["accelerator_vendors"]["gaudi"]
    assert (found["state"], found["devices"], found["skipped"][0]["pci_address"]) == ("no_hardware", 0, "0000:cc:00.0")
