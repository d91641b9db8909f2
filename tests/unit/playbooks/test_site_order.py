# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which Ansible applies the parts to hosts that act on different parts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

TASKS = Path(__file__).resolve().parents[3] / "playbooks/tasks"
ORDER = [{"part": name, "role": False, "removal": False} for name in ("first", "second", "third")]
# The first host acts only on the last part.
HOSTS = {"a": ["third"], "b": ["first", "second", "third"], "c": ["second"], "d": []}


def test_the_parts_keep_their_order_on_hosts_that_act_on_different_parts(tmp_path: Path) -> None:
    shutil.copytree(TASKS, tmp_path / "tasks")
    (tmp_path / "tasks/gpus_must_be_ready.yml").write_text("[]\n", encoding="utf-8")
    for turn in ORDER:
        shown = [{"ansible.builtin.debug": {"msg": f"{{{{ inventory_hostname }}}} {turn['part']} acts"}}]
        (tmp_path / f"tasks/parts/{turn['part']}.yml").write_text(json.dumps(shown), encoding="utf-8")
    plans = {
        host: {"order": ORDER, "apply": dict.fromkeys(names, "planned"), "removed_first": []}
        for host, names in HOSTS.items()
    }
    save = {"ansible.builtin.set_fact": {"site_plan": "{{ plans[inventory_hostname] }}"}}
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "vars": {"plans": plans, "gpufleet_plan": {}},
        "tasks": [save, {"ansible.builtin.include_tasks": "tasks/apply_parts_in_order.yml"}],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    argv = ["ansible-playbook", "--check", "-i", f"{','.join(HOSTS)},", "play.yml"]
    done = ansible_run.run(argv, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    acted = re.findall(r"(\w) (\w+) acts", done.stdout)
    assert {host: [name for one, name in acted if one == host] for host in HOSTS} == HOSTS
