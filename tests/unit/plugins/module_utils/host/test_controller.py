# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import controller
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host


@pytest.mark.parametrize(
    ("connection", "machine", "expected"),
    [
        ("ssh", "", False),
        ("ssh", "other", False),
        ("ssh", "5f3ab1c2\n", True),
        ("local", "", True),
        ("ansible.builtin.local", "", True),
        ("community.docker.docker", "", False),
    ],
)
def test_controller_is_recognized(connection, machine, expected):
    assert controller.is_controller(host(), connection, machine) is expected
