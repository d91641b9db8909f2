# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the plan observes a host again: while dpkg runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run, planned_roles
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host

PARTS = ["nvidia_driver", "container_engine", "driver_volume"]
LOCKED = "still holds dpkg's lock after"
# Writes the state and the message of each result to a file per host.
CALLBACK = """\
import json
from pathlib import Path
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "aggregate", "by_host"

    def v2_runner_on_ok(self, result, state="ok"):
        host, found = (getattr(result, name, None) or getattr(result, "_" + name) for name in ("host", "result"))
        with Path("FOLDER", host.get_name() + ".out").open("a") as file:
            file.write(state + " " + json.dumps([found.get("changed"), found.get("msg")]) + "\\n")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.v2_runner_on_ok(result, "ignored" if ignore_errors else "failed")
"""
# Task files that change the host or need a real one.
NOT_RUN = {
    "observe": ("packages_then_plan_again.yml",),
    "container_engine": ("docker_config.yml", "service.yml", "absent.yml"),
    "nvidia_container_toolkit": ("packages.yml", "docker.yml", "absent.yml"),
    "nvidia_driver": ("apply.yml", "reboot.yml", "verify.yml", "remove.yml"),
}


class Roles:
    """The roles' own tasks, run locally with given observations. Files that change the host only print their name."""

    def __init__(self, folder: Path) -> None:
        """Copy the roles into the directory."""
        self.folder = folder
        self.environment = planned_roles.install(folder)
        for name, files in NOT_RUN.items():
            for path in (folder / "roles" / name / "tasks" / file for file in files):
                # The task after a change: the new observation and its plan.
                is_followed = path.name.startswith("packages")
                kept = yaml.safe_load(path.read_text(encoding="utf-8"))[-1:] if is_followed else []
                shows: dict[str, Any] = {"ansible.builtin.debug": {"msg": f"<run {path.name}>"}}
                if path.name == "docker_config.yml":
                    shows["register"] = "__container_engine_config"
                tasks = [shows, *kept]
                path.write_text(yaml.safe_dump(tasks), encoding="utf-8")
        # The module for services needs it also in check mode. Not every machine with the tests has systemd.
        (folder / "bin").mkdir()
        (folder / "bin/systemctl").write_text("#!/bin/sh\n")
        (folder / "bin/systemctl").chmod(0o755)
        (folder / "callback_plugins").mkdir()
        (folder / "callback_plugins/by_host.py").write_text(CALLBACK.replace("FOLDER", str(folder)))

    def run(
        self, role: str, *cases: list[dict[str, Any]], tasks: str = "main.yml", dry: bool = False, **values: Any
    ) -> list[tuple[bool, str, list[int]]]:
        """Run a role in several cases, each with its observations in the order of the module calls.

        Return for each case its success, its results and the lock timeout of each observation.
        """
        inventory = {}
        for number, hosts in enumerate(cases):
            calls = self.folder / f"case{number}.json"
            planned_roles.observations(calls, *hosts)
            calls.with_suffix(".out").unlink(missing_ok=True)
            inventory[calls.stem] = {"calls": str(calls)}
        (self.folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": inventory}}))
        observe = {"ansible.builtin.include_role": {"name": "observe"}}
        include: dict[str, Any] = {"ansible.builtin.include_role": {"name": role, "tasks_from": tasks}}
        if role == "site":
            include = {"gpu_host_plan": {"parts": PARTS, "requires_root": True}}
        book = {"hosts": "all", "gather_facts": False, "environment": {"CALLS": "{{ calls }}"},
                "tasks": [include] if tasks == "main.yml" else [observe, include]}  # fmt: skip
        (self.folder / "play.yml").write_text(yaml.safe_dump([book]))
        values = {**values, "ansible_python_interpreter": sys.executable,
                  "ansible_remote_tmp": str(self.folder / "remote")}  # fmt: skip
        argv = ["ansible-playbook", "-i", str(self.folder / "hosts.yml"), "-c", "local", "-e", json.dumps(values),
                str(self.folder / "play.yml"), *(["--check"] if dry else [])]  # fmt: skip
        environment = {**self.environment, "PATH": f"{self.folder}/bin{os.pathsep}{os.environ['PATH']}"}
        done = ansible_run.run(argv, env=environment)
        found = []
        for name in inventory:
            assert (self.folder / f"{name}.out").exists(), done.stdout + done.stderr
            results = (self.folder / f"{name}.out").read_text()
            timeouts = json.loads((self.folder / f"{name}.json").read_text())["calls"]
            good = not any(line.startswith("failed ") for line in results.splitlines())
            found.append((good, results, timeouts))
        assert all(good for good, *_rest in found) is (done.returncode == 0), done.stdout + done.stderr
        return found


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
    files = {path: {"exists": False, "content": None} for path in (owned.DRIVER_RECORD, owned.DRIVER_UNVERIFIED_MARKER)}
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
    busy, fixed, broken = (
        sample(busy=is_busy, installed=installed)
        for is_busy, installed in ((True, False), (False, True), (False, False))
    )
    first, second, third = roles.run(role, [busy, fixed], [busy, broken], [busy, busy], **values)
    good, results, timeouts = first
    assert (good, timeouts, error in results) == (True, [0, timeout], False), results
    good, results, timeouts = second
    assert (good, timeouts, error in results, LOCKED in results) == (False, [0, timeout], True, False), results
    good, results, timeouts = third
    assert (good, timeouts, f"{LOCKED} {timeout} seconds" in results) == (False, [0, timeout], True), results
    assert "<run " not in results


@every_role
def test_neither_check_mode_nor_a_converged_host_waits(roles, case):
    role, sample, values, _timeout, error = case
    ((good, results, timeouts),) = roles.run(role, [sample(busy=True, installed=False)], dry=True, **values)
    assert (good, timeouts, error in results) == (False, [0], True), results
    ((good, results, timeouts),) = roles.run(role, [sample(busy=True, installed=True)], **values)
    assert (good, timeouts) == (True, [0]), results


def site_host(*, busy: bool, installed: bool) -> dict[str, Any]:
    """Describe a host with a preinstalled driver, and with an engine or without one."""
    driver, engine = driver_host(busy=busy, installed=True), engine_host(busy=busy, installed=installed)
    of_engine = {name: engine[name] for name in ("engines", "docker_daemon_json", "packages", "installed_packages")}
    return {**driver, **of_engine, "files": {**driver["files"], **engine["files"]}}


def test_the_plan_of_several_parts_waits_once_and_with_the_timeout_of_the_driver(roles):
    busy, fixed, broken, converged = (
        site_host(busy=is_busy, installed=installed)
        for is_busy, installed in ((True, False), (False, True), (False, False), (True, True))
    )
    first, second, third, fourth = roles.run(
        "site", [busy, fixed], [busy, broken], [busy, busy], [converged], **ENGINE[2], **DRIVER[2]
    )
    assert (first[0], first[2], ENGINE[4] in first[1]) == (True, [0, 77], False), first
    assert (second[0], second[2], ENGINE[4] in second[1], LOCKED in second[1]) == (False, [0, 77], True, False), second
    assert (third[0], third[2], f"{LOCKED} 77 seconds" in third[1]) == (False, [0, 77], True), third
    assert (fourth[0], fourth[2]) == (True, [0]), fourth


def test_configuring_the_engine_waits(roles):
    busy, free = (engine_host(busy=is_busy, installed=True) for is_busy in (True, False))
    ((good, results, timeouts),) = roles.run("container_engine", [busy, free])
    assert (good, timeouts, "<run docker_config.yml>" in results) == (True, [0, 300], True), results


def test_configuring_the_driver_waits(roles):
    busy, free = (driver_host(busy=is_busy, installed=True) for is_busy in (True, False))
    values = {**DRIVER[2], "nvidia_driver_module_options": {"nvidia": {"NVreg_RestrictProfilingToAdminUsers": 0}}}
    ((good, results, timeouts),) = roles.run("nvidia_driver", [busy, free], **values)
    assert (good, timeouts, "<run apply.yml>" in results) == (True, [0, 77], True), results


def test_an_error_after_a_change_stops_the_role_at_once(roles):
    """The role does not wait again, so nothing later would report the error."""
    bare, broken = (engine_host(busy=is_busy, installed=False) for is_busy in (False, True))
    broken["docker_daemon_json"]["error"] = "daemon.json is broken"
    ((good, results, timeouts),) = roles.run("container_engine", [bare, broken])
    assert (good, timeouts, "<run packages_then_plan_again.yml>" in results, "daemon.json is broken" in results) == (
        False, [0, 0], True, True), results  # fmt: skip
    busy = driver_host(busy=True, installed=False)
    ((good, results, timeouts),) = roles.run("nvidia_driver", [busy, busy], tasks="observe_again.yml", **DRIVER[2])
    assert (good, timeouts, DRIVER[4] in results) == (False, [0, 0], True), results


def with_record(*, busy: bool, **changes: Any) -> dict[str, Any]:
    """Describe a host with a package that the role installed."""
    record = {owned.DRIVER_RECORD: {"exists": True, "content": json.dumps({"packages": ["nvidia-driver"]})}}
    described = driver_host(busy=busy, installed=False)
    return {**described, "files": record, "installed_packages": dict.fromkeys(["nvidia-driver"], "1 all"), **changes}


def test_removing_the_driver_waits_requires_root_and_shows_its_plan_in_check_mode(roles):
    busy, free, unprivileged = with_record(busy=True), with_record(busy=False), with_record(busy=False, uid=1000)
    values = {"nvidia_driver_state": "absent", "nvidia_driver_lock_timeout": 77}
    first, second, third = roles.run("nvidia_driver", [busy, free], [busy, busy], [unprivileged], **values)
    good, results, timeouts = first
    assert (good, timeouts, "<run remove.yml>" in results) == (True, [0, 77], True), results
    good, results, _timeouts = second
    assert (good, f"{LOCKED} 77 seconds" in results, "<run " in results) == (False, True, False), results
    good, results, _timeouts = third
    assert (good, "This task needs root, but it runs as uid 1000" in results, "<run " in results) == (
        False,
        True,
        False,
    )
    for good, results, _timeouts in roles.run("nvidia_driver", [busy, busy], [free], dry=True, **values):
        assert (good, LOCKED in results) == (True, False), results
        assert ("dependencies, repositories, pins and holds" in results, "ok [true, " in results) == (True, True), (
            results
        )
