# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of workload/drain_reason.py."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_reason import reason_text


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("gpufleet", "new driver"), "gpufleet: new driver"),
        (("a", ""), "a"),
        (("a", "b\nState=IDLE\x1b[2J"), "a: b State=IDLE (2J"),
        (("a", 'say "x" [y]'), "a: say 'x' (y)"),
    ],
)
def test_a_reason_is_one_harmless_line(parts, expected):
    assert reason_text(*parts) == expected
    assert len(reason_text("x" * 1000)) == 300
