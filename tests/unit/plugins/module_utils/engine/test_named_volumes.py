# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import named_volumes
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import (
    DockerClient,
    EngineError,
    PodmanClient,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.fake_engines import FakeDocker, FakePodman

NAME = "nvidia_driver_580.95.05"


@pytest.fixture
def docker(tmp_path):
    server = FakeDocker(tmp_path / "docker.sock")
    yield server
    server.close()


@pytest.fixture
def podman():
    return FakePodman()


@pytest.fixture(params=["docker", "podman"])
def engine(request, docker, podman):
    return DockerClient(docker.host) if request.param == "docker" else PodmanClient(podman.run, "/usr/bin/podman")


def test_volume_is_created_and_removed(engine, tmp_path):
    assert engine.unavailable_reason() is None
    assert engine.volume(NAME) is None
    assert engine.volumes("nvidia_driver_") == []
    engine.create(NAME, str(tmp_path))
    found = engine.volume(NAME)
    assert found.is_bound_to(str(tmp_path))
    assert not found.is_bound_to("/srv")
    assert found.text() == f"driver local, device {tmp_path}"
    assert [volume.name for volume in engine.volumes("nvidia_driver_")] == [NAME]
    assert engine.volumes("other") == []
    engine.remove(NAME)
    assert engine.volume(NAME) is None


@pytest.mark.parametrize(
    ("driver", "options"),
    [
        ("nfs", {"type": "none", "o": "bind", "device": "/srv"}),
        ("local", None),
        ("local", {"type": "nfs", "o": "addr=10.0.0.1,rw", "device": ":/srv"}),
        ("local", {"type": "none", "o": "bind", "device": "/elsewhere"}),
    ],
)
def test_different_volume_with_the_same_name_is_recognized(docker, driver, options):
    docker.volumes[NAME] = {"Name": NAME, "Driver": driver, "Options": options}
    assert not DockerClient(docker.host).volume(NAME).is_bound_to("/srv")


def test_symbolic_links_are_followed(docker, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    docker.volumes[NAME] = {
        "Name": NAME,
        "Driver": "local",
        "Options": {"type": "none", "o": "ro,bind", "device": str(tmp_path / "link")},
    }
    assert DockerClient(docker.host).volume(NAME).is_bound_to(str(tmp_path / "real"))


def test_docker_containers_that_use_the_volume_are_listed(docker, tmp_path):
    place = str(tmp_path / "580.95.05")
    docker.containers = [
        {"Id": "a" * 64, "Names": ["/web"], "State": "running", "Mounts": [{"Name": NAME, "Source": "/x/_data"}]},
        {"Id": "b" * 64, "Names": ["/old"], "State": "exited", "Mounts": [{"Source": place + "/lib64"}]},
        {"Id": "c" * 64, "Names": [], "State": "created", "Mounts": [{"Source": place}]},
        {"Id": "d" * 64, "Names": ["/other"], "State": "running", "Mounts": [{"Source": place + ".1"}]},
        {"Id": "e" * 64, "Names": ["/none"], "State": "running", "Mounts": None},
    ]
    assert DockerClient(docker.host).users(NAME, place) == [
        "cccccccccccc (created)",
        "old (exited)",
        "web (running)",
    ]


def test_podman_containers_that_use_the_volume_are_listed(podman):
    podman.containers = [
        {"Id": "a", "Names": ["web"], "State": "running", "Volumes": [NAME]},
        {"Id": "b", "Names": ["both"], "State": "exited", "Volumes": [NAME, "/srv"]},
        {"Id": "c", "Names": ["bind"], "State": "running", "Volumes": ["/srv"]},
        {"Id": "d", "Names": ["other"], "State": "running", "Volumes": ["x"]},
    ]
    found = PodmanClient(podman.run, "podman").users(NAME, "/srv")
    assert found == ["bind (running)", "both (exited)", "web (running)"]


@pytest.mark.parametrize(
    "host",
    ["", "ssh://host", "unix://", "tcp://", "/var/run/docker.sock", "tcp://127.0.0.1:2375a", "tcp://[::1:2375"],
)
def test_invalid_address_is_reported(host):
    with pytest.raises(EngineError, match=re.escape(f"docker_host={host} is not valid")):
        DockerClient(host)


def test_missing_docker_is_reported_with_its_address(tmp_path):
    absence = DockerClient(f"unix://{tmp_path}/none.sock").unavailable_reason()
    assert absence == f"Docker does not answer at unix://{tmp_path}/none.sock: No such file or directory"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((500, {"message": "disk is gone"}), r"rejected GET /volumes/.* with status 500: disk is gone"),
        ((503, b"try later"), "with status 503: try later"),
        ((200, b"{half"), "did not answer GET /volumes/.* with JSON"),
    ],
)
def test_error_contains_the_message_of_docker(docker, answer, words):
    docker.answer = answer
    with pytest.raises(EngineError, match=words):
        DockerClient(docker.host).volume(NAME)


def test_error_contains_the_message_of_podman(podman):
    podman.failure = (125, "", "Error: volume storage is gone\n")
    with pytest.raises(EngineError, match=r"podman volume rm .* failed with status 125: Error: volume storage is gone"):
        PodmanClient(podman.run, "podman").remove(NAME)
    podman.failure = (0, "{half", "")
    with pytest.raises(EngineError, match="podman volume ls --format json did not print JSON"):
        PodmanClient(podman.run, "podman").volume(NAME)


@pytest.mark.parametrize(
    ("names", "there", "expected"),
    [
        (["auto"], {"docker", "podman"}, ["docker", "podman"]),
        (["auto"], {"docker"}, ["docker"]),
        (["auto"], {"podman"}, ["podman"]),
        (["docker"], {"docker", "podman"}, ["docker"]),
        (["podman", "docker"], {"docker", "podman"}, ["docker", "podman"]),
        (["auto", "podman"], {"docker", "podman"}, ["docker", "podman"]),
        (["none"], {"docker", "podman"}, []),
        (["none"], set(), []),
    ],
)
def test_requested_engines_are_selected(docker, podman, names, there, expected):
    engines = named_volumes.chosen(
        names,
        DockerClient(docker.host if "docker" in there else "unix:///none.sock"),
        PodmanClient(podman.run, "/usr/bin/podman" if "podman" in there else None),
    )
    assert [engine.name for engine in engines] == expected


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["auto"], ["engine=auto", "no container engine", "none.sock", "podman is not in PATH", "engine=none"]),
        (["docker"], ["engine=docker", "none.sock", "Install and start docker", "engine=none"]),
        (["podman"], ["engine=podman", "podman is not in PATH", "engine=none"]),
        (["none", "docker"], ["engine=none,docker", "cannot be combined"]),
    ],
)
def test_missing_engine_is_reported(tmp_path, podman, names, words):
    with pytest.raises(EngineError) as error:
        named_volumes.chosen(names, DockerClient(f"unix://{tmp_path}/none.sock"), PodmanClient(podman.run, None))
    for word in words:
        assert word in str(error.value)


def test_engine_that_is_not_needed_may_be_missing(tmp_path, podman):
    docker, nowhere = DockerClient(f"unix://{tmp_path}/none.sock"), PodmanClient(podman.run, None)
    assert named_volumes.chosen(["auto"], docker, nowhere, needed=False) == []
    with pytest.raises(EngineError, match="engine=docker"):
        named_volumes.chosen(["docker"], docker, nowhere, needed=False)


@pytest.mark.parametrize(("host", "socket"), [("unix:///run/d.sock", "/run/d.sock"), ("tcp://10.0.0.1:2375", None)])
def test_socket_of_docker_is_found(host, socket):
    assert DockerClient(host).socket == socket
