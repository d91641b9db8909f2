# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import mig_without_devices

OFF = {"mig": {"enabled": False, "devices": []}}
EMPTY = {"mig": {"enabled": True, "devices": []}}
DIVIDED = {"mig": {"enabled": True, "devices": [{"uuid": "MIG-1"}]}}
WITHOUT_MIG = {"mig": None}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"nvidia_gpus": [EMPTY, EMPTY]}, True),
        ({"nvidia_gpus": [EMPTY, DIVIDED]}, False),
        ({"nvidia_gpus": [EMPTY, OFF]}, False),
        ({"nvidia_gpus": [EMPTY, WITHOUT_MIG]}, False),
        ({"nvidia_gpus": []}, False),
        (None, False),
    ],
)
def test_gpus_of_which_programs_can_use_nothing(facts, expected):
    assert mig_without_devices.has_nothing(facts) is expected
