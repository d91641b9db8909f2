# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role nvidia_driver with GPUs that do not join the fabric. A fake action returns the GPU facts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

TASKS = Path(__file__).resolve().parents[3] / "roles/nvidia_driver/tasks"
UNIT = "nvidia-fabricmanager.service"


def fabric_block() -> dict:
    """Return the block of verify.yml that waits for the fabric."""
    (verify,) = yaml.safe_load((TASKS / "verify.yml").read_text(encoding="utf-8"))
    return next(task for task in verify["block"] if "block" in task)


def run(tmp_path: Path, states: list, services: list[str], first: str = "in_progress") -> subprocess.CompletedProcess:
    """Run the fabric step of verify.yml. Each query of NVML returns the next state."""

    def facts(state: str) -> dict:
        fabric = {"state": state, "status": 0 if state == "completed" else None}
        return {"nvidia_gpus": [{"index": 0, "pci_bus_id": "0000:1b:00.0", "fabric": fabric}]}

    block = fabric_block()
    (query,) = block["block"]
    del query["gpufleet.hosts.nvidia_gpu_facts"]
    answers = tmp_path / "answers"
    answers.write_text("".join(json.dumps({"ansible_facts": facts(state)}) + "\n" for state in states))
    query["answer_next"] = {"path": str(answers)}
    query.update({"delay": 0, "retries": len(states) - 1})
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
        "tasks": [{"ansible.builtin.set_fact": {**facts(first), "cacheable": True}}, block],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    return ansible_run.run(["ansible-playbook", "-i", "localhost,", str(tmp_path / "play.yml")], cwd=tmp_path)


def test_role_waits_until_all_gpus_have_joined_the_fabric(tmp_path):
    done = run(tmp_path, ["in_progress", "not_started", "completed", "not queried"], [UNIT])
    assert done.returncode == 0, done.stdout
    assert "not queried" in (tmp_path / "answers").read_text()


def test_role_fails_and_names_gpus_that_do_not_join_the_fabric(tmp_path):
    done = run(tmp_path, ["in_progress"] * 4, [UNIT])
    assert done.returncode == 2, done.stdout
    for words in ("GPU 0000:1b:00.0", "is in progress", "error 802", UNIT, "/var/log/fabricmanager.log"):
        assert words in done.stdout


@pytest.mark.parametrize(("services", "first"), [([], "in_progress"), ([UNIT], "completed")])
def test_role_does_not_query_the_fabric_without_a_need(tmp_path, services, first):
    done = run(tmp_path, ["not queried"], services, first)
    assert done.returncode == 0, done.stdout
    assert "not queried" in (tmp_path / "answers").read_text()
