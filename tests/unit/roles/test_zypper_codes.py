# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which exit codes of zypper the roles treat as failures."""

from __future__ import annotations

from pathlib import Path

import jinja2
import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"
CALLS = [
    (f"{path.parts[-3]}: {task['name']}", task)
    for path in sorted(ROLES.glob("*/tasks/*.yml"))
    for task in yaml.safe_load(path.read_text(encoding="utf-8"))
    if "'zypper'" in str(task.get("ansible.builtin.command", ""))
]
# Success; a reboot is required; a restart of zypper is required; a repository was skipped.
SUCCESS = (0, 102, 103, 106)
# Locked, failed transaction, unknown name, signal, failed package script.
FAILURES = (1, 4, 7, 8, 104, 105, 107)


def test_no_informational_exit_code_is_a_failure() -> None:
    assert CALLS
    for name, task in CALLS:
        fails = jinja2.Environment().compile_expression(task["failed_when"])
        failing = [code for code in (*SUCCESS, *FAILURES) if fails(**{task["register"]: {"rc": code}})]
        assert failing == list(FAILURES), name
