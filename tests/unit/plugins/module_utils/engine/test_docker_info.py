# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.docker_info import read_info
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Docker
from ansible_collections.gpufleet.hosts.tests.unit.plugins.fake_engines import FakeDocker

ANSWER = {
    "ServerVersion": "26.1.5",
    "Runtimes": {"runc": {"path": "runc"}, "kata": {"runtimeType": "io.containerd.kata.v2"}, "other": None},
    "DefaultRuntime": "runc",
    "Driver": "overlayfs",
    "Images": 12,
    "CDISpecDirs": ["/etc/cdi"],
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"],
    "Swarm": {"LocalNodeState": "active"},
}


def test_info_is_read():
    info = read_info(ANSWER)
    assert info.server_version == "26.1.5"
    assert info.runtimes == {"runc": "runc", "kata": "", "other": ""}
    assert (info.swarm, info.rootless, info.selinux) == (True, True, False)
    assert (info.storage_driver, info.images) == ("overlayfs", 12)


@pytest.mark.parametrize("state", ["", "inactive"])
def test_host_outside_a_swarm_is_recognized(state):
    assert not read_info({"Swarm": {"LocalNodeState": state}}).swarm
    assert not read_info({}).swarm


@pytest.mark.parametrize("wrong", [5, "text", ["text"], {"key": "text"}, [5, None], True])
@pytest.mark.parametrize("key", ["Runtimes", "Labels", "CDISpecDirs", "SecurityOptions", "Swarm"])
def test_a_value_of_another_type_counts_as_missing(key, wrong):
    info = read_info({**ANSWER, key: wrong})
    assert info.server_version == "26.1.5"
    assert all(isinstance(item, str) for item in (*info.labels, *info.cdi_spec_dirs, *info.runtimes))


def test_state_of_docker_is_read(tmp_path):
    server = FakeDocker(tmp_path / "docker.sock")
    server.answer = (200, ANSWER)
    state = Docker(server.host).state()
    server.close()
    assert str(state) == "docker 26.1.5"
    assert state.cdi_dirs == ("/etc/cdi",)
    assert state.default_runtime == "runc"
    assert state.rootless
