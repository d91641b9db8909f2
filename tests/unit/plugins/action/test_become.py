# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often a task calls sudo through Ansible's connections. A fake ssh runs the command locally."""

from __future__ import annotations

import json
import re
import sys

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import NvmlLab

COLLECTIONS = gather.__file__.split("/ansible_collections/", maxsplit=1)[0]
FACTS = "gpufleet.hosts.nvidia_gpu_facts"
CDI = "gpufleet.hosts.nvidia_cdi_spec"
CONTAINER = "gpufleet.hosts.gpu_container"

SSH = """#!/bin/sh
for argument; do
    [ "$argument" != -tt ] || export TERMINAL=yes
    command=$argument
done
exec sh -c "$command"
"""
# Like sudo -S: print a prompt to standard error, read one line, and run the last argument if the password is right.
SUDO = """#!/bin/sh
input=
for argument; do
    [ "$previous" != -p ] || prompt=$argument
    [ "$argument" != -S ] && [ "$argument" != -HS ] || input=yes
    previous=$argument
done
if [ -n "{wants_terminal}" ] && [ -z "$TERMINAL" ]; then
    echo "sudo: {wants_terminal}" >&2
    exit 1
fi
for try in $(seq {tries}); do
    printf %s "$prompt" >&2
    IFS= read -r password || break
    echo "$password" >>{log}
    if [ "$password" = right ]; then
        while [ "$1" != /bin/sh ]; do shift; done
        exec "$@"
    fi
    [ "$try" = {tries} ] || echo "Sorry, try again." >&2
done
echo "sudo: $try incorrect password attempt" >&2
exit 1
"""


@pytest.fixture
def run(tmp_path):
    """Run a module by name with a password; return its result, the passwords that reached sudo, and the output."""

    def run(
        module, arguments="", *, password, connection="ssh", tries=3, wants_terminal="", pipelining=True, options=()
    ):
        lab = NvmlLab(tmp_path, {"driver": {"version": "580.95.05"}, "gpus": [{"model": "T4"}]})
        log = tmp_path / "passwords"
        for name, text in (("ssh", SSH), ("sudo", SUDO.format(log=log, tries=tries, wants_terminal=wants_terminal))):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        variables = {
            "ansible_connection": connection,
            "ansible_ssh_executable": str(tmp_path / "ssh"),
            "ansible_ssh_transfer_method": "piped",
            "ansible_become": True,
            "ansible_become_exe": str(tmp_path / "sudo"),
            "ansible_become_user": "root",
            "ansible_become_password": password,
            "ansible_pipelining": pipelining,
            "ansible_python_interpreter": sys.executable,
            "ansible_remote_tmp": str(tmp_path / "remote"),
            "ansible_async_dir": str(tmp_path / "async"),
        }
        inventory = tmp_path / "inventory.yml"
        inventory.write_text(json.dumps({"all": {"hosts": {"here": variables}}}))
        environment = {
            **lab.env,
            "PATH": "/usr/bin:/bin",
            "ANSIBLE_CONFIG": ansible_run.no_configuration(),
            "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
            "ANSIBLE_LOAD_CALLBACK_PLUGINS": "true",
            "ANSIBLE_BECOME_ALLOW_SAME_USER": "true",
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        }
        command = ["ansible", "-i", str(inventory), "here", "-vvv"]
        command += ["-m", module, "-a", arguments, *options]
        done = ansible_run.run(command, env=environment, cwd=tmp_path)
        output = done.stdout + done.stderr
        found = re.search(r"^here \| \w+!? => (\{.*^\})", done.stdout, re.MULTILINE | re.DOTALL)
        assert found, output
        return json.loads(found[1]), log.read_text().split() if log.exists() else [], output

    return run


IN_THE_BACKGROUND = {"options": ["-B", "60", "-P", "1"]}


@pytest.mark.parametrize(
    "call",
    [
        {"module": FACTS},
        {"module": FACTS, "tries": 1},
        {"module": FACTS, "connection": "local"},
        {"module": FACTS, "tries": 1, **IN_THE_BACKGROUND},
        {"module": CDI, "tries": 1, **IN_THE_BACKGROUND},
        {"module": CONTAINER, "arguments": "name=c state=absent", "tries": 1},
    ],
)
def test_a_wrong_password_reaches_sudo_once(run, call):
    result, passwords, output = run(**call, password="wrong")
    assert passwords == ["wrong"], output
    assert "password" in json.dumps(result)


def test_an_unknown_message_of_sudo_is_quoted(run):
    result, _passwords, output = run(FACTS, password="wrong", tries=1)
    assert "sudo on the host failed with status 1: sudo: 1 incorrect password attempt" in result["msg"], output


@pytest.mark.parametrize("connection", ["ssh", "local"])
def test_the_right_password_works_without_pipelining(run, connection):
    result, passwords, output = run(FACTS, connection=connection, password="right", pipelining=False)
    assert result["ansible_facts"]["nvidia_gpu_state"] == "ready", output
    assert passwords == ["right"]


@pytest.mark.parametrize(
    "message",
    [
        "sorry, you must have a tty to run sudo",
        "a terminal is required to read the password; either use the -S option or configure an askpass helper",
    ],
)
def test_a_sudo_that_requires_a_terminal_gets_one(run, message):
    result, passwords, output = run(FACTS, password="right", wants_terminal=message, pipelining=False)
    assert result["ansible_facts"]["nvidia_gpu_state"] == "ready", output
    assert passwords == ["right"]
    assert "AnsiballZ" in output
