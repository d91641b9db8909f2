# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hardware, EC2 groups, facts, options and reports use the same names of vendors."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import module_call
from ansible_collections.gpufleet.hosts.plugins.module_utils.aws import instance_families
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import vendor_of_host as container_vendors
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import VENDORS

# EC2 also has accelerators that the collection only groups.
ONLY_IN_EC2 = {"qualcomm", "xilinx"}
FUNCTIONS = [
    ("0x10de", "0x2330", "0x030200"),
    ("0x1002", "0x74a1", "0x120000"),
    ("0x1d0f", "0x7264", "0x088000"),
    ("0x1da3", "0x1063", "0x120000"),
    ("0x8086", "0x56c0", "0x038000"),
]


def of_pci():
    given = [
        {"vendor_id": vendor, "device_id": device, "class_id": kind, "kind": "gpu"}
        for vendor, device, kind in FUNCTIONS
    ]
    return {one["vendor"] for one in accelerator_pci_ids.pick(given)}


@pytest.mark.parametrize(
    ("names", "others"),
    [
        (of_pci(), set()),
        (set(module_call.OPTIONS["vendors"]["choices"]), set()),
        ({family.vendor for family in instance_families.FAMILIES.values()}, {*ONLY_IN_EC2, "intel"}),
        (set(container_vendors.VENDORS), {"intel"}),
    ],
    ids=["hardware", "facts", "ec2", "containers"],
)
def test_every_list_of_vendors_has_the_same_names(names, others):
    assert names ^ set(VENDORS) <= others
