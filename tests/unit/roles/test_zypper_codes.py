# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What our calls of zypper take for a failure: not all that differs from 0."""

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
# A reboot, another start of zypper, a skipped repository: all that was asked for is done.
FINE = (0, 102, 103, 106)
# A lock, a failed transaction, a name that is unknown, a signal, a script that failed.
FAILURES = (1, 4, 7, 8, 104, 105, 107)


@pytest.mark.parametrize(("name", "task"), CALLS)
def test_what_only_informs_is_no_failure(name: str, task: dict) -> None:
    register = task["register"]
    fails = jinja2.Environment().compile_expression(task["failed_when"])
    assert [code for code in (*FINE, *FAILURES) if fails(**{register: {"rc": code}})] == list(FAILURES), name


def test_all_calls_are_judged() -> None:
    assert len(CALLS) == 10
    texts = {path: path.read_text(encoding="utf-8") for path in ROLES.glob("*/tasks/*.yml")}
    calling = {path for path, text in texts.items() if "['zypper'," in text or "[zypper," in text}
    assert calling == {ROLES / f"{name}.yml" for name in FILES}
