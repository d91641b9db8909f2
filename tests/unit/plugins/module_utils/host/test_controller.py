# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import controller
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host


@pytest.mark.parametrize(
    ("connection", "boot", "machine", "expected"),
    [
        ("ssh", "9d1b7c55", "other", False),
        ("ssh", "0f6e2b3c\n", "other", True),  # the controller is a container on this host
        ("ssh", "9d1b7c55", "5f3ab1c2", False),  # a clone with the machine ID of the controller
        ("ssh", "", "5f3ab1c2\n", True),  # without a boot ID, the machine ID decides
        ("ssh", "", "other", False),
        ("ssh", "", "", False),
        ("local", "9d1b7c55", "", True),
        ("ansible.builtin.local", "", "", True),
        ("community.docker.docker", "9d1b7c55", "", False),
    ],
)
def test_controller_is_recognized(connection, boot, machine, expected):
    assert controller.is_controller(host(), connection, boot, machine) is expected


@pytest.mark.parametrize(("machine", "expected"), [("5f3ab1c2", True), ("other", False)])
def test_machine_id_decides_where_the_host_has_no_boot_id(machine, expected):
    there = host(identity={"machine_id": "5f3ab1c2", "boot": "/4"})
    assert controller.is_controller(there, "ssh", "9d1b7c55", machine) is expected
