# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of container engines."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import container_engines


@pytest.mark.parametrize(
    ("manager", "name", "found"),
    [
        ("apt", "docker.io", "docker.io"),
        # A dock for windows, version 1.5.
        ("apt", "docker", None),
        ("dnf", "docker", "docker"),
        ("zypper", "docker-stable", "docker-stable"),
    ],
)
def test_package_of_docker(manager, name, found):
    host = {"os": {"package_manager": manager}, "packages": {name: {"version": "1.5-2"}}, "services": {}}
    assert container_engines.engines(host, None)["docker"]["package"] == found


@pytest.mark.parametrize("name", ["containerd.io", "containerd", "moby-containerd"])
def test_package_of_containerd(name):
    host = {"os": {"package_manager": "apt"}, "packages": {name: {"version": "1.7.27-1"}}, "services": {}}
    assert container_engines.engines(host, None)["containerd"] == {"package": name, "version": "1.7.27-1"}


@pytest.mark.parametrize(("running", "paused", "names"), [(1, 0, ["trainer"]), (0, 1, ["trainer"]), (0, 0, None)])
def test_names_of_containers_are_read_only_if_some_are_running(running, paused, names):
    answers = {
        "/version": {"Platform": {"Name": "Docker Engine - Community"}, "Components": [{"Name": "Engine"}]},
        "/info": {"ContainersRunning": running, "ContainersPaused": paused},
        "/containers/json": [{"Names": ["/trainer", "/proxy/trainer"]}],
    }
    host = {
        "os": {"package_manager": "apt"},
        "packages": {"docker.io": {"version": "20.10.24"}},
        "services": {"docker.service": {"active_state": "active"}},
    }
    info = container_engines.engines(host, lambda _socket, path: answers[path])["docker"]["info"]
    assert info.get("container_names") == names
