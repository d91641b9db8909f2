# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The internal filters of the driver's roles."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.filter import driver_internal as filters


def test_invalid_host_fails():
    with pytest.raises(AnsibleFilterError) as error:
        filters.installer_record({"os": {}})
    assert "The input is not an observation that module gpufleet.hosts.gpu_host_info returned." in str(error.value)
