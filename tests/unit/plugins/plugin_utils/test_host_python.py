# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import host_python

PYTHON = {"ansible_python_interpreter": "/usr/bin/python3"}
DISCOVERED = {"ansible_facts": {"discovered_interpreter_python": "/usr/bin/python3.9"}}


def action(**changes) -> SimpleNamespace:
    """An action plugin of which only what is asked for is there."""
    connection = {
        "has_pipelining": True,
        "become": None,
        "transport": "ssh",
        "get_option": {"pipelining": False}.get,
        "_shell": SimpleNamespace(SHELL_FAMILY="sh"),
    }
    task = {"async_val": 0, "delegate_to": None}
    for name, value in changes.items():
        (task if name in task else connection)[name] = value
    return SimpleNamespace(
        _task=SimpleNamespace(**task),
        _connection=SimpleNamespace(**connection),
        _templar=SimpleNamespace(template=lambda value: value),
    )


@pytest.mark.parametrize(
    "variables, python",
    [
        (PYTHON, "/usr/bin/python3"),
        ({}, None),  # to be discovered
        ({"ansible_python_interpreter": "auto_silent"}, None),
        ({**DISCOVERED, "ansible_python_interpreter": "auto"}, "/usr/bin/python3.9"),
        (DISCOVERED, "/usr/bin/python3.9"),
    ],
)
def test_the_python_that_ansible_would_take(variables, python):
    assert host_python.reads_input(action(), variables) == python


@pytest.mark.parametrize(
    "changes",
    [
        {"async_val": 60},
        {"delegate_to": "other"},
        {"has_pipelining": False},
        {"become": SimpleNamespace(name="su")},
        {"become": SimpleNamespace(name="community.general.doas", pipelining=False)},
        {"become": SimpleNamespace(name="community.general.run0", require_tty=True)},
        {"transport": "local", "become": SimpleNamespace(name="sudo", get_option={"become_pass": "secret"}.get)},
        {"_shell": SimpleNamespace(SHELL_FAMILY="powershell")},
    ],
)
def test_none_where_no_program_can_be_passed(changes):
    assert host_python.reads_input(action(**changes), PYTHON) is None


def test_another_way_to_become_root_does(monkeypatch):
    assert host_python.reads_input(action(become=SimpleNamespace(name="sudo")), PYTHON) == "/usr/bin/python3"
    monkeypatch.setattr(host_python.C, "DEFAULT_KEEP_REMOTE_FILES", True)
    assert host_python.reads_input(action(), PYTHON) is None


def test_without_a_password_the_local_connection_passes_input_too():
    become = SimpleNamespace(name="sudo", get_option={}.get)
    assert host_python.reads_input(action(transport="local", become=become), PYTHON) == "/usr/bin/python3"
