# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import yaml

TASKS = Path(__file__).resolve().parents[3] / "roles/nvidia_persistenced/tasks"


def load(name: str) -> list[dict]:
    return yaml.safe_load((TASKS / name).read_text(encoding="utf-8"))


def test_files_that_were_written_before_and_not_read_lead_to_a_reload_and_a_restart():
    (unit,) = [task for task in load("main.yml") if task.get("ansible.builtin.include_tasks") == "unit.yml"]
    assert unit["when"] == "__nvidia_persistenced_plan.reload"
    *_files, reload, restart = load("unit.yml")
    assert reload["ansible.builtin.systemd_service"] == {"daemon_reload": True}
    # The module never says so itself, in check mode neither; where nothing is written, nothing else would.
    assert reload["changed_when"] is True
    assert "when" not in reload
    assert restart["ansible.builtin.systemd_service"]["state"] == "restarted"
