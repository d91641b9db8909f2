# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Podman behind Docker's socket is not Docker, for everything that speaks to this socket."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.engine_choice import choose_engine
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import (
    docker_socket_server,
    engine_queries,
    named_volumes,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import container_engines as observe_engines
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import engines_on_host
from ansible_collections.gpufleet.hosts.plugins.module_utils.usage import gpu_usage_report

# As Podman 5.4.2 of Debian 13 answers, shortened.
PODMAN = {
    "Platform": {"Name": "linux/amd64/debian-13"},
    "Components": [{"Name": "Podman Engine", "Version": "5.4.2"}, {"Name": "Conmon"}, {"Name": "OCI Runtime (crun)"}],
    "Version": "5.4.2",
    "ApiVersion": "1.41",
}
DOCKER = {"Platform": {"Name": "Docker Engine - Community"}, "Components": [{"Name": "Engine"}, {"Name": "runc"}]}


@pytest.mark.parametrize(
    ("answer", "engine"),
    [
        (PODMAN, "podman"),
        (DOCKER, "docker"),
        ({"Version": "20.10.24+dfsg1", "Components": [{"Name": "Engine"}]}, "docker"),
        ({"Version": "17.03.2-ce"}, "docker"),  # before components
        ({"Components": None}, "docker"),
        *(({"Components": wrong}, "docker") for wrong in (5, "Podman Engine", {"Name": "Podman Engine"}, [5, None])),
        ([PODMAN], "docker"),
        (None, "docker"),
    ],
)
def test_the_components_tell_the_engine(answer, engine):
    assert docker_socket_server.server_of(answer) == engine


INFO = {"ServerVersion": "5.4.2", "Runtimes": {"crun": {"path": "/usr/bin/crun"}}, "DefaultRuntime": "crun"}


@pytest.fixture
def podman_answers(monkeypatch):
    def call(_self, _method, path, *_body, **_options):
        return {"/version": PODMAN, "/info": INFO, "/containers/json?all=1": []}.get(path)

    monkeypatch.setattr(named_volumes.DockerClient, "_call", call)


class Podman:
    name = "podman"

    def unavailable_reason(self):
        return None


def refused_by_gpu_container():
    pair = {"docker": engine_queries.Docker(), "podman": Podman()}
    assert choose_engine("auto", pair, "job").name == "podman"
    with pytest.raises(named_volumes.EngineError) as error:
        choose_engine("docker", pair, "job")
    return str(error.value)


def refused_by_the_driver_volume():
    assert [one.name for one in named_volumes.chosen(["auto"], named_volumes.DockerClient(), Podman())] == ["podman"]
    with pytest.raises(named_volumes.EngineError) as error:
        named_volumes.chosen(["docker"], named_volumes.DockerClient(), Podman())
    return str(error.value)


@pytest.mark.parametrize(
    "reason",
    [
        refused_by_gpu_container,
        refused_by_the_driver_volume,
        lambda: gpu_usage_report._list_containers(engine_queries.Docker()).reason,  # gpu_container_info
        lambda: engines_on_host.ProofEngines(lambda argv: (127, "", "")).obstacle("docker"),  # the proof
    ],
)
def test_podman_on_dockers_socket_is_refused_with_the_reason(podman_answers, reason):
    assert "Podman 5.4.2 answers at unix:///var/run/docker.sock, not Docker" in reason()


def test_the_observation_of_roles_and_verify_has_no_docker(podman_answers):
    answers = {"/version": PODMAN, "/info": INFO}
    host = {
        "packages": {},
        "services": {"docker.service": {"active_state": "active"}},
        "os": {"package_manager": "apt"},
    }
    assert observe_engines.engines(host, lambda _path, request: answers[request])["docker"]["info"] is None
    answers["/version"] = DOCKER
    assert observe_engines.engines(host, lambda _path, request: answers[request])["docker"]["info"] is not None
