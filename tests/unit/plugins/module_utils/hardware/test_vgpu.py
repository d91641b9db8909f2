# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions, vgpu
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import nvidia_hardware
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

ADDRESS = "0002:00:00.0"
VERSION = b"\x00\x16" + b"570.172.07"[:10] + b"r570_00\0\0\0"
OTHER = b"\x07\x04ab"


def configuration(*capabilities: bytes, last_next: int = 0) -> bytes:
    """Return a PCI configuration with a chain of capabilities from offset 0x40. The last one refers to `last_next`."""
    content = bytearray(256)
    content[0x06] = 0x10 if capabilities else 0
    position = content[0x34] = 0x40
    for number, capability in enumerate(capabilities, start=1):
        following = position + len(capability)
        content[position:following] = capability
        content[position + 1] = last_next if number == len(capabilities) else following
        position = following
    return bytes(content)


def vendor_specific(*records: bytes, signature: bytes = b"VF") -> bytes:
    body = signature + b"".join(records)
    return bytes([0x09, 0, 3 + len(body)]) + body


POWER, EXPRESS = b"\x01\0\0\0\0\0\0\0", b"\x10\0" + bytes(0x3A)
# Device ID, subsystem ID and PCI configuration of a GPU; and if it is a vGPU, the version of its vGPU manager.
VGPUS = [
    ("T4-8Q, KVM", "0x1eb8", "0x130f", configuration(POWER, vendor_specific(VERSION)), "570.172.07"),
    ("another record first", "0x1eb8", "0x130f", configuration(vendor_specific(OTHER, VERSION)), "570.172.07"),
    (
        "V100, types not in the data",
        "0x1db4",
        "0x1234",
        configuration(vendor_specific(VERSION)),
        "570.172.07",
    ),
    ("without a version", "0x1db4", "0x1234", configuration(vendor_specific()), None),
    ("damaged version", "0x1db4", "0x1234", configuration(vendor_specific(b"\x00\x16\xff\xfe")), None),
    ("damaged record", "0x1db4", "0x1234", configuration(vendor_specific(b"\x07\x00" + VERSION)), None),
    ("A10-4Q, Azure, without root", "0x2236", "0x14bb", configuration(POWER)[:64], None),
    ("A100-40C, no configuration", "0x20b0", "0x1479", None, None),
    ("the last type of a block", "0x1eb8", "0x139b", None, None),
]
WHOLE = [
    ("T4", "0x1eb8", "0x12a2", configuration(POWER, EXPRESS)),
    ("T4 with NVIDIA's ordinary capability", "0x1eb8", "0x12a2", configuration(vendor_specific(signature=b"\1\0"))),
    ("A10", "0x2236", "0x1482", configuration(POWER)),
    ("A100 SXM4", "0x20b0", "0x134f", None),
    ("between two blocks of types", "0x1eb8", "0x1316", None),
    ("the ID of a type of another GPU", "0x2330", "0x130f", None),
    ("no capabilities", "0x1db1", "0x1212", configuration()),
    ("capabilities in a circle", "0x1db1", "0x1212", configuration(POWER, EXPRESS, last_next=0x40)),
    ("a broken chain", "0x1db1", "0x1212", configuration(POWER, b"\xff\xff\xff", last_next=0xFF)),
    ("a lost GPU", "0x1db1", "0x1212", b"\xff" * 256),
    ("a capability at the end", "0x1db1", "0x1212", configuration(POWER, last_next=0xFE)),
]


HOST = {"os": {"variant": None}, "kernel": {"kernels": [], "running": "6.1.0", "next_boot": "6.1.0"}}


def seen(tmp_path, device: str, subsystem: str, content: bytes | None, driver: str | None = None) -> list[dict]:
    tree = Tree(tmp_path)
    tree.function(ADDRESS, device, subsystem=subsystem, driver=driver)
    if content is not None:
        tree.file(f"sys/bus/pci/devices/{ADDRESS}/config", content)
    return nvidia_hardware.nvidia(tree.root, pci_functions.scan_all(tree.root), HOST)["vgpus"]


@pytest.mark.parametrize(("device", "subsystem", "content", "version"), [row[1:] for row in VGPUS],
                         ids=[row[0] for row in VGPUS])  # fmt: skip
def test_a_vgpu_is_recognized_without_a_driver(tmp_path, device, subsystem, content, version):
    assert seen(tmp_path, device, subsystem, content) == [{"address": ADDRESS, "manager_version": version}]


@pytest.mark.parametrize(("device", "subsystem", "content"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE])
def test_a_whole_gpu_is_no_vgpu(tmp_path, device, subsystem, content):
    assert seen(tmp_path, device, subsystem, content) == []


def test_a_gpu_that_is_reserved_for_a_guest_is_not_read(tmp_path):
    assert seen(tmp_path, "0x1eb8", "0x130f", None, driver="vfio-pci") == []


def test_subsystem_ids_of_another_vendor_are_no_vgpu_types():
    function = {"address": ADDRESS, "device_id": "0x1eb8", "subsystem_device_id": "0x130f"}
    assert vgpu.read("/nowhere", {**function, "subsystem_vendor_id": "0x1028"}) is None
    assert vgpu.read("/nowhere", {**function, "subsystem_vendor_id": None}) is None
