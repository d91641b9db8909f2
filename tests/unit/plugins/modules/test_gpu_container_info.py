# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module reads engines without starting them, and refuses a Docker on another host."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes, stopped_engine
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Podman, UnavailableEngine
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing
from ansible_collections.gpufleet.hosts.plugins.modules import gpu_container_info
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import (
    UUIDS,
    Engine,
    container,
    docker,
    facts,
    gpu,
    nodes,
    podman,
)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the module on a host with two GPUs and one container, and return its result."""
    gathered = {"facts": facts([gpu(0), gpu(1)], reason="NVML shows 2 GPUs.")}
    holder = container("job", Devices=nodes("/dev/nvidiactl", "/dev/nvidia3"))
    monkeypatch.setattr(gpu_container_info.facts_gather, "gather", lambda subsets, **options: gathered)
    monkeypatch.setattr(gpu_container_info, "Docker", lambda host: _Docker(host, [holder]))
    monkeypatch.setattr(gpu_container_info, "_podman", lambda module: Engine(podman()))
    monkeypatch.setattr(gpu_processes, "read", lambda root, pids, **options: gpu_processes.ProcessTable())
    monkeypatch.setattr(stopped_engine, "is_socket_activated", lambda path: path == "/asleep.sock")
    monkeypatch.delenv("DOCKER_HOST", raising=False)

    def run(**arguments):
        with patch_module_args(arguments), pytest.raises(SystemExit):
            gpu_container_info.main()
        return json.loads(capsys.readouterr().out)

    return run


class _Docker(Engine):
    """Docker with a socket."""

    def __init__(self, host, containers):
        super().__init__(docker(), containers)
        self.socket = (host or "unix:///var/run/docker.sock").removeprefix("unix://")


def test_result_has_gpus_containers_and_state(run):
    result = run()
    assert (result["changed"], result["nvidia_gpu_state"]) == (False, "ready")
    assert result["free"] == [UUIDS[1]]
    assert [one["name"] for one in result["containers"]] == ["job"]


def test_docker_that_a_query_would_start_is_not_queried(run):
    result = run(docker_host="unix:///asleep.sock")
    assert result["engines"]["docker"]["reason"] == "docker is not running"
    assert result["containers"] == []


def test_unused_podman_is_not_queried(monkeypatch):
    monkeypatch.setattr(stopped_engine, "podman", lambda: stopped_engine.StoppedEngine("podman"))
    assert isinstance(gpu_container_info._podman(None), UnavailableEngine)


def test_used_podman_is_queried(monkeypatch):
    monkeypatch.setattr(stopped_engine, "podman", lambda: None)
    module = type("Module", (), {"run_command": None, "get_bin_path": lambda self, name: f"/usr/bin/{name}"})()
    engine = gpu_container_info._podman(module)
    assert isinstance(engine, Podman)
    assert engine.unavailable_reason() is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"docker_host": "ssh://node2"}, "docker_host=ssh://node2 selects Docker on another host"),
        ({"timeout": 0}, "timeout=0 is invalid"),
        ({"driver_root": "/nonexistent"}, "driver_root=/nonexistent is not a directory"),
    ],
)
def test_invalid_options_fail_with_a_message(run, arguments, words):
    result = run(**arguments)
    assert result["failed"] is True
    assert words in result["msg"]


def test_missing_pynvml_is_reported_to_the_action_plugin(run, monkeypatch):
    def gather(subsets, **_options):
        raise BindingMissing("No module named 'pynvml'")

    monkeypatch.setattr(gpu_container_info.facts_gather, "gather", gather)
    assert run()["nvml_binding_missing"] is True


def test_incomplete_report_warns(run, monkeypatch):
    warned = []
    monkeypatch.setattr(gpu_container_info.os, "geteuid", lambda: 1000)
    # Where a test imported Ansible's controller, warnings are not part of the result.
    monkeypatch.setattr(gpu_container_info.AnsibleModule, "warn", lambda module, warning: warned.append(warning))
    result = run()
    assert "uid 1000" in result["unseen"][0]
    assert warned == result["unseen"]
