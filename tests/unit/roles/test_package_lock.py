# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles wait for a running dpkg, and do not trust a plan that they made while it ran."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import config_files
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host

ROOT = Path(__file__).resolve().parents[3]
LOCKED = "still holds dpkg's lock after"
# Returns the next observation of the test, and records its own parameters.
MODULE = """\
import json
from pathlib import Path
from ansible.module_utils.basic import AnsibleModule

names = ("services", "files", "package_names", "package_lock_timeout")
module = AnsibleModule({name: {"type": "raw"} for name in names}, supports_check_mode=True)
calls = Path("CALLS")
known = json.loads(calls.read_text())
known["calls"].append([int(module.params["package_lock_timeout"] or 0), bool(module.params["package_names"])])
calls.write_text(json.dumps(known))
module.exit_json(host=known["hosts"][min(len(known["calls"]), len(known["hosts"])) - 1])
"""
# Task files that change the host or need a real one.
NOT_RUN = {
    "container_engine": ("packages.yml", "docker_config.yml", "service.yml"),
    "nvidia_driver": ("select_version.yml", "apply.yml", "reboot.yml", "verify.yml", "report.yml", "remove.yml"),
}


class Roles:
    """The roles' own tasks, run locally with given observations. Files that change the host only print their name."""

    def __init__(self, folder: Path) -> None:
        """Copy the roles into the directory."""
        self.folder, self.calls = folder, folder / "calls.json"
        for name in ("observe", "container_engine", "nvidia_driver"):
            shutil.copytree(ROOT / "roles" / name, folder / "roles" / name)
            for path in (folder / "roles" / name / "tasks").iterdir():
                text = path.read_text(encoding="utf-8").replace("gpufleet.hosts.observe", "observe")
                if path.name in NOT_RUN.get(name, ()):
                    # What follows a change: the new observation and its plan.
                    kept = yaml.safe_load(text)[-2:] if path.name == "packages.yml" else []
                    text = yaml.safe_dump([{"ansible.builtin.debug": {"msg": f"<run {path.name}>"}}, *kept])
                path.write_text(text.replace("gpufleet.hosts.gpu_host_info", "next_observation"), encoding="utf-8")
        (folder / "library").mkdir()
        (folder / "library/next_observation.py").write_text(MODULE.replace("CALLS", str(self.calls)))

    def run(
        self, role: str, *hosts: dict[str, Any], tasks: str = "main.yml", dry: bool = False, **values: Any
    ) -> tuple[bool, str, list[int]]:
        """Run a role; return its success, its output and the lock timeout of each observation."""
        self.calls.write_text(json.dumps({"calls": [], "hosts": hosts}))
        observe = {"ansible.builtin.include_role": {"name": "observe"}}
        include = {"ansible.builtin.include_role": {"name": role, "tasks_from": tasks}}
        steps = [include] if tasks == "main.yml" else [observe, include]
        book = [{"hosts": "localhost", "gather_facts": False, "tasks": steps}]
        (self.folder / "play.yml").write_text(yaml.safe_dump(book))
        values = {**values, "ansible_python_interpreter": sys.executable,
                  "ansible_remote_tmp": str(self.folder / "remote")}  # fmt: skip
        argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", json.dumps(values),
                str(self.folder / "play.yml"), *(["--check"] if dry else [])]  # fmt: skip
        environment = {**os.environ, "ANSIBLE_LOCAL_TEMP": str(self.folder / "local"),
                       "ANSIBLE_ROLES_PATH": str(self.folder / "roles"),
                       "ANSIBLE_LIBRARY": str(self.folder / "library")}  # fmt: skip
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
        known = json.loads(self.calls.read_text())["calls"]
        return done.returncode == 0, done.stdout + done.stderr, [timeout for timeout, _names in known]


@pytest.fixture
def roles(tmp_path: Path) -> Roles:
    return Roles(tmp_path)


def engine_host(*, busy: bool, installed: bool) -> dict[str, Any]:
    """Describe a host with an engine that needs no change, or without one."""
    names = ["docker.io", "ca-certificates", "iptables", "python3-requests"] if installed else []
    docker = {"package": "docker.io" if installed else None, "version": None, "info": None}
    return {
        **host(packages=dict.fromkeys(names, "1")),
        "package_state": {"interrupted": False, "unfinished": [], "busy": busy},
        "engines": {"docker": docker},
        "docker_daemon_json": {"flags": [], "error": None},
        "files": {"/etc/docker/daemon.json": {"exists": False, "content": None}},
    }


def driver_host(*, busy: bool, installed: bool) -> dict[str, Any]:
    """Describe a host with a preinstalled driver, or without one."""
    version = "580.95.05"
    kernel = "6.1.0-47-amd64"
    driver = {"loaded": version, "kernel_module_flavor": "open", "library": version, "on_disk_flavor": "open",
              "on_disk_next_flavor": "open", "runfile": True}  # fmt: skip
    files = {
        path: {"exists": False, "content": None} for path in (config_files.RECORD_FILE, config_files.UNVERIFIED_FILE)
    }
    return host(
        package_state={"busy": busy},
        files=files,
        modules={kernel: version} if installed else {},
        driver=driver if installed else {},
        modules_loaded=["nvidia", "nvidia_uvm"] if installed else [],
        reboot_required_reasons=[],
    )


# role, its host, its variables, its lock timeout, its error
ENGINE = ("container_engine", engine_host, {"container_engine_source": "preinstalled",
          "container_engine_docker_recommended": False}, 300, "docker is not installed on this host")  # fmt: skip
DRIVER = ("nvidia_driver", driver_host, {"nvidia_driver_source": "preinstalled", "nvidia_driver_lock_timeout": 77,
          "nvidia_driver_hold": False}, 77, "this host has no driver")  # fmt: skip
every_role = pytest.mark.parametrize("case", [ENGINE, DRIVER], ids=["container_engine", "nvidia_driver"])


@every_role
def test_an_error_stops_the_role_only_after_the_wait(roles, case):
    role, sample, values, timeout, error = case
    busy = sample(busy=True, installed=False)
    good, output, timeouts = roles.run(role, busy, sample(busy=False, installed=True), **values)
    assert (good, timeouts, error in output) == (True, [0, timeout], False), output
    good, output, timeouts = roles.run(role, busy, sample(busy=False, installed=False), **values)
    assert (good, timeouts, error in output, LOCKED in output) == (False, [0, timeout], True, False), output
    good, output, timeouts = roles.run(role, busy, busy, **values)
    assert (good, timeouts, f"{LOCKED} {timeout} seconds" in output) == (False, [0, timeout], True), output
    assert "<run " not in output


@every_role
def test_neither_check_mode_nor_a_converged_host_waits(roles, case):
    role, sample, values, _timeout, error = case
    good, output, timeouts = roles.run(role, sample(busy=True, installed=False), dry=True, **values)
    assert (good, timeouts, error in output) == (False, [0], True), output
    good, output, timeouts = roles.run(role, sample(busy=True, installed=True), **values)
    assert (good, timeouts) == (True, [0]), output


@every_role
def test_an_error_stops_the_site_playbook_unless_the_role_waits_later(roles, case):
    role, sample, values, _timeout, error = case
    for busy in (True, False):
        good, output, _timeouts = roles.run(role, sample(busy=busy, installed=False), tasks="plan.yml", **values)
        assert (good, error in output) == (busy, not busy), output


def test_configuring_the_engine_waits(roles):
    busy, free = (engine_host(busy=is_busy, installed=True) for is_busy in (True, False))
    good, output, timeouts = roles.run("container_engine", busy, free)
    assert (good, timeouts, "<run docker_config.yml>" in output) == (True, [0, 300], True), output


def test_configuring_the_driver_waits(roles):
    busy, free = (driver_host(busy=is_busy, installed=True) for is_busy in (True, False))
    values = {**DRIVER[2], "nvidia_driver_module_options": {"nvidia": {"NVreg_RestrictProfilingToAdminUsers": 0}}}
    good, output, timeouts = roles.run("nvidia_driver", busy, free, **values)
    assert (good, timeouts, "<run apply.yml>" in output) == (True, [0, 77], True), output


def test_an_error_after_a_change_stops_the_role_at_once(roles):
    """The role does not wait again, so nothing later would report the error."""
    bare, broken = (engine_host(busy=is_busy, installed=False) for is_busy in (False, True))
    broken["docker_daemon_json"]["error"] = "daemon.json is broken"
    good, output, timeouts = roles.run("container_engine", bare, broken)
    assert (good, timeouts, "<run packages.yml>" in output, "daemon.json is broken" in output) == (
        False, [0, 0], True, True), output  # fmt: skip
    busy = driver_host(busy=True, installed=False)
    good, output, timeouts = roles.run("nvidia_driver", busy, busy, tasks="observe_again.yml", **DRIVER[2])
    assert (good, timeouts, DRIVER[4] in output) == (False, [0, 0], True), output


def test_removing_the_driver_waits(roles):
    record = {config_files.RECORD_FILE: {"exists": True, "content": json.dumps({"packages": ["nvidia-driver"]})}}
    busy, free = ({**driver_host(busy=is_busy, installed=False), "files": record, "package_names": ["nvidia-driver"]}
                  for is_busy in (True, False))  # fmt: skip
    values = {"nvidia_driver_state": "absent", "nvidia_driver_lock_timeout": 77}
    good, output, timeouts = roles.run("nvidia_driver", busy, free, **values)
    assert (good, timeouts, "<run remove.yml>" in output) == (True, [0, 77], True), output
    good, output, timeouts = roles.run("nvidia_driver", busy, busy, **values)
    assert (good, f"{LOCKED} 77 seconds" in output, "<run " in output) == (False, True, False), output
    good, output, timeouts = roles.run("nvidia_driver", busy, busy, dry=True, **values)
    assert (good, LOCKED in output) == (True, False), output
