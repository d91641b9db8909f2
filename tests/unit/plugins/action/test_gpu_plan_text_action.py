# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the task prints, and what it returns."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from ansible import constants as C
from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.hosts.plugins.action import gpu_plan_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_report
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import text_output
from ansible_collections.gpufleet.hosts.tests.unit.plugins.plan_samples import FLEET


def run(**arguments):
    task = MagicMock(args=arguments, async_val=0, check_mode=True)
    return gpu_plan_text.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), None).run(task_vars={})


@pytest.fixture
def printed(monkeypatch):
    found = []
    display = MagicMock()
    display.display = lambda text, color=None: found.append((text, color))
    monkeypatch.setattr(text_output, "Display", lambda: display)
    return found


def test_the_plans_are_printed_in_colors_and_returned(printed):
    result = run(plans=plan_report.report(FLEET))
    assert [text for text, _color in printed] == result["lines"]
    assert result["changed"] is False
    assert ("    install docker.io", C.COLOR_CHANGED) in printed
    assert ("  gpu04: The archive does not answer.", C.COLOR_ERROR) in printed
    assert ("Converged: gpu01", C.COLOR_OK) in printed


@pytest.mark.parametrize("callback", ["json", "ansible.posix.json", "ansible.posix.jsonl"])
def test_nothing_is_printed_into_the_output_of_a_data_callback(printed, monkeypatch, callback):
    monkeypatch.setattr(C, "DEFAULT_STDOUT_CALLBACK", callback)
    assert run(plans=plan_report.report(FLEET))["lines"][-1].startswith("5 hosts: ")
    assert printed == []


def test_reasons_are_printed_on_request(printed):
    run(plans=plan_report.report(FLEET), reasons=True)
    assert ("    because: docker is missing", None) in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "missing required arguments: plans"),
        ({"plans": "x"}, "plans"),
        ({"plans": [], "reasons": "perhaps"}, "reasons"),
    ],
)
def test_invalid_options_fail(printed, arguments, message):
    with pytest.raises(AnsibleActionFail, match=message):
        run(**arguments)
    assert printed == []
