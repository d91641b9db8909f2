# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the module with the ansible command on this host with simulated GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.hosts.plugins.action import nvidia_gpu_facts
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.standalone_program import MARK
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import facts_program, host_program, host_python
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import NvmlLab

WARNING = "The program of gpufleet.hosts.nvidia_gpu_facts returned no result"
COLLECTIONS = gather.__file__.split("/ansible_collections/", maxsplit=1)[0]


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory) -> str:
    """A Python with only the standard library."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, with_pip=False, symlinks=True)
    return str(directory / "bin" / "python")


@pytest.fixture
def ad_hoc(tmp_path):
    """Run the module and return its result. `.output` is the whole output of Ansible."""

    def run(arguments="", *, python=sys.executable, gpus=None, options=()) -> dict:
        lab = NvmlLab(tmp_path, {"driver": {"version": "580.95.05"}, "gpus": gpus or [{"model": "T4", "count": 2}]})
        inventory = tmp_path / "inventory.yml"
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": python,
            "ansible_remote_tmp": str(tmp_path / "remote"),
            "ansible_async_dir": str(tmp_path / "async"),
        }
        inventory.write_text(json.dumps({"all": {"hosts": {"here": variables}}}))
        environment = {
            **lab.env,
            "PATH": "/usr/bin:/bin",
            "ANSIBLE_CONFIG": ansible_run.no_configuration(),
            "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
            "ANSIBLE_LOAD_CALLBACK_PLUGINS": "true",
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        }
        command = ["ansible", "-i", str(inventory), "here"]
        command += ["-m", "gpufleet.hosts.nvidia_gpu_facts", "-a", arguments, *options]
        done = ansible_run.run(command, env=environment, cwd=tmp_path)
        run.output = done.stdout + done.stderr
        text = done.stdout.partition(" => ")[2] or run.output
        assert "{" in text, run.output
        result = json.loads(text[text.index("{") : text.rindex("}") + 1])
        assert "ansible_facts" in result, run.output
        return result

    return run


def remaining_files(directory: Path) -> list[str]:
    return [str(path) for path in (directory / "remote").rglob("*") if path.is_file()]


def test_the_binding_of_the_controller_is_sent_if_the_host_has_none(ad_hoc, bare_python, tmp_path):
    gpus = [{"model": "A100-SXM4-40GB", "mig": ["1g.5gb", "2g.10gb"]}, {"model": "T4"}]
    own = ad_hoc("gather_subset=all", gpus=gpus)
    assert (own["nvml_binding"], own["nvml_binding_version"]) == ("host", "13.615.71")
    assert own["ansible_facts"]["nvidia_gpu_state"] == "ready"
    assert own["changed"] is False
    for options in (["-e", "ansible_pipelining=true"], ["-e", "ansible_pipelining=false", "--check", "--diff"]):
        sent = ad_hoc("gather_subset=all", gpus=gpus, python=bare_python, options=options)
        assert (sent["nvml_binding"], sent["nvml_binding_version"]) == ("controller", "13.615.71")
        assert sent["ansible_facts"] == own["ansible_facts"]
        assert remaining_files(tmp_path) == []


def test_an_asynchronous_job_gets_the_binding(ad_hoc, bare_python, tmp_path):
    result = ad_hoc(python=bare_python, options=["-B", "60", "-P", "1"])
    assert result["nvml_binding"] == "controller"
    assert result["ansible_facts"]["nvidia_gpu_state"] == "ready"
    deadline = time.monotonic() + 60  # Ansible's wrapper cleans up some time after the job.
    while remaining_files(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert remaining_files(tmp_path) == []


def test_a_call_runs_one_program_and_writes_no_file(ad_hoc, tmp_path):
    result = ad_hoc(options=["-vvvv"])
    assert result["ansible_facts"]["nvidia_gpu_state"] == "ready"
    assert "AnsiballZ" not in ad_hoc.output
    assert not (tmp_path / "remote").exists()
    assert result["invocation"]["module_args"]["timeout"] == 10


def test_an_undiscovered_python_is_discovered_by_the_module(ad_hoc):
    result = ad_hoc(options=["-vvvv", "-e", "ansible_python_interpreter=auto_silent"])
    assert result["ansible_facts"]["nvidia_gpu_state"] == "ready"
    assert "AnsiballZ" in ad_hoc.output
    assert WARNING not in ad_hoc.output


def test_a_python_that_fails_runs_the_module_with_a_warning(ad_hoc, tmp_path):
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\n[ "$1" != -S ] || {{ echo "out of luck" >&2; exit 1; }}\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    result = ad_hoc(python=str(python), options=["-vvvv"])
    assert result["ansible_facts"]["nvidia_gpu_state"] == "ready"
    assert "AnsiballZ" in ad_hoc.output
    assert f"{WARNING} (status 1): out of luck." in " ".join(ad_hoc.output.split())


def parse_result(output: str) -> dict | None:
    return facts_program.known_result(host_python.parse(output))


@pytest.fixture
def warnings(monkeypatch):
    """Collect the warnings of the action plugin."""
    found: list[str] = []
    monkeypatch.setattr(host_python.display, "warning", found.append)
    return found


@pytest.fixture
def plugin(monkeypatch, tmp_path):
    """Return an action plugin that runs the program with this Python. The module returns {"ran": "module"}."""
    plugin = nvidia_gpu_facts.ActionModule.__new__(nvidia_gpu_facts.ActionModule)
    plugin._task = SimpleNamespace(
        action="gpufleet.hosts.nvidia_gpu_facts", args={}, async_val=0, delegate_to=None, environment=[]
    )
    shell = SimpleNamespace(SHELL_FAMILY="sh", tmpdir=None, env_prefix=lambda **_variables: "")
    plugin._connection = SimpleNamespace(has_pipelining=True, has_native_async=False, become=None, _shell=shell)
    plugin._templar = SimpleNamespace(template=lambda value: value)
    plugin._execute_module = lambda **_arguments: {"ran": "module"}
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def execute(command: str, in_data: bytes) -> dict:
        done = subprocess.run(["sh", "-c", command], input=in_data, cwd=tmp_path, capture_output=True, check=False)
        return {"rc": done.returncode, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}

    plugin._low_level_execute_command = execute
    return plugin


def test_a_program_without_one_of_its_modules_runs_the_module_with_a_warning(plugin, warnings, monkeypatch):
    needed = host_program.needed("facts.program")
    incomplete = tuple(name for name in needed if name != "nvml.timeout_guard")
    assert len(incomplete) == len(needed) - 1
    monkeypatch.setattr(host_program, "needed", lambda entry: incomplete)
    assert plugin.run(task_vars={"ansible_python_interpreter": sys.executable}) == {"ran": "module"}
    assert len(warnings) == 1
    for part in (f"{WARNING} (status 1): ", "cannot import name 'timeout_guard'", "Report this message at https://"):
        assert part in warnings[0]


@pytest.mark.parametrize(
    ("changes", "python"),
    [
        ({}, "/nonexistent/python"),
        ({}, "auto"),
        ({"async_val": 60}, sys.executable),
        ({"delegate_to": "other"}, sys.executable),
        ({"args": {"timeout": "soon"}}, sys.executable),
    ],
)
def test_a_task_that_needs_the_module_runs_it_without_a_warning(plugin, warnings, changes, python):
    vars(plugin._task).update(changes)
    assert plugin.run(task_vars={"ansible_python_interpreter": python}) == {"ran": "module"}
    assert warnings == []


@pytest.mark.parametrize(
    ("done", "count"),
    [
        ({"rc": 1, "stdout": "", "stderr": "SyntaxError: future feature annotations is not defined"}, 0),
        ({"rc": 1, "stdout": "", "stderr": "TypeError: 'ABCMeta' object is not subscriptable"}, 0),
        ({"rc": 127, "stdout": "", "stderr": "sh: python3: not found"}, 0),
        ({"rc": 0, "stdout": "gpufleet.hosts: started", "stderr": ""}, 1),
    ],
)
def test_only_a_python_that_can_run_the_program_causes_a_warning(plugin, warnings, done, count):
    plugin._low_level_execute_command = lambda command, in_data: done
    plugin.run(task_vars={"ansible_python_interpreter": "python3"})
    assert len(warnings) == count
    assert all("(status 0): no output. The ordinary module" in warning for warning in warnings)


def test_other_output_of_the_host_is_ignored(ad_hoc, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "Welcome {{}}"\n{sys.executable} "$@"\necho bye\n')
    python.chmod(0o755)
    assert ad_hoc(python=str(python))["ansible_facts"]["nvidia_gpu_state"] == "ready"


def test_a_host_without_a_driver_needs_no_binding(ad_hoc, bare_python, tmp_path):
    result = ad_hoc(f"driver_root={tmp_path}", python=bare_python, options=["-vvv"])
    assert result["nvml_binding"] is None
    assert "pynvml-" not in ad_hoc.output  # No binding was sent.


def test_a_driver_that_hangs_ends_with_the_timeout(ad_hoc):
    faults = [{"model": "T4", "faults": [{"call": "nvmlDeviceGetUUID", "delay": 300}]}]
    result = ad_hoc("timeout=1", gpus=faults)
    facts = result["ansible_facts"]
    assert facts["nvidia_gpu_state"] == "error"
    assert "did not answer within 1 seconds (nvmlDeviceGetUUID of GPU 0)" in facts["nvidia_gpu_state_reason"]


@pytest.mark.parametrize(
    "output",
    [
        "",
        "a banner",
        f"{MARK}",
        f"{MARK}[1]",
        f'{MARK}"text"',
        f'{MARK}{{"changed": false, "ansible_facts": {{"nvidia_gpu_sta',  # cut off
        f'{MARK}{{"ansible_facts": "text"}}',
    ],
)
def test_output_without_a_result_is_none(output):
    assert parse_result(output) is None


def test_only_the_results_of_the_module_are_kept():
    """The result of an action can add hosts and more. The output of a host must not."""
    answer = {
        "changed": False,
        "add_host": {"host_name": "evil", "groups": ["gpu_hosts"], "host_vars": {"ansible_connection": "local"}},
        "add_group": "evil",
        "_ansible_delegated_vars": {},
        "ansible_facts": {"nvidia_gpu_state": "ready", "ansible_connection": "local", "gpufleet_host": {}},
    }
    assert parse_result(f"a banner\n{MARK}{json.dumps(answer)}\nbye\n") == {
        "changed": False,
        "ansible_facts": {"nvidia_gpu_state": "ready"},
    }


def test_keys_that_ansible_reserves_are_removed_at_every_depth():
    reserved = {"__ansible_type": "TrustedAsTemplate", "_ansible_no_log": True}
    answer = {
        "changed": False,
        "_ansible_no_log": True,
        "ansible_facts": {
            "nvidia_gpu_state": "ready",
            "nvidia_driver": {"version": "580.95.05", **reserved},
            "nvidia_gpus": [{"name": "Tesla T4", "health": {"reasons": [reserved, "ansible_"], **reserved}}],
        },
    }
    assert parse_result(f"{MARK}{json.dumps(answer)}") == {
        "changed": False,
        "ansible_facts": {
            "nvidia_gpu_state": "ready",
            "nvidia_driver": {"version": "580.95.05"},
            "nvidia_gpus": [{"name": "Tesla T4", "health": {"reasons": [{}, "ansible_"]}}],
        },
    }


PLAY = """
- hosts: all
  gather_facts: false
  environment: {FROM_PLAY: "{{ 'of the ' ~ 'play' }}", BOTH: play}
  tasks:
    - name: Read the GPU facts
      gpufleet.hosts.nvidia_gpu_facts:
      environment: {BOTH: the task's}
- hosts: all
  gather_facts: false
  tasks:
    - name: Show the driver version
      ansible.builtin.debug:
        msg: "shown: {{ ansible_facts.nvidia_gpu_state_reason }} {{ ansible_facts.nvidia_driver.version }}"
"""


def test_host_text_is_no_template_and_the_task_environment_is_used(tmp_path):
    """A fact cache must not turn a dictionary with `__ansible_type` into a trusted string either."""
    text = "{{ 40 + 2 }}"
    trusted = {"__ansible_type": "_AnsibleTaggedStr", "value": text, "tags": [{"__ansible_type": "TrustedAsTemplate"}]}
    facts = {"nvidia_gpu_state": "error", "nvidia_gpu_state_reason": text, "nvidia_driver": {"version": trusted}}
    host = tmp_path / "python"
    host.write_text(
        f'#!/bin/sh\ncat >/dev/null\necho "$FROM_PLAY, $BOTH" >{tmp_path}/environment\n'
        f"cat <<'END'\n{MARK}{json.dumps({'changed': False, 'ansible_facts': facts})}\nEND\n"
    )
    host.chmod(0o755)
    (tmp_path / "play.yml").write_text(PLAY)
    command = ["ansible-playbook", "-i", "here,", "-c", "local", str(tmp_path / "play.yml")]
    done = ansible_run.run(
        [*command, "-e", f"ansible_python_interpreter={host}"],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": ansible_run.no_configuration(),
            "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
            "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile",
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "cache"),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"shown: {text} {{'value': '{text}', 'tags': [{{}}]}}" in done.stdout
    assert (tmp_path / "environment").read_text() == "of the play, the task's\n"


def test_all_facts_of_the_module_are_returned(ad_hoc):
    facts = ad_hoc("gather_subset=all")["ansible_facts"]
    assert set(facts) >= {"nvidia_gpu_state", "nvidia_driver", "nvidia_gpus", "nvidia_topology", "nvidia_nvswitches"}
