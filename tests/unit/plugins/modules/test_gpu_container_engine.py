# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode does not query a Docker that the query would start. A Docker on another host is refused."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import stopped_engine
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    Docker,
    StoppedDocker,
    UnavailableEngine,
)
from ansible_collections.gpufleet.hosts.plugins.modules import gpu_container


@pytest.mark.parametrize(
    ("host", "check", "kind", "checked"),
    [
        (None, False, Docker, []),
        (None, True, StoppedDocker, ["/var/run/docker.sock"]),
        ("unix:///srv/docker.sock", True, StoppedDocker, ["/srv/docker.sock"]),
        ("tcp://127.0.0.1:2375", True, Docker, []),
        ("docker.example.com", True, UnavailableEngine, []),
    ],
)
def test_check_mode_detects_a_stopped_docker(monkeypatch, host, check, kind, checked):
    asked = []
    monkeypatch.setattr(stopped_engine, "is_socket_activated", lambda path: asked.append(path) or True)
    assert isinstance(gpu_container._docker(host, check), kind)
    assert asked == checked


def test_check_mode_queries_a_running_docker(monkeypatch):
    monkeypatch.setattr(stopped_engine, "is_socket_activated", lambda path: False)
    assert isinstance(gpu_container._docker(None, True), Docker)


@pytest.mark.parametrize("engine", ["auto", "docker"])
def test_docker_on_another_host_is_refused(capsys, engine):
    arguments = {"name": "c", "image": "i", "engine": engine, "engine_options": {"docker_host": "ssh://node2"}}
    with patch_module_args({**arguments, "x_private": {"_phase": "plan"}}), pytest.raises(SystemExit):
        gpu_container.main()
    result = json.loads(capsys.readouterr().out)
    assert result["failed"] is True
    assert "docker_host=ssh://node2 selects Docker on another host" in result["msg"]


def test_docker_of_this_host_counts_for_podman(monkeypatch):
    asked = []
    monkeypatch.setattr(gpu_container, "_docker", lambda host, check: asked.append(host))
    monkeypatch.setattr(gpu_container, "_podman", lambda module, executable: None)
    monkeypatch.setenv("DOCKER_HOST", "ssh://node2")
    params = {"engine": "podman", "engine_options": {}}
    gpu_container._engines(type("Module", (), {"params": params, "check_mode": False}))
    assert asked == [None]
