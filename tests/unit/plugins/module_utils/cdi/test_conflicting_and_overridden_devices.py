# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of cdi/conflicting_and_overridden_devices.py."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.conflicting_and_overridden_devices import distinguish
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.specification_reader import CdiDevice

A, B, LATER = "/etc/cdi/a.json", "/etc/cdi/b.yaml", "/run/cdi/a.json"


@pytest.mark.parametrize(
    ("paths", "valid", "conflict"),
    [
        ([A], A, None),
        ([A, LATER], LATER, None),
        ([A, B], B, (A, B)),
        ([A, B, LATER], LATER, (A, B)),
        ([A, A], A, None),
    ],
)
def test_two_files_of_one_directory_conflict_and_a_later_directory_overrides(paths, valid, conflict):
    devices, conflicts = distinguish(CdiDevice("nvidia.com/gpu", "0", path, "0.5.0") for path in paths)
    assert {name: device.path for name, device in devices.items()} == {"nvidia.com/gpu=0": valid}
    assert conflicts == ({"nvidia.com/gpu=0": conflict} if conflict else {})
