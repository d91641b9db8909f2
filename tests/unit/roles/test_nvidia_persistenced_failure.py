# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
import yaml

FAILURE = Path(__file__).resolve().parents[3] / "roles/nvidia_persistenced/tasks/failure.yml"


@pytest.mark.parametrize(("journal", "said"), [("Failed to open GPU", "Failed to open GPU"), ("", "nothing")])
def test_a_daemon_that_fails_says_why_and_what_to_do(journal, said):
    *_before, task = yaml.safe_load(FAILURE.read_text(encoding="utf-8"))
    text = jinja2.Template(task["ansible.builtin.fail"]["msg"]).render(
        __nvidia_persistenced_failure="The daemon does not start.",
        __nvidia_persistenced_plan={"reason": "no NVIDIA driver is loaded, so the daemon is not started"},
        __nvidia_persistenced_journal={"stdout": journal},
    )
    assert text.startswith("The daemon does not start. No NVIDIA driver is loaded, so the daemon is not started. See")
    assert "dmesg" in text
    assert text.endswith(f"The daemon says: {said}")
