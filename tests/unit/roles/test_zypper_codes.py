# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which exit codes of zypper the roles treat as failures."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"
FILES = [
    *(f"nvidia_driver/tasks/{name}-zypper" for name in ("packages", "repository", "remove")),
    *(f"cuda_toolkit/tasks/{name}" for name in ("packages-zypper", "repository", "remove-zypper")),
]
CALLS = [
    (task["name"], task)
    for name in FILES
    for task in yaml.safe_load((ROLES / f"{name}.yml").read_text(encoding="utf-8"))
    if "'zypper'" in str(task.get("ansible.builtin.command", ""))
]
# Success; a reboot is required; a restart of zypper is required; a repository was skipped.
SUCCESS = (0, 102, 103, 106)
# Locked, failed transaction, unknown name, signal, failed package script.
FAILURES = (1, 4, 7, 8, 104, 105, 107)


@pytest.mark.parametrize(("name", "task"), CALLS)
def test_informational_exit_codes_are_no_failures(name: str, task: dict) -> None:
    register = task["register"]
    fails = jinja2.Environment().compile_expression(task["failed_when"])
    assert [code for code in (*SUCCESS, *FAILURES) if fails(**{register: {"rc": code}})] == list(FAILURES), name


def test_all_calls_of_zypper_are_covered() -> None:
    assert len(CALLS) == 10
    texts = {path: path.read_text(encoding="utf-8") for path in ROLES.glob("*/tasks/*.yml")}
    calling = {path for path, text in texts.items() if "['zypper'," in text or "[zypper," in text}
    assert calling == {ROLES / f"{name}.yml" for name in FILES}
