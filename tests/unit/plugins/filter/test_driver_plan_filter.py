# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.filter.nvidia_driver_plan import nvidia_driver_plan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform


@pytest.mark.parametrize(
    ("seen", "request_", "words"),
    [
        (host("debian-12"), {"hold": "perhaps"}, "nvidia_driver_hold is perhaps, which is not true or false."),
        ({"os": {}}, {}, "nvidia_driver_plan wants what gpufleet.hosts.gpu_host_info returned"),
    ],
)
def test_what_is_no_request_or_no_host_is_an_error_of_the_filter(seen, request_, words):
    with pytest.raises(AnsibleFilterError) as refused:
        nvidia_driver_plan(seen, request_, platform("debian-12"))
    assert words in str(refused.value)
