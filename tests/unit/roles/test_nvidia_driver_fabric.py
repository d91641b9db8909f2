# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role against GPUs that stay out of their fabric, on this machine, with an action that answers for the GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TASKS = Path(__file__).resolve().parents[3] / "roles/nvidia_driver/tasks"
UNIT = "nvidia-fabricmanager.service"


def of_verify() -> dict:
    """Return the task that looks at the fabric."""
    (verify,) = yaml.safe_load((TASKS / "verify.yml").read_text(encoding="utf-8"))
    return next(task for task in verify["block"] if task.get("ansible.builtin.include_tasks") == "fabric.yml")


def run(tmp_path: Path, asked: list, services: list[str], first: str = "in_progress") -> subprocess.CompletedProcess:
    """Run that step of verify.yml; each time that NVML is asked it answers with the next state."""

    def facts(state: str) -> dict:
        fabric = {"state": state, "status": 0 if state == "completed" else None}
        return {"nvidia_gpus": [{"index": 0, "pci_bus_id": "0000:1b:00.0", "fabric": fabric}]}

    (block,) = yaml.safe_load((TASKS / "fabric.yml").read_text(encoding="utf-8"))
    (ask,) = block["block"]
    assert ask.pop("gpufleet.hosts.nvidia_gpu_facts") == {"gather_subset": ["!all", "fabric"]}
    answers = tmp_path / "answers"
    answers.write_text("".join(json.dumps({"ansible_facts": facts(state)}) + "\n" for state in asked))
    ask["answer_next"] = {"path": str(answers)}
    ask.update({"delay": 0, "retries": len(asked) - 1})
    (tmp_path / "fabric.yml").write_text(yaml.safe_dump([block]))
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins/answer_next.py").write_text(
        "import json, pathlib\n"
        "from ansible.plugins.action import ActionBase\n"
        "class ActionModule(ActionBase):\n"
        "    def run(self, tmp=None, task_vars=None):\n"
        "        file = pathlib.Path(self._task.args['path'])\n"
        "        answer, _, rest = file.read_text().partition('\\n')\n"
        "        file.write_text(rest)\n"
        "        return json.loads(answer)\n"
    )
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"nvidia_driver_activate": True, "__nvidia_driver_plan": {"services": services}},
        "tasks": [{"ansible.builtin.set_fact": {**facts(first), "cacheable": True}}, of_verify()],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    return subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", str(tmp_path / "play.yml")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false"},
        cwd=tmp_path,
    )


def test_the_role_waits_until_every_gpu_is_in_the_fabric(tmp_path):
    done = run(tmp_path, ["in_progress", "not_started", "completed", "never asked"], [UNIT])
    assert done.returncode == 0, done.stdout
    assert "never asked" in (tmp_path / "answers").read_text()


def test_gpus_that_stay_out_fail_the_run_and_are_named(tmp_path):
    done = run(tmp_path, ["in_progress"] * 4, [UNIT])
    assert done.returncode == 2, done.stdout
    for words in ("GPU 0000:1b:00.0", "is in progress", "error 802", UNIT, "/var/log/fabricmanager.log"):
        assert words in done.stdout


def test_nothing_waits_for_facts_that_it_does_not_see():
    """While a task is repeated, ansible_facts are what they were before it; its registered result has the new ones."""
    waiting = [
        line.strip()
        for path in TASKS.parents[1].glob("*/tasks/*.yml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip().startswith("until:")
    ]
    assert len(waiting) >= 3
    assert [line for line in waiting if line.startswith("until: ansible_facts")] == []


@pytest.mark.parametrize(("services", "first"), [([], "in_progress"), ([UNIT], "completed")])
def test_nothing_more_is_asked_where_no_fabric_manager_is_ours_or_all_have_joined(tmp_path, services, first):
    done = run(tmp_path, ["never asked"], services, first)
    assert done.returncode == 0, done.stdout
    assert "never asked" in (tmp_path / "answers").read_text()
