# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command of Ansible for a test, without the 0.7 s that each start needs to import Ansible."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

SERVER, MODULES = (Path(__file__).with_name(name) for name in ("ansible_server.py", "module_server.py"))
# One server for each set of Ansible's settings, which Ansible reads when it is imported. Most tests share a server:
# their roles, modules and plugins lie beside the playbook, in roles, library, action_plugins and callback_plugins.
_servers: dict[tuple, subprocess.Popen[str]] = {}


@functools.cache
def no_configuration() -> str:
    """Return the path of an empty ansible.cfg, for a test that must not depend on that of the project."""
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = Path(directory, "ansible.cfg")
    path.touch()
    return str(path)


@functools.cache
def _module_socket(_process: int, imports: tuple[str, ...]) -> str:
    """Start the server for the modules of runs with these `imports`. Return the path of its socket."""
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = f"{directory}/modules"
    server = subprocess.Popen(
        [sys.executable, str(MODULES), path, *imports],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    atexit.register(server.communicate)
    assert server.stdout.readline() == "ready\n", "the process that runs modules for tests ended"
    return path


def _server(environment: Mapping[str, str], directory: Path, imports: tuple[str, ...]) -> subprocess.Popen[str]:
    names = [name for name in environment if name.startswith("ANSIBLE_") or name == "COLUMNS"]
    settings = tuple((name, environment[name]) for name in sorted(names))
    if not (directory / "ansible.cfg").exists():
        directory = Path("/")
    key = (os.getpid(), settings, directory, imports)
    if key not in _servers:
        directories = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, directories, ignore_errors=True)
        temporary = {f"ANSIBLE_{place}_TEMP": f"{directories}/{place.lower()}" for place in ("LOCAL", "REMOTE")}
        _servers[key] = subprocess.Popen(
            [sys.executable, str(SERVER), _module_socket(os.getpid(), imports), *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, **temporary},
            cwd=directory,
        )
        atexit.register(_servers[key].communicate)
    return _servers[key]


def run(
    argv: Iterable[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    imports: Iterable[str | Path] = (),
) -> subprocess.CompletedProcess[str]:
    """Run ansible, ansible-inventory or ansible-playbook. Return the status and the output, as subprocess.run() does.

    `imports`: Python files that the processes of Ansible and of its modules run once, to import what most runs need.
    """
    environment = dict(os.environ if env is None else env)
    program, *arguments = argv
    place = Path(cwd or Path.cwd())
    server = _server(environment, place, tuple(map(str, imports)))
    with tempfile.TemporaryDirectory() as directory:
        output = [Path(directory, name) for name in ("stdout", "stderr")]
        order = {"command": program, "arguments": arguments, "environment": environment, "directory": str(place),
                 "stdout": str(output[0]), "stderr": str(output[1])}  # fmt: skip
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        status = server.stdout.readline()
        assert status, "the process that runs Ansible for tests ended"
        texts = [path.read_text(encoding="utf-8") for path in output]
    return subprocess.CompletedProcess([program, *arguments], int(status), *texts)


def unreachable(directory: Path) -> str:
    """Return the variables of a host that is unreachable, also on a machine without ssh."""
    program = directory / "ssh"
    program.write_text("#!/bin/sh\nexit 255\n", encoding="utf-8")
    program.chmod(0o755)
    return f"ansible_connection=ssh ansible_ssh_executable={program}"
