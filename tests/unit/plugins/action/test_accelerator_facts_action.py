# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the action plugin of accelerator_facts sends pynvml."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from ansible_collections.gpufleet.hosts.plugins.action import accelerator_facts
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import nvml_binding

INCOMPLETE = {"ansible_facts": {"accelerators": []}, "nvml_binding_missing": True}
SEEN = {"gpufleet_host": {"accelerators": {"nvidia": {"driver": {"loaded": "580.95.05"}}}, "nvml_binding": False}}


@pytest.fixture
def action(monkeypatch):
    plugin = accelerator_facts.ActionModule.__new__(accelerator_facts.ActionModule)
    plugin._task = MagicMock(action="gpufleet.hosts.accelerator_facts", args={}, async_val=0, delegate_to=None)
    plugin._connection = MagicMock(has_native_async=False)
    plugin._execute_module = MagicMock(return_value=INCOMPLETE)
    plugin._send = MagicMock(return_value="/remote/pynvml.zip")
    monkeypatch.setattr(nvml_binding.ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    return plugin


def have_binding(monkeypatch, path):
    for module in (accelerator_facts, nvml_binding):
        monkeypatch.setattr(module, "controller_binding", lambda: path)


def test_a_host_that_needs_pynvml_gets_it(action, monkeypatch):
    have_binding(monkeypatch, "/pynvml.py")
    action.run(task_vars={})
    assert action._execute_module.call_args.kwargs["module_args"] == {"_nvml_binding_path": "/remote/pynvml.zip"}


def test_without_pynvml_anywhere_the_other_vendors_are_returned(action, monkeypatch):
    have_binding(monkeypatch, None)
    assert action.run(task_vars=SEEN) == INCOMPLETE
    action._execute_module.assert_called_once()


@pytest.mark.parametrize("async_val", [0, 60])
@pytest.mark.parametrize(("vendors", "calls"), [(["amd"], 1), ("amd, intel", 1), (["nvidia", "amd"], 2), ("nvidia", 2)])
def test_pynvml_is_sent_only_for_nvidia(action, monkeypatch, vendors, calls, async_val):
    have_binding(monkeypatch, "/pynvml.py")
    action._task.args = {"vendors": vendors}
    action._task.async_val = async_val
    action.run(task_vars={})
    assert action._execute_module.call_count == calls
    assert action._send.called is (calls == 2)
    assert action._execute_module.call_args.kwargs["wrap_async"] is bool(async_val)
