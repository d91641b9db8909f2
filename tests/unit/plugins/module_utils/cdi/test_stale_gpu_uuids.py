# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The UUIDs of GPUs that a specification names, and those of the host."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.stale_gpu_uuids import changed_message, written

FIRST, SECOND = ("GPU-c3f1d2a0-0000-1111-2222-333344445555", "MIG-c3f1d2a0-0000-1111-2222-333344445556")


@pytest.mark.parametrize(
    "text",
    [
        f'devices:\n- name: "0"\n- name: {FIRST}\n- name: "{SECOND}"\n- name: all\n',
        json.dumps({"devices": [{"name": "0"}, {"name": FIRST}, {"name": SECOND}]}, indent=2),
        json.dumps({"devices": [{"name": FIRST, "containerEdits": {"env": [f"X={FIRST}"]}}, {"name": SECOND}]}),
    ],
)
def test_uuids_are_names_of_devices(text):
    assert written(text) == (FIRST, SECOND)
    assert written(f"env: [X={FIRST}]") == ()


@pytest.mark.parametrize(
    ("named", "present", "words"),
    [
        ([FIRST], [FIRST], None),
        ([], [FIRST], None),
        ([FIRST], [], None),
        ([FIRST], [SECOND], f"it names {FIRST}, which no longer exists, and it lacks {SECOND}; run nvidia_cdi_spec"),
        ([FIRST, SECOND], [FIRST], f"it names {SECOND}, which no longer exists; run"),
        ([FIRST], [FIRST, SECOND], f"is stale: it lacks {SECOND}; run"),
    ],
)
def test_specification_of_other_devices_is_stale(named, present, words):
    message = changed_message("/etc/cdi/a.json", named, present, ours=True)
    assert message is None if words is None else words in message
