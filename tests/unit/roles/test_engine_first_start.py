# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role container_engine starts a stopped Docker, and rolls back options with which Docker does not start."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

TASKS = Path(__file__).resolve().parents[3] / "roles/container_engine/tasks"
# Record each call, and fail a start.
MODULE = """\
import json, os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({name: {"type": "raw"} for name in NAMES}, supports_check_mode=True)
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps(["KIND", module.params["state"]]) + "\\n")
if "KIND" == "unit" and module.params["state"] == "started":
    module.fail_json(msg="Unable to start service docker.service: Job for docker.service failed")
module.exit_json(changed=True, undone_keys={"container_engine": ["log-opts.nonsense"]})
"""
FAKES = {
    "ansible.builtin.systemd_service": ("unit", ("name", "enabled", "state", "masked")),
    "gpufleet.hosts.docker_daemon_config": ("config", ("managed_by", "state", "options", "purge", "validate")),
}
JOURNALCTL = """#!/bin/sh
echo 'level=fatal msg="unknown log opt nonsense for json-file log driver"'
"""
SERVICE = {"unit": "docker.service", "is_known": True, "enable": True, "start": True, "needed": True}
CONFIG = {
    "changed": True,
    "changed_keys": ["live-restore", "log-opts.nonsense"],
    "pending": {"reload": [], "restart": []},
    "config": {"live-restore": True, "log-opts": {"nonsense": "x"}},
}


def start(folder: Path, values: dict[str, Any], *options: str) -> tuple[str, list[list[str]]]:
    """Run the tasks for the service with a unit that does not start. Return the output and the calls of modules."""
    for name in ("service.yml", "docker_rollback.yml"):
        text = (TASKS / name).read_text(encoding="utf-8")
        for module, (kind, _names) in FAKES.items():
            text = text.replace(module, f"fake_{kind}")
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "library").mkdir()
    for kind, names in FAKES.values():
        source = MODULE.replace("KIND", kind).replace("NAMES", repr(names))
        (folder / "library" / f"fake_{kind}.py").write_text(source, encoding="utf-8")
    for name, text in (("journalctl", JOURNALCTL), ("systemctl", "#!/bin/sh\n")):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"ansible.builtin.include_tasks": "service.yml"}]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
    }
    values = {"ansible_python_interpreter": sys.executable, "__container_engine_apply": {"action": "none"}, **values}
    argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", json.dumps(values), *options]
    done = ansible_run.run([*argv, str(folder / "play.yml")], env=environment)
    calls = (folder / "calls").read_text(encoding="utf-8") if (folder / "calls").exists() else ""
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stdout, [json.loads(line) for line in calls.splitlines()]


def test_options_with_which_docker_does_not_start_are_rolled_back(tmp_path: Path) -> None:
    plan = {"service": SERVICE, "config_needed": True}
    shown, calls = start(tmp_path, {"__container_engine_plan": plan, "__container_engine_config": CONFIG})
    assert calls == [["unit", "started"], ["config", "undone"], ["unit", "restarted"]]
    for words in (
        "Docker failed to start with the changed /etc/docker/daemon.json: unknown log opt nonsense",
        "The message names log-opts.nonsense.",
        "The former daemon.json is restored, and the daemon runs with it.",
        "Correct log-opts.nonsense in container_engine_docker_options, and run this role again.",
    ):
        assert words in shown


UNCHANGED = {**CONFIG, "changed": False, "changed_keys": []}


@pytest.mark.parametrize(
    ("plan", "config"),
    [
        ({"service": SERVICE, "config_needed": False}, None),
        ({"service": SERVICE, "config_needed": True}, UNCHANGED),
        # The result of an earlier run of the role in the same play.
        ({"service": SERVICE, "config_needed": False}, CONFIG),
        ({"service": {**SERVICE, "unit": "containerd.service"}, "config_needed": False}, None),
    ],
)
def test_options_that_did_not_change_stay(tmp_path: Path, plan: dict[str, Any], config: dict[str, Any] | None) -> None:
    values = {"__container_engine_plan": plan, **({"__container_engine_config": config} if config else {})}
    shown, calls = start(tmp_path, values)
    assert calls == [["unit", "started"]]
    assert "Job for docker.service failed" in shown
    assert f"Log: journalctl --unit={plan['service']['unit']}" in shown
