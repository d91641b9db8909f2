# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run module docker_daemon_config on files in a temporary directory."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import dockerd_flags
from ansible_collections.gpufleet.hosts.plugins.modules import docker_daemon_config

DOCKERD = """#!/bin/sh
if [ "$1" = --version ]; then echo "Docker version 26.1.5, build x"; exit 0; fi
echo "$@" >> {log}
if grep -q refuse "$3"; then echo "unable to configure: refuse"; exit 1; fi
echo "configuration OK"
"""


class Done(Exception):
    """The module has exited."""


class Host:
    """Run the module on a daemon.json in a temporary directory."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = root / "etc" / "docker" / "daemon.json"
        self.state = root / "state"
        self.log = root / "log"
        self.dockerd = root / "dockerd"
        self.dockerd.write_text(DOCKERD.format(log=self.log))
        self.dockerd.chmod(0o755)
        self.systemctl = "MainPID=0"
        self.flags: list[dockerd_flags.Flag] = []
        real = basic.AnsibleModule.run_command

        def run_command(module: basic.AnsibleModule, args: list[str], **more: t.Any) -> tuple[int, str, str]:
            if args[0] == "systemctl":
                return 0, self.systemctl, ""
            if args[0] == str(self.dockerd):
                return self._run_dockerd(args[1:])
            return real(module, args, **more)

        def end(_module: basic.AnsibleModule, **result: t.Any) -> None:
            raise Done(result)

        monkeypatch.setattr(basic.AnsibleModule, "run_command", run_command)
        monkeypatch.setattr(basic.AnsibleModule, "exit_json", end)
        monkeypatch.setattr(
            basic.AnsibleModule, "fail_json", lambda module, msg, **more: end(module, failed=True, msg=msg)
        )
        monkeypatch.setattr(dockerd_flags, "unit_flags", lambda root, unit: self.flags)

    def _run_dockerd(self, arguments: list[str]) -> tuple[int, str, str]:
        """Answer as the program would. A process of its own takes longer than all else in a test."""
        text = self.dockerd.read_text()
        if arguments == ["--version"]:
            return 0, text.partition('echo "')[2].partition('"')[0] + "\n", ""
        with self.log.open("a") as log:
            log.write(" ".join(arguments) + "\n")
        is_refused = b"refuse" in Path(arguments[2]).read_bytes()
        return (1, "unable to configure: refuse\n", "") if is_refused else (0, "configuration OK\n", "")

    def write(self, text: str, mode: int = 0o644) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(text)
        self.file.chmod(mode)

    def __call__(self, options: dict[str, t.Any] | None = None, check: bool = False, **more: t.Any) -> dict[str, t.Any]:
        arguments = {
            "path": str(self.file),
            "state_directory": str(self.state),
            "dockerd": str(self.dockerd),
            "_ansible_check_mode": check,
            "_ansible_diff": True,
            **({} if options is None else {"options": options}),
            **more,
        }
        with patch_module_args(arguments), pytest.raises(Done) as caught:
            docker_daemon_config.main()
        return caught.value.args[0]
