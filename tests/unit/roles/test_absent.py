# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user is told by roles that take back what they installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"


@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
def test_what_would_be_done_is_said_before_and_the_outcome_after(role):
    tasks = yaml.safe_load((ROLES / role / "tasks/absent.yml").read_text(encoding="utf-8"))
    (remove,) = [place for place, task in enumerate(tasks) if "remove.yml" in str(task)]
    (predict,) = [place for place, task in enumerate(tasks) if ".summary" in str(task.get("ansible.builtin.debug"))]
    assert predict < remove
    assert tasks[predict]["changed_when"] is True
    assert tasks[predict]["when"] == f"ansible_check_mode and __{role}_removal.acts"
    assert tasks[-1]["ansible.builtin.debug"] == {"var": f"{role}_report"}


def test_the_driver_is_removed_by_root_only():
    tasks = yaml.safe_load((ROLES / "nvidia_driver/tasks/absent.yml").read_text(encoding="utf-8"))
    words = [str(task) for task in tasks]
    (rights,) = [place for place, text in enumerate(words) if "gpufleet_host.uid == 0" in text]
    assert rights < next(place for place, text in enumerate(words) if "remove.yml" in text)


@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
def test_apt_calls_unneeded_what_is_suggested_alone(role):
    """Else dpkg-dev, which apt suggests, keeps a compiler on a host that had none."""
    tasks = yaml.safe_load((ROLES / role / "tasks/remove-apt.yml").read_text(encoding="utf-8"))
    (simulate,) = [task for task in tasks if "autoremove" in str(task.get("ansible.builtin.command"))]
    argv = simulate["ansible.builtin.command"]["argv"]
    assert "--simulate" in argv
    assert "--option=APT::AutoRemove::SuggestsImportant=false" in argv
