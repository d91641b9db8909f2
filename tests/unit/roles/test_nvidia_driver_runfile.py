# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How role nvidia_driver fetches and runs NVIDIA's installer."""

from __future__ import annotations

from pathlib import Path

import yaml

TASKS = Path(__file__).resolve().parents[3] / "roles" / "nvidia_driver" / "tasks"


def load() -> list[dict]:
    return yaml.safe_load((TASKS / "runfile.yml").read_text(encoding="utf-8"))


def fetching() -> dict:
    (task,) = [task for task in load() if "get_url" in str(task)]
    return task


def test_nothing_is_fetched_into_a_directory_that_is_only_predicted():
    assert fetching()["when"] == "not ansible_check_mode"


def test_an_installer_that_cannot_be_had_names_what_was_asked_for():
    (rescue,) = fetching()["rescue"]
    message = rescue["ansible.builtin.fail"]["msg"]
    for word in ("nvidia_driver_runfile_url", "nvidia_driver_runfile_checksum", "runfile.place", "failed_result.msg"):
        assert word in message


def test_the_installer_runs_after_it_was_checked_and_the_host_was_written_down():
    tasks = [str(task) for task in load()]
    order = [next(i for i, text in enumerate(tasks) if word in text) for word in ("checksum", "record.yml", "'argv'")]
    assert order == sorted(order)
