# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks of README.md that users copy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_ansible_reads_the_configuration_file(tmp_path: Path) -> None:
    (block,) = re.findall(r"```ini\n# ansible\.cfg\n(.*?)```", README, re.DOTALL)
    (tmp_path / "ansible.cfg").write_text(block, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    argv = [sys.executable, "-m", "ansible", "config", "dump", "--only-changed", "--type", "all"]
    done = subprocess.run(
        argv,
        cwd=tmp_path,
        env={**environment, "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(re.findall(r"^(\w+)\(\S*ansible\.cfg\) = (.*)$", done.stdout, re.MULTILINE))
    expected = {"DEFAULT_FORKS": "20", "INTERPRETER_PYTHON": "auto_silent", "ANSIBLE_PIPELINING": "True"}
    assert expected.items() <= found.items()
    assert found["DISPLAY_SKIPPED_HOSTS"] == "False" or found["display_skipped_hosts"] == "False"
    assert "yaml" in (found.get("result_format"), found.get("CALLBACK_RESULT_FORMAT"))


def test_pip_installs_what_the_controller_needs() -> None:
    (command,) = re.findall(r"^pip install (.*ansible-core.*)$", README, re.MULTILINE)
    named = {Requirement(word.strip("'")).name for word in command.split()}
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert named == {"ansible-core", *(Requirement(line).name for line in lines if line and not line.startswith("#"))}


def test_the_tarball_installs_without_galaxy(tmp_path: Path) -> None:
    """As in the README: with the collections of the Python package `ansible`, which the development environment has."""
    (archive,) = re.findall(r"^ansible-galaxy collection install --offline (\S+)$", README, re.MULTILINE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment |= {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    galaxy = [sys.executable, "-m", "ansible.cli.galaxy", "collection"]
    for arguments in (["build", "--output-path", str(tmp_path), str(ROOT)], ["install", "--offline", archive]):
        done = subprocess.run(
            [*galaxy, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "gpufleet.hosts:0.1.0 was installed successfully" in done.stdout
    assert (tmp_path / ".ansible/collections/ansible_collections/gpufleet/hosts/playbooks/site.yml").is_file()
