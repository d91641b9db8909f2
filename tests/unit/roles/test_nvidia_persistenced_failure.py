# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
import yaml

FAILURE = Path(__file__).resolve().parents[3] / "roles/nvidia_persistenced/tasks/failure.yml"


@pytest.mark.parametrize(("journal", "quoted"), [("Failed to open GPU", "Failed to open GPU"), ("", "empty")])
def test_a_failed_daemon_is_reported_with_reason_and_remedy(journal, quoted):
    *_before, task = yaml.safe_load(FAILURE.read_text(encoding="utf-8"))
    text = jinja2.Template(task["ansible.builtin.fail"]["msg"]).render(
        __nvidia_persistenced_failure="nvidia-persistenced did not start.",
        __nvidia_persistenced_plan={"reason": "no NVIDIA driver is loaded, so the daemon is not started"},
        __nvidia_persistenced_journal={"stdout": journal},
    )
    assert text.startswith(
        "nvidia-persistenced did not start. No NVIDIA driver is loaded, so the daemon is not started. Check"
    )
    assert "dmesg" in text
    assert text.endswith(f"The daemon's journal: {quoted}")
