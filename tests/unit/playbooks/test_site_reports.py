# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reports that playbook site saves on a converged host, with all parts and with a part that has none."""

from __future__ import annotations

from pathlib import Path

import yaml

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

ACT = Path(__file__).resolve().parents[3] / "playbooks/tasks/save_reports_and_skip_converged.yml"
REPORTS = {"every": {"nvidia_driver_report": {"version": "1"}}, "engine": {"container_engine_report": {}}}


def test_a_run_of_parts_without_reports_succeeds(tmp_path):
    show = {
        "ansible.builtin.debug": {"msg": "{{ inventory_hostname }} has {{ nvidia_driver_report | default('none') }}"}
    }
    plan = {"converged": True, "reports": "{{ given[inventory_hostname] }}"}
    variables = {"given": REPORTS, "site_plan": plan}
    tasks = [{"ansible.builtin.include_tasks": str(ACT)}, show]
    play = {"hosts": "all", "gather_facts": False, "vars": variables, "tasks": tasks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    inventory = ",".join(REPORTS)
    done = ansible_run.run(["ansible-playbook", "-i", inventory, "-c", "local", str(tmp_path / "play.yml")])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "engine has none" in done.stdout
    assert "every has {" in done.stdout
