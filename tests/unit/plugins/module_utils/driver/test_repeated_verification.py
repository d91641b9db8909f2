# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The step that repeats a failed driver verification."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import repeated_verification


@pytest.mark.parametrize(
    ("verifies", "has_work", "count"), [(True, False, 1), (True, True, 0), (False, False, 0), (False, True, 0)]
)
def test_a_plan_with_other_work_does_not_list_the_verification(verifies, has_work, count):
    found = repeated_verification.planned_steps(verifies=verifies, has_work=has_work)
    assert [step.text for step in found] == ["repeat the driver verification that failed in an earlier run"] * count
