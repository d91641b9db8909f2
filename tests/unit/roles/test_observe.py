# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
import yaml

ROLE = Path(__file__).resolve().parents[3] / "roles" / "observe"
# Ansible's results for hosts with Python 3.6, 3.7, 3.8, a version that Ansible rejects, and without Python.
DESERIALIZATION = "Module result deserialization failed: No start of json char found"
OLD = [
    {"msg": DESERIALIZATION, "module_stderr": "SyntaxError: future feature annotations is not defined\n"},
    {"msg": DESERIALIZATION, "module_stderr": "Traceback (most recent call last):\nSyntaxError: invalid syntax\n"},
    {"msg": "Task failed: Module failed: 'type' object is not subscriptable"},
    {"msg": "ansible-core requires a minimum of Python version 3.8. Current version: 3.7.16"},
    {"msg": "The module interpreter '/usr/bin/python3' was not found.", "module_stderr": "not found\n"},
]
OTHERS = [
    {"msg": "services[0] is not a unit's name"},
    {"msg": DESERIALIZATION, "module_stderr": "sudo: a password is needed"},
]


def reported(failed: dict) -> str:
    """Return the role's message for a module's failure."""
    block = yaml.safe_load((ROLE / "tasks/main.yml").read_text(encoding="utf-8"))[0]
    (rescue,) = block["rescue"]
    environment = jinja2.Environment()
    environment.tests["search"] = lambda text, pattern: re.search(pattern, text) is not None
    values = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    words = environment.from_string(rescue["vars"]["__observe_error"]).render(ansible_failed_result=failed)
    return environment.from_string(rescue["ansible.builtin.fail"]["msg"]).render(values, __observe_error=words)


@pytest.mark.parametrize("failed", OLD)
def test_an_old_python_is_reported_with_the_remedy(failed):
    text = reported(failed)
    for word in ("Python 3.9 or newer", "dnf install python3.12", "ansible_python_interpreter", failed["msg"]):
        assert word in text
    assert text.startswith("This host needs")


@pytest.mark.parametrize("failed", OTHERS)
def test_any_other_failure_is_quoted(failed):
    assert reported(failed) == " ".join(failed.values())
