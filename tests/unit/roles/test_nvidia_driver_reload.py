# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a reload of the kernel modules fails, role nvidia_driver reports the cause and not a later error."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import reboot_decision
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_loading
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run, driver_samples

TASKS = Path(__file__).resolve().parents[3] / "roles" / "nvidia_driver" / "tasks"
SHARED = ("../../observe/tasks/files_in_own_directories.yml", "../../observe/tasks/files.yml")
UNIT = "nvidia-persistenced.service"
PLAN = {"load": ["nvidia", "nvidia_uvm"], "unload": ["nvidia_uvm", "nvidia"], "services": [UNIT]}
FREE = "nvidia_uvm 4907008 0 - Live 0x0\nnvidia 56717312 1 nvidia_uvm, Live 0x0\n"
UNNAMED = FREE.replace("nvidia 56717312 1 ", "nvidia 56717312 3 ")
IN_USE = {"driver": {**driver_samples.UPGRADED, "in_use": 2}}
HELD = FREE.replace("nvidia 56717312 1 ", "nvidia 56717312 2 gdrdrv,")
DAEMON = """\
case $1 in
    show) echo LoadState=loaded; [ -e "$0.stopped" ] && echo ActiveState=inactive || echo ActiveState=active ;;
    stop) : > "$0.stopped" ;;
    start) exit 1 ;;
esac"""


class Host:
    """A host whose programs are scripts that log their calls. Its service fails to start again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, script in {"rmmod": "exit 0", "modprobe": "exit 0", "systemctl": DAEMON}.items():
            self.program(name, script)

    def program(self, name: str, script: str) -> None:
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\n[ "$1" = show ] || echo "{name} $*" >> {self.root}/calls\n{script}\n')
        path.chmod(0o755)

    def reload(self, modules: str) -> str:
        (self.root / "modules").write_text(modules)
        for name in ("modules.yml", "module_users.yml", "failed_reload_record.yml", *SHARED):
            text = (TASKS / name).read_text(encoding="utf-8").replace("/proc/modules", f"{self.root}/modules")
            text = text.replace("/run/gpufleet", f"{self.root}/run").replace("owner: root", f"owner: {os.getuid()}")
            text = text.replace("group: root", f"group: {os.getgid()}")
            (self.root / Path(name).name).write_text(text.replace("../../observe/tasks/", ""))
        (self.root / "observe_again.yml").write_text("- ansible.builtin.debug:\n    msg: Observed again.\n")
        play = {
            "hosts": "localhost",
            "gather_facts": False,
            "tasks": [{"ansible.builtin.include_tasks": "modules.yml"}],
        }
        (self.root / "play.yml").write_text(yaml.safe_dump([play]))
        values = {"ansible_python_interpreter": sys.executable, "__nvidia_driver_plan": {"todo": {"modules": PLAN}}}
        values["gpufleet_host"] = driver_samples.upgraded(**IN_USE)
        argv = [
            "ansible-playbook",
            "-i",
            "localhost,",
            "-c",
            "local",
            "-e",
            json.dumps(values),
            f"{self.root}/play.yml",
        ]
        environment = {
            **os.environ,
            "PATH": f"{self.root}/bin:{os.environ['PATH']}",
            "SYSTEMD_IGNORE_CHROOT": "1",
        }
        done = ansible_run.run(argv, env=environment)
        return done.stdout + done.stderr

    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Host:
    return Host(tmp_path)


STOP, START = f"systemctl stop {UNIT}", f"systemctl start {UNIT}"
RMMOD, MODPROBE = "rmmod nvidia_uvm nvidia", "modprobe --all nvidia nvidia_uvm"


def test_an_error_of_modprobe_is_reported_and_not_hidden_by_the_service(host: Host) -> None:
    host.program("modprobe", "echo 'could not insert nvidia: Key was rejected by service' >&2; exit 1")
    output = host.reload(FREE)
    assert "failed=1" in output, output
    assert "failed with code 1: could not insert nvidia: Key was rejected by service" in output
    assert "nvidia_driver_secure_boot_key_enrolled" in output
    assert "Unable to start service" not in output
    assert "Observed again" not in output
    assert host.calls() == [STOP, RMMOD, MODPROBE, START]


def test_the_run_fails_if_a_service_does_not_start_with_the_new_modules(host: Host) -> None:
    output = host.reload(FREE)
    assert "failed=1" in output, output
    assert "Unable to start service" in output
    assert host.calls() == [STOP, RMMOD, MODPROBE, START]


def test_the_run_succeeds_if_a_service_does_not_start_with_the_old_modules(host: Host) -> None:
    output = host.reload(HELD)
    assert "failed=0" in output, output
    assert "Observed again" in output
    assert host.calls() == [STOP, START]


@pytest.mark.parametrize(
    ("modules", "rmmod", "obstacle"),
    [
        (HELD, "exit 0", "the loaded modules are in use by module gdrdrv, which needs nvidia"),
        (UNNAMED, "exit 0", "the loaded modules are in use by 2 other users of nvidia"),
        (FREE, "echo 'Module nvidia is in use' >&2; exit 1", "rmmod failed: Module nvidia is in use"),
    ],
    ids=["another module", "nobody can name it", "rmmod fails"],
)
def test_the_next_run_does_not_stop_the_services_again(host: Host, modules: str, rmmod: str, obstacle: str) -> None:
    host.program("rmmod", rmmod)
    assert "failed=0" in host.reload(modules)
    text = (host.root / "run" / "nvidia_driver_reload.json").read_text(encoding="utf-8")
    file = {owned.DRIVER_RELOAD_MARKER: {"exists": True, "content": text}}
    there = driver_samples.upgraded(**IN_USE, files=file)
    assert kernel_module_loading.modules(there, False) == {"load": [], "unload": [], "services": []}
    assert reboot_decision.decision(there, "never", False)["reasons"][-1] == obstacle


def test_a_reload_that_succeeds_leaves_no_record(host: Host) -> None:
    host.reload(FREE)
    assert not (host.root / "run").exists()
