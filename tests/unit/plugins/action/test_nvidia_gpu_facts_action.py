# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module run by Ansible on this very host, as a user does at the command line, against simulated GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.action.nvidia_gpu_facts import told
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts.program import MARK
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import NvmlLab

COLLECTIONS = gather.__file__.split("/ansible_collections/", maxsplit=1)[0]


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory) -> str:
    """A Python that has the standard library and nothing else, as a host with nothing to install on has it."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, with_pip=False, symlinks=True)
    return str(directory / "bin" / "python")


@pytest.fixture
def ad_hoc(tmp_path):
    """Run the module by name, and give its result; `.output` is all that Ansible printed."""

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
        settings = tmp_path / "ansible.cfg"
        settings.touch()
        environment = {
            **lab.env,
            "PATH": "/usr/bin:/bin",
            "ANSIBLE_CONFIG": str(settings),
            "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
            "ANSIBLE_LOAD_CALLBACK_PLUGINS": "true",
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
        }
        command = [sys.executable, "-m", "ansible.cli.adhoc", "-i", str(inventory), "here"]
        command += ["-m", "gpufleet.hosts.nvidia_gpu_facts", "-a", arguments, *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        run.output = done.stdout + done.stderr
        text = done.stdout.partition(" => ")[2] or run.output
        assert "{" in text, run.output
        result = json.loads(text[text.index("{") : text.rindex("}") + 1])
        assert "ansible_facts" in result, run.output
        return result

    return run


def left_behind(directory: Path) -> list[str]:
    return [str(path) for path in (directory / "remote").rglob("*") if path.is_file()]


def test_the_controller_s_binding_travels_where_there_is_none_and_tells_the_same(ad_hoc, bare_python, tmp_path):
    gpus = [{"model": "A100-SXM4-40GB", "mig": ["1g.5gb", "2g.10gb"]}, {"model": "T4"}]
    own = ad_hoc("gather_subset=all", gpus=gpus)
    assert (own["nvml_binding"], own["nvml_binding_version"]) == ("host", "13.615.71")
    assert own["ansible_facts"]["nvidia_gpu_state"] == "ready"
    assert own["changed"] is False
    for options in (["-e", "ansible_pipelining=true"], ["-e", "ansible_pipelining=false", "--check", "--diff"]):
        sent = ad_hoc("gather_subset=all", gpus=gpus, python=bare_python, options=options)
        assert (sent["nvml_binding"], sent["nvml_binding_version"]) == ("controller", "13.615.71")
        assert sent["ansible_facts"] == own["ansible_facts"]
        assert left_behind(tmp_path) == []


def test_a_job_in_the_background_has_the_binding_with_it(ad_hoc, bare_python, tmp_path):
    result = ad_hoc(python=bare_python, options=["-B", "60", "-P", "1"])
    assert result["nvml_binding"] == "controller"
    assert result["ansible_facts"]["nvidia_gpu_state"] == "ready"
    deadline = time.monotonic() + 15  # Ansible's own wrapper cleans up some time after the job.
    while left_behind(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left_behind(tmp_path) == []


def test_a_call_is_one_exchange_and_writes_no_file(ad_hoc, tmp_path):
    result = ad_hoc(options=["-vvvv"])
    assert result["ansible_facts"]["nvidia_gpu_state"] == "ready"
    assert "AnsiballZ" not in ad_hoc.output
    assert not (tmp_path / "remote").exists()
    assert result["invocation"]["module_args"]["timeout"] == 10


def test_a_python_that_is_still_to_be_found_is_found(ad_hoc):
    result = ad_hoc(options=["-vvvv", "-e", "ansible_python_interpreter=auto_silent"])
    assert result["ansible_facts"]["nvidia_gpu_state"] == "ready"
    assert "AnsiballZ" in ad_hoc.output


def test_a_python_that_reads_no_program_runs_the_module(ad_hoc, tmp_path):
    """As where sudo wants a terminal: the exchange fails, and what every module needs is there."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" != -c ] || exit 1\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    result = ad_hoc(python=str(python), options=["-vvvv"])
    assert result["ansible_facts"]["nvidia_gpu_state"] == "ready"
    assert "AnsiballZ" in ad_hoc.output


def test_what_a_host_prints_besides_is_no_result(ad_hoc, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "Welcome {{}}"\n{sys.executable} "$@"\necho bye\n')
    python.chmod(0o755)
    assert ad_hoc(python=str(python))["ansible_facts"]["nvidia_gpu_state"] == "ready"


def test_a_host_without_a_driver_needs_no_binding(ad_hoc, bare_python, tmp_path):
    result = ad_hoc(f"driver_root={tmp_path}", python=bare_python, options=["-vvv"])
    assert result["nvml_binding"] is None
    assert "pynvml-" not in ad_hoc.output  # nothing was sent


def test_a_driver_that_hangs_costs_the_timeout(ad_hoc):
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
def test_what_is_no_result_is_none(output):
    assert told(output) is None


def test_a_host_tells_the_controller_facts_and_nothing_else():
    """An action's result may add hosts, run what lookups find, and more; a host's answer may not."""
    answer = {
        "changed": False,
        "add_host": {"host_name": "evil", "groups": ["gpu_hosts"], "host_vars": {"ansible_connection": "local"}},
        "add_group": "evil",
        "_ansible_delegated_vars": {},
        "ansible_facts": {"nvidia_gpu_state": "ready", "ansible_connection": "local", "gpufleet_host": {}},
    }
    assert told(f"a banner\n{MARK}{json.dumps(answer)}\nbye\n") == {
        "changed": False,
        "ansible_facts": {"nvidia_gpu_state": "ready"},
    }


def test_no_key_of_ansible_s_own_comes_through_at_any_depth():
    lie = {"__ansible_type": "TrustedAsTemplate", "_ansible_no_log": True}
    answer = {
        "changed": False,
        "_ansible_no_log": True,
        "ansible_facts": {
            "nvidia_gpu_state": "ready",
            "nvidia_driver": {"version": "580.95.05", **lie},
            "nvidia_gpus": [{"name": "Tesla T4", "health": {"reasons": [lie, "ansible_"], **lie}}],
        },
    }
    assert told(f"{MARK}{json.dumps(answer)}") == {
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
    - name: Ask
      gpufleet.hosts.nvidia_gpu_facts:
      environment: {BOTH: the task's}
- hosts: all
  gather_facts: false
  tasks:
    - name: Show
      ansible.builtin.debug:
        msg: "shown: {{ ansible_facts.nvidia_gpu_state_reason }} {{ ansible_facts.nvidia_driver.version }}"
"""


def test_a_host_s_text_is_never_a_template_and_its_python_has_the_task_s_environment(tmp_path):
    """Nor from a fact cache, which takes a dictionary with `__ansible_type` for a string to be trusted."""
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
    (tmp_path / "ansible.cfg").touch()
    command = [sys.executable, "-m", "ansible.cli.playbook", "-i", "here,", "-c", "local", str(tmp_path / "play.yml")]
    done = subprocess.run(
        [*command, "-e", f"ansible_python_interpreter={host}"],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
            "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile",
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "cache"),
            "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"shown: {text} {{'value': '{text}', 'tags': [{{}}]}}" in done.stdout
    assert (tmp_path / "environment").read_text() == "of the play, the task's\n"


def test_all_that_the_module_returns_comes_through(ad_hoc):
    facts = ad_hoc("gather_subset=all")["ansible_facts"]
    assert set(facts) >= {"nvidia_gpu_state", "nvidia_driver", "nvidia_gpus", "nvidia_topology", "nvidia_nvswitches"}
