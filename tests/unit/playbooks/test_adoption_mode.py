# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbook dlami, and the adoption as a mode of playbook site. The plan is replaced, and writes down its input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ansible_collections.gpufleet.hosts.tests.unit.playbooks.test_fleet import OBSERVED
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT

PLAN = """
import json
from pathlib import Path

from ansible.plugins.action import ActionBase

NAMES = ("nvidia_driver_source", "neuron_driver_source", "container_engine_hold")
OPTIONS = ("adopt", "image", "cloud_init_timeout")


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        host = task_vars["inventory_hostname"]
        seen = {name: self._templar.template(task_vars[name]) for name in NAMES if name in task_vars}
        seen |= {name: self._task.args[name] for name in OPTIONS if name in self._task.args}
        place = "role" if self._task._role else "play"
        Path(task_vars["seen_in"], f"{host}.{place}").write_text(json.dumps(seen))
        observed = Path(task_vars["seen_in"], "observed").read_text()
        result = {"changed": False, "converged": True, "acting": [], "drain": None, "reports": {}, "notes": []}
        adoption = {"report": {"of": host}, "table": ["PART  STATE", "cuda  adopted by " + host], "hold": []}
        adoption = {"adoption": {**adoption, "is_written": True}} if seen.get("adopt") is True else {}
        return {**result, "host_text": observed, **adoption}
"""
# A role that plans again sees its own defaults, which are weaker than what the playbook and the user set.
ROLE = {
    "tasks": "- {name: Plan again, plan_for_test: }\n",
    "defaults": "{nvidia_driver_source: auto, neuron_driver_source: auto, container_engine_hold: false}\n",
}
SHOW = """
- hosts: all
  gather_facts: false
  tasks:
    - {debug: {msg: "report {{ (gpufleet_dlami_report | default({})).of | default('none') }}"}, tags: [always]}
"""
INCLUDE = "\n- {name: Act, include_role: {name: again, apply: {tags: [always]}}, tags: [always]}\n"
HOSTS = {
    "plain": {},
    "set": {"nvidia_driver_source": "auto", "container_engine_hold": False, "neuron_driver_source": "none"},
    "image": {"dlami_image": "eks", "dlami_cloud_init_timeout": 60, "site_cloud_init_timeout": 70},
}
PREPARED = {
    "nvidia_driver_source": "preinstalled",
    "neuron_driver_source": "preinstalled",
    "container_engine_hold": True,
}
OPTIONS = {"adopt": True, "image": "", "cloud_init_timeout": 900}


def run(tmp_path: Path, playbook: str, *options: str, hosts: dict | None = None) -> tuple[dict[str, dict], str]:
    """Return what the plans of each host were given, in the play and in a role, and the output."""
    shutil.copytree(ROOT / "playbooks", tmp_path, dirs_exist_ok=True)
    for path in tmp_path.rglob("*.yml"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("gpufleet.hosts.gpu_host_plan:", "plan_for_test:"), encoding="utf-8")
    for name, more in (("tasks/save_reports_and_skip_converged.yml", INCLUDE), (f"{playbook}.yml", SHOW)):
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write(more)
    seen = tmp_path / "seen"
    files = {f"roles/again/{name}/main.yml": text for name, text in ROLE.items()}
    files |= {
        "action_plugins/plan_for_test.py": PLAN,
        "library/plan_for_test.py": "",
        "seen/observed": json.dumps(OBSERVED),
    }
    files["hosts.yml"] = json.dumps(
        {"gpu_hosts": {"hosts": hosts or HOSTS, "vars": {"ansible_connection": "local", "seen_in": str(seen)}}}
    )
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = ansible_run.run(["ansible-playbook", "-i", "hosts.yml", f"{playbook}.yml", *options], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in seen.glob("*.*")}
    return found, " ".join(done.stdout.split())


def test_what_the_user_sets_replaces_the_defaults_of_dlami(tmp_path):
    seen, output = run(tmp_path, "dlami", "--tags", "container_engine")
    assert seen["plain.play"] == {**PREPARED, **OPTIONS}
    assert seen["set.play"] == {**HOSTS["set"], **OPTIONS}
    assert seen["image.play"] == {**PREPARED, "adopt": True, "image": "eks", "cloud_init_timeout": 60}
    # The defaults of a role that plans again do not replace them.
    assert seen["plain.role"] == PREPARED
    assert seen["set.role"] == HOSTS["set"]
    for host in HOSTS:
        assert f"report {host}" in output
        assert f"cuda adopted by {host}" in output


def test_an_extra_variable_replaces_what_dlami_sets(tmp_path):
    seen, _output = run(tmp_path, "dlami", "-e", "nvidia_driver_source=distribution", "-e", "dlami_image=ecs")
    assert {found["nvidia_driver_source"] for found in seen.values()} == {"distribution"}
    assert seen["plain.play"]["image"] == seen["image.play"]["image"] == "ecs"


def test_site_adopts_the_hosts_that_ask_for_it(tmp_path):
    limits = {"dlami_cloud_init_timeout": 60, "site_cloud_init_timeout": 70}
    modes = {"letter": "y", "word": " True ", "empty": "", "null": None, "no": "off"}
    hosts = {name: {**limits, "site_adopt": value} for name, value in modes.items()}
    hosts |= {"bare": limits, "mode": {**limits, "site_adopt": True, "dlami_image": "eks"}}
    seen, output = run(tmp_path, "site", hosts=hosts)
    assert seen["bare.play"] == {**OPTIONS, "adopt": False, "cloud_init_timeout": 70}
    assert seen["mode.play"] == {"adopt": True, "image": "eks", "cloud_init_timeout": 60}
    # The plan reads the value as `true` or `false`, and the time limit agrees with it.
    assert {name: seen[f"{name}.play"]["cloud_init_timeout"] for name in modes} == {
        "letter": 60,
        "word": 60,
        "empty": 70,
        "null": 70,
        "no": 70,
    }
    assert [seen[f"{name}.play"]["adopt"] for name in modes] == ["y", " True ", False, False, "off"]
    assert ("report none" in output, "report mode" in output) == (True, True)
    assert ("cuda adopted by mode" in output, "cuda adopted by bare" in output) == (True, False)
