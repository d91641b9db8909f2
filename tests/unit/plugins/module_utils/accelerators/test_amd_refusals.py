# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever file of a host with AMD's GPUs the kernel refuses to read: no value becomes null without a reason."""

from __future__ import annotations

import errno
import os

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    amd_devices,
    sysfs_refusals,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions
from ansible_collections.gpufleet.hosts.tests.unit.plugins.amd_trees import FRU, KFD, MEMORY, RAS, SENSORS, AmdTree

CODES = (errno.EPERM, errno.EINVAL, errno.ENODATA)


class RefusingTree(sysfs_refusals.SysfsTree):
    """A tree in which the kernel refuses to read one file, and that records all reads."""

    def __init__(self, root: str, refused: str = "", code: int = errno.EPERM) -> None:
        super().__init__(root)
        self.refused, self.code = refused, code
        self.reads: set[str] = set()

    def read_bytes(self, path, limit=sysfs_refusals.MOST_BYTES):
        self.reads.add(path)
        if path == self.refused:
            raise OSError(self.code, os.strerror(self.code))
        return super().read_bytes(path, limit)


def values(device: dict, at: str = "") -> dict:
    """Return the values of a device by the path of their keys."""
    found = {}
    for key, value in device.items():
        if isinstance(value, dict):
            found.update(values(value, f"{at}{key}."))
        else:
            found[f"{at}{key}"] = value
    return found


def test_every_refused_file_is_named_where_its_value_is_null(tmp_path):
    tree = AmdTree(tmp_path / "root", version="6.16.13")
    everything = {**MEMORY, **SENSORS, **RAS, **FRU}
    tree.gpu("0000:05:00.0", 128, unique_id="e3a9c0ffee123456", mode="SPX", hive=7, attributes=everything)
    tree.gpu("0000:27:00.0", 129, unique_id="00000000000000b2", mode="DPX", partitions=2, attributes=everything)
    functions = pci_functions.scan_all(tree.root)
    source = RefusingTree(tree.root)
    whole = amd_devices.read(source, functions, tree.kernel).devices
    assert len(whole) == 3 and len(source.reads) > 30
    silent = []
    for path in sorted(source.reads):
        for code in CODES:
            devices = amd_devices.read(RefusingTree(tree.root, path, code), functions, tree.kernel).devices
            if path.startswith(f"/{KFD}") and path.endswith("/properties") and len(devices) < len(whole):
                continue  # a GPU that the device cgroup hides
            assert len(devices) == len(whole), path
            for before, after in zip(whole, devices):
                reasons = after.pop("unread")
                lost = {
                    key
                    for key, value in values({key: before[key] for key in after}).items()
                    if value is not None and values(after).get(key) is None
                }
                silent += [(path, key) for key in lost if not {key, key.partition(".")[0]} & set(reasons)]
    assert silent == []


def test_the_version_of_the_driver_is_not_that_of_the_kernel_if_it_cannot_be_read(tmp_path):
    tree = AmdTree(tmp_path / "root", version="6.16.13")
    tree.gpu("0000:05:00.0", 128)
    refused = RefusingTree(tree.root, "/sys/module/amdgpu/version")
    found = amd_devices.read(refused, pci_functions.scan_all(tree.root), tree.kernel)
    assert (found.vendor["driver_version"], found.devices[0]["driver_version"]) == (None, None)
    assert "(EPERM)" in found.devices[0]["unread"]["driver_version"]


def test_another_sensor_than_the_junction_is_named(tmp_path):
    tree = AmdTree(tmp_path / "root")
    base = tree.gpu("0000:05:00.0", 128, attributes=SENSORS)
    refused = RefusingTree(tree.root, f"/{base}/hwmon/hwmon4/temp2_label")
    (device,) = amd_devices.read(refused, pci_functions.scan_all(tree.root), tree.kernel).devices
    assert device["temperature_c"] == 38
    assert "temp2_label" in device["unread"]["temperature_c"]


def test_used_memory_is_known_without_the_total(tmp_path):
    tree = AmdTree(tmp_path / "root")
    base = tree.gpu("0000:05:00.0", 128, attributes=MEMORY)
    refused = RefusingTree(tree.root, f"/{base}/mem_info_vram_total")
    (device,) = amd_devices.read(refused, pci_functions.scan_all(tree.root), tree.kernel).devices
    assert (device["memory_total_mib"], device["memory_used_mib"]) == (None, 512)
