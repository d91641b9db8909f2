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
    """Return an action plugin with only the attributes that are used."""
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
def test_the_python_is_the_one_that_ansible_uses(variables, python):
    assert host_python.command_for_input(action(), variables) == python


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
def test_the_module_runs_if_no_program_can_be_passed(changes):
    assert host_python.command_for_input(action(**changes), PYTHON) is None


def test_sudo_passes_input_and_kept_files_require_the_module(monkeypatch):
    assert host_python.command_for_input(action(become=SimpleNamespace(name="sudo")), PYTHON) == "/usr/bin/python3"
    monkeypatch.setattr(host_python.C, "DEFAULT_KEEP_REMOTE_FILES", True)
    assert host_python.command_for_input(action(), PYTHON) is None


def test_the_local_connection_passes_input_without_a_password():
    become = SimpleNamespace(name="sudo", get_option={}.get)
    assert host_python.command_for_input(action(transport="local", become=become), PYTHON) == "/usr/bin/python3"
