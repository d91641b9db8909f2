# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of role container_engine with variables from a play."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run, planned_roles
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host
from ansible_collections.gpufleet.hosts.tests.unit.roles.test_package_lock import Roles, engine_host

FILES = {"/etc/docker/daemon.json": {"exists": False, "content": None}}
OPTIONS = {
    "insecure-registries": ["{{ registry }}"],
    "log-opts": {"labels": "{{ registry }}"},
    "proxies": {"http-proxy": "http://robot:s3cret@proxy.example:3128"},
}


def test_nested_options_with_templates_are_planned_and_not_shown(tmp_path: Path) -> None:
    values = {
        "ansible_python_interpreter": sys.executable,
        "registry": "registry.example:5000",
        "container_engine_docker_options": OPTIONS,
        "container_engine_docker_recommended": "no",
    }
    expected = json.loads(json.dumps(OPTIONS).replace("{{ registry }}", values["registry"]))
    environment = planned_roles.install(tmp_path)
    plan = {"name": "observe", "tasks_from": "plan.yml"}
    tasks = [
        {"ansible.builtin.include_role": plan, "vars": {"__observe_parts": ["container_engine"]}},
        {"ansible.builtin.debug": {"var": "gpufleet_plan.container_engine.packages"}},
        {"ansible.builtin.assert": {"that": "gpufleet_plan.container_engine.options == expected", "quiet": True}},
    ]
    calls = planned_roles.observations(tmp_path / "calls.json", host("debian-13", files=FILES))
    play = {"hosts": "localhost", "gather_facts": False, "environment": calls, "tasks": tasks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    (tmp_path / "vars.yml").write_text(yaml.safe_dump({**values, "expected": expected}))
    argv = ["ansible-playbook", "-v", "-i", "localhost,", "-c", "local", "-e", f"@{tmp_path}/vars.yml"]
    done = ansible_run.run([*argv, str(tmp_path / "play.yml")], env=environment)
    assert "failed=0" in done.stdout, done.stdout + done.stderr
    assert "docker.io" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_only_a_recorded_engine_is_removed(tmp_path: Path) -> None:
    there = engine_host(busy=False, installed=True)
    there["engines"] = {**host()["engines"], **there["engines"]}
    record = {"exists": True, "content": '{"packages": ["docker.io"], "requested": ["docker.io"], "files": {}}'}
    recorded = {**there, "files": {**there["files"], owned.ENGINE_RECORD: record}}
    adopted, ours = Roles(tmp_path).run("container_engine", [there], [recorded], container_engine_state="absent")
    for (good, results, _timeouts), removes in ((adopted, False), (ours, True)):
        assert good, results
        assert ("<run absent.yml>" in results) == removes
        assert "<run docker_config.yml>" not in results
