# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The internal filters of the driver's roles."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.filter import driver_internal as filters
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform


def test_invalid_host_fails():
    with pytest.raises(AnsibleFilterError) as error:
        filters.plan({"os": {}}, {}, platform("debian-12"))
    assert "The input is not a host as module gpufleet.hosts.gpu_host_info returns it." in str(error.value)


def test_plan_reports_invalid_values():
    plan = filters.plan(host("debian-12"), {"hold": "perhaps"}, platform("debian-12"))
    assert plan["errors"] == ["nvidia_driver_hold is perhaps, but must be true or false."]
    assert (plan["acts"], plan["todo"]["transaction"]["install"]) == (False, [])


def test_plan_consists_of_plain_data():
    """Ansible's templates and facts accept only these types."""

    def types(value) -> set[type]:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        return {type(value)}.union(*map(types, inner))

    plan = filters.plan(host("ubuntu-24.04"), {"source": "nvidia", "imex": True}, platform("ubuntu-24.04"))
    assert plan["todo"]["transaction"]["install"]
    assert types(plan) <= {dict, list, str, bool, int, type(None)}
