# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode does not query a Docker that the query would start."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import stopped
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import (
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
    monkeypatch.setattr(stopped, "is_socket_activated", lambda path: asked.append(path) or True)
    assert isinstance(gpu_container._docker(host, check), kind)
    assert asked == checked


def test_check_mode_queries_a_running_docker(monkeypatch):
    monkeypatch.setattr(stopped, "is_socket_activated", lambda path: False)
    assert isinstance(gpu_container._docker(None, True), Docker)
