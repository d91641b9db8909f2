# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that do nothing, for the scripts of packages in one transaction."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import idle_commands


class Manager:
    """A package manager that only records how it was started."""

    def __init__(self, root) -> None:
        self.root = root
        (root / "var/tmp").mkdir(parents=True)
        self.calls: list[tuple[list[str], dict[str, str]]] = []

    def start(self, *argv: str) -> str:
        """Start a program, and return the PATH that the scripts of packages get."""
        with idle_commands.replaced(["update-pciids"], self._run, str(self.root)) as run:
            run(list(argv))
            command, environment = self.calls[-1]
            text = " ".join(command)
            if "HOME" in environment:
                with open(f"{environment['HOME']}/.rpmmacros", encoding="utf-8") as file:
                    text = file.read().replace("%_install_script_path ", "PATH=")
            found = re.search(r"PATH=(\S+)|Path=(\S+)", text)
            path = (found[1] or found[2]) if found else ""
            if path:
                # The real command would wait for its server.
                subprocess.run(["/bin/sh", "-c", "update-pciids"], env={"PATH": path}, check=True)
        return path

    def _run(self, argv, environment=None, stdin=None):
        self.calls.append((argv, environment or {}))
        return 0, "", ""


@pytest.fixture
def manager(tmp_path):
    return Manager(tmp_path)


@pytest.mark.parametrize(
    "argv",
    [
        ["apt-get", "--assume-yes", "install", "aws-neuronx-dkms"],
        ["dpkg", "--configure", "-a"],
        ["dnf", "--assumeyes", "install", "aws-neuronx-dkms"],
        ["rpm", "--erase", "aws-neuronx-dkms"],
    ],
)
def test_scripts_find_the_idle_command_first(manager, argv):
    path = manager.start(*argv)
    assert path.endswith(":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin")
    assert os.listdir(manager.root / "var/tmp") == []


def test_programs_that_only_read_keep_their_home(manager):
    assert manager.start("dnf", "makecache") == ""
    assert manager.calls[-1] == (["dnf", "makecache"], {})


def test_nothing_changes_without_names(manager):
    with idle_commands.replaced([], manager._run, str(manager.root)) as run:
        run(["apt-get", "install", "x"])
    assert manager.calls == [(["apt-get", "install", "x"], {})]


def test_the_macros_of_root_stay_in_effect(manager, monkeypatch):
    home = manager.root / "root"
    home.mkdir()
    (home / ".rpmmacros").write_text("%_dbpath /elsewhere\n")
    monkeypatch.setenv("HOME", "/root")
    with idle_commands.replaced(["update-pciids"], manager._run, str(manager.root)) as run:
        run(["dnf", "install", "x"])
        text = (Path(manager.calls[-1][1]["HOME"]) / ".rpmmacros").read_text(encoding="utf-8")
    assert text.startswith("%_dbpath /elsewhere\n")
