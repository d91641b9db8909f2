# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.site import is_host_converged

DONE = {"acting": [], "drain": None, "plan": {"verify": {"applies": True}}}


@pytest.mark.parametrize(
    ("changes", "facts", "expected"),
    [
        ({}, {"nvidia_gpu_state": "ready"}, True),
        # The GPUs are verified, and are not ready or were not read.
        ({}, {"nvidia_gpu_state": "driver_not_loaded"}, False),
        ({}, {}, False),
        # A host without GPUs, and a run with other tags.
        ({"plan": {"verify": {"applies": False}}}, {}, True),
        ({"plan": {}}, {}, True),
        ({"acting": ["container_engine"]}, {"nvidia_gpu_state": "ready"}, False),
        # An earlier run has left a drain.
        ({"drain": {"begins": False}}, {"nvidia_gpu_state": "ready"}, False),
    ],
)
def test_a_host_is_converged_if_site_has_nothing_to_do(changes, facts, expected):
    assert is_host_converged.is_converged({**DONE, **changes}, facts) is expected
