# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What roles report when they remove what they installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"


@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
def test_the_plan_is_shown_before_the_removal_and_the_report_after_it(role):
    tasks = yaml.safe_load((ROLES / role / "tasks/absent.yml").read_text(encoding="utf-8"))
    (remove,) = [place for place, task in enumerate(tasks) if "remove.yml" in str(task)]
    (predict,) = [place for place, task in enumerate(tasks) if ".summary" in str(task.get("ansible.builtin.debug"))]
    assert predict < remove
    assert tasks[predict]["changed_when"] is True
    assert tasks[predict]["when"] == f"ansible_check_mode and __{role}_removal.acts"
    assert tasks[-1]["ansible.builtin.debug"] == {"var": f"{role}_report"}


@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
def test_apt_lists_suggested_packages_as_unneeded(role):
    """Otherwise dpkg-dev, which apt suggests, would keep a compiler on the host."""
    tasks = yaml.safe_load((ROLES / role / "tasks/remove-apt.yml").read_text(encoding="utf-8"))
    (query,) = [task for task in tasks if "autoremove" in str(task.get("ansible.builtin.command"))]
    argv = query["ansible.builtin.command"]["argv"]
    assert "--simulate" in argv
    assert "--option=APT::AutoRemove::SuggestsImportant=false" in argv
