# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A task with gpu_host_info observes what the roles need, without naming it."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from ansible_collections.gpufleet.hosts.plugins.action import gpu_host_info
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned


@pytest.mark.parametrize("async_val", [0, 60])
def test_the_module_gets_what_the_parts_own_besides_the_users_options(monkeypatch, async_val) -> None:
    plugin = gpu_host_info.ActionModule.__new__(gpu_host_info.ActionModule)
    plugin._task = MagicMock(args={"services": ["chrony.service"]}, async_val=async_val)
    plugin._connection = MagicMock(has_native_async=False)
    plugin._execute_module = MagicMock(return_value={"host": {}})
    monkeypatch.setattr(gpu_host_info.ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    assert plugin.run(task_vars={}) == {"host": {}}
    given = plugin._execute_module.call_args.kwargs
    # Ansible refuses `async` for a plugin that does not say that it supports it.
    assert (given["wrap_async"], plugin._supports_async) == (bool(async_val), True)
    assert given["module_args"]["services"] == ["chrony.service"]
    places = given["module_args"]["_declared"]
    assert {"docker.service", "slurmd.service"} <= set(places["services"])
    assert owned.ENGINE_RECORD in places["files"]
