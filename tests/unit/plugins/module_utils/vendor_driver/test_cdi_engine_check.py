# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which engines can use the CDI specification of a vendor's accelerators."""

from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import cdi_engine_check

PATH = "/var/run/cdi/gpufleet-amd.json"
BOTH = ["/etc/cdi", "/var/run/cdi"]


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        ({}, None),
        (
            {"docker": {"version": "20.10.24", "info": {"cdi_spec_dirs": []}}},
            "Docker 20.10.24 has no CDI",
        ),
        ({"docker": {"version": "26.1.5", "info": {"cdi_spec_dirs": []}}}, "CDI is disabled in Docker"),
        ({"docker": {"version": "28.3.3", "info": {"cdi_spec_dirs": BOTH}}}, None),
        ({"docker": {"version": "28.3.3", "info": {"cdi_spec_dirs": ["/etc/cdi", "/run/cdi/"]}}}, None),
        (
            {"docker": {"version": "28.3.3", "info": {"cdi_spec_dirs": ["/etc/cdi"]}}},
            "Docker searches .* only in /etc/cdi,",
        ),
        # Docker does not answer.
        ({"docker": {"version": "28.3.3", "info": None}}, None),
        ({"podman": {"version": "4.3.1+ds1-8"}}, None),
        ({"podman": {"version": "4.0.2"}}, "Podman 4.0.2 has no CDI devices"),
        ({"podman": {"version": "5.5.2"}}, "Podman 5.5.2 searches for CDI specifications only in /etc/cdi"),
        ({"podman": {"version": "5.6.0"}}, None),
    ],
)
def test_an_engine_that_does_not_use_the_specification_is_named(engines, expected):
    found = cdi_engine_check.obstacles({"engines": engines}, PATH)
    assert len(found) == bool(expected)
    if expected:
        assert re.match(expected, found[0])
        assert found[0].endswith("gives containers the device nodes instead")
