# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which display adapters of AMD count as GPUs."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, pci_functions
from ansible_collections.gpufleet.hosts.tests.unit.plugins.amd_trees import APU, MI300A, MI300X, RADEON, AmdTree

NORTH_BRIDGE = {"hwmon/hwmon2/name": "amdgpu", "hwmon/hwmon2/in1_label": "vddnb"}


@pytest.mark.parametrize(
    ("gpu", "counts"),
    [
        ({"device": MI300X}, True),
        ({"device": RADEON}, True),
        # Graphics of a CPU that KFD knows, too.
        ({"device": APU, "attributes": NORTH_BRIDGE}, False),
        ({"device": APU, "cpu_cores_count": 8}, False),
        ({"device": APU}, True),
        ({"device": MI300A, "attributes": NORTH_BRIDGE, "cpu_cores_count": 24}, True),
    ],
)
def test_graphics_of_a_cpu_are_no_gpu(tmp_path, gpu, counts):
    tree = AmdTree(tmp_path / "root")
    tree.gpu("0000:05:00.0", 128, **gpu)
    assert bool(accelerator_pci_ids.pick(pci_functions.scan_all(tree.root), tree.root)) is counts
