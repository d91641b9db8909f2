# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import stopped_engine
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError

NAME = "nvidia_driver_580.95.05"


def sockets(root, *lines):
    """Write the table of sockets: (path, inode, whether it listens)."""
    (root / "proc/net").mkdir(parents=True)
    text = "Num       RefCount Protocol Flags    Type St Inode Path\n"
    for path, inode, waits in lines:
        flags = "00010000" if waits else "00000000"
        text += f"0000000000000000: 00000002 00000000 {flags} 0001 01 {inode} {path}\n".replace(" \n", "\n")
    (root / "proc/net/unix").write_text(text)


def process(root, pid, command, *inodes):
    """Add a process that holds sockets."""
    directory = root / "proc" / str(pid)
    (directory / "fd").mkdir(parents=True)
    (directory / "comm").write_text(command + "\n")
    for number, inode in enumerate(inodes):
        (directory / "fd" / str(number)).symlink_to(f"socket:[{inode}]")


@pytest.mark.parametrize(
    ("table", "processes", "expected"),
    [
        # Only systemd listens, for a service that has not started.
        ([("{}", 7, True)], [("systemd", 7)], True),
        ([("{}", 7, True)], [("systemd", 7), ("sshd", 8)], True),
        # Docker received the socket from systemd, or created it.
        ([("{}", 7, True)], [("systemd", 7), ("dockerd", 7)], False),
        ([("{}", 7, True)], [("dockerd", 7)], False),
        ([("{}", 7, True)], [("systemd", 7), ("podman", 7)], False),
        # No process listens.
        ([("{}", 7, False)], [("systemd", 7)], False),
        ([("/run/other.sock", 7, True), ("", 9, True)], [("systemd", 7)], False),
        # An older socket with the same path exists.
        ([("{}", 6, True), ("{}", 7, True)], [("systemd", 6, 7), ("dockerd", 7)], False),
    ],
)
def test_socket_activation_is_detected(tmp_path, table, processes, expected):
    path = tmp_path / "run/docker.sock"
    sockets(tmp_path, *((name.format(path), inode, waits) for name, inode, waits in table))
    for pid, (command, *inodes) in enumerate(processes, 1):
        process(tmp_path, pid, command, *inodes)
    assert stopped_engine.is_socket_activated(str(path), str(tmp_path)) is expected


def test_symbolic_links_are_followed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to(tmp_path / "run")
    sockets(tmp_path, (tmp_path / "run/docker.sock", 7, True))
    process(tmp_path, 1, "systemd", 7)
    assert stopped_engine.is_socket_activated(f"{tmp_path}/var/run/docker.sock", str(tmp_path))


def test_podman_behind_dockers_socket_is_no_stopped_docker(tmp_path):
    (tmp_path / "docker.sock").symlink_to(tmp_path / "podman.sock")
    sockets(tmp_path, (tmp_path / "podman.sock", 7, True))
    process(tmp_path, 1, "systemd", 7)
    assert not stopped_engine.is_socket_activated(f"{tmp_path}/docker.sock", str(tmp_path))


def test_real_socket_table_is_read(tmp_path):
    path = str(tmp_path / "x.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        assert not stopped_engine.is_socket_activated(path)
        server.listen()
        assert not stopped_engine.is_socket_activated(path)
        held = stopped_engine._listening(path, "/proc")
        assert held
        assert held <= stopped_engine._sockets("/proc/self/fd")


def test_missing_tables_mean_no_activation(tmp_path):
    assert not stopped_engine.is_socket_activated("/run/docker.sock", str(tmp_path))


def docker_data(data, device="/srv/volumes"):
    """Write Docker's files of two volumes and five containers."""
    (data / "volumes" / NAME / "_data").mkdir(parents=True)
    (data / "volumes/plain/_data").mkdir(parents=True)
    (data / "volumes/metadata.db").write_text("")
    options = {"MountType": "none", "MountOpts": "bind,ro", "MountDevice": device, "Quota": {"Size": 0}}
    (data / "volumes" / NAME / "opts.json").write_text(json.dumps(options))
    by_name = {"/usr/local/nvidia": {"Type": "volume", "Name": NAME, "Source": "", "Driver": "local"}}
    by_path = {"/x": {"Type": "bind", "Name": "", "Source": device + "/lib64"}}
    other = {"/x": {"Type": "bind", "Source": device + "2"}}
    for identifier, name, state, mounts in (
        ("a" * 64, "/web", {"Running": True, "StartedAt": "2026-11-21T01:02:03Z"}, by_name),
        ("b" * 64, "/job", {"Running": False, "StartedAt": "2026-11-21T01:02:03Z"}, by_path),
        ("c" * 64, "", {"Running": False, "StartedAt": "0001-01-01T00:00:00Z"}, by_path),
        ("d" * 64, "/far", {"Running": True}, other),
        ("e" * 64, "/none", {"Running": True}, None),
    ):
        (data / "containers" / identifier).mkdir(parents=True)
        kept = {"ID": identifier, "Name": name, "State": state, "MountPoints": mounts}
        (data / "containers" / identifier / "config.v2.json").write_text(json.dumps(kept))
    (data / "containers/half").mkdir()


def written(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


# (data directory of Docker, function that configures it)
PLACES = [
    ("var/lib/docker", lambda root: None),
    ("var/lib/docker/231072.231072", lambda root: None),
    ("var/snap/docker/common/var-lib-docker", lambda root: None),
    ("home/gpu/.local/share/docker", lambda root: None),
    ("data/docker", lambda root: written(root, "etc/docker/daemon.json", '{"data-root": "/data/docker"}')),
    ("data/docker", lambda root: written(root, "etc/docker/daemon.json", '\ufeff{"data-root": "/data/docker"}')),
    ("data/docker", lambda root: written(root, "etc/docker/daemon.json", '{"graph": "/data/docker"}')),
    ("data/docker", lambda root: written(root, "etc/default/docker", 'DOCKER_OPTS="--data-root=/data/docker"\n')),
    (
        "data/docker",
        lambda root: written(
            root,
            "etc/systemd/system/docker.service.d/data.conf",
            "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd -H fd:// --data-root /data/docker --debug\n",
        ),
    ),
]


@pytest.mark.parametrize(("place", "configure"), PLACES)
def test_volumes_and_containers_of_docker_are_read(tmp_path, place, configure):
    configure(tmp_path)
    docker_data(tmp_path / place)
    docker = stopped_engine.docker(str(tmp_path))
    assert docker.name == "docker"
    assert docker.unavailable_reason() is None
    assert docker.volume(NAME).is_bound_to("/srv/volumes")
    assert not docker.volume("plain").is_bound_to("/srv/volumes")
    assert docker.volume("nonesuch") is None
    assert [volume.name for volume in docker.volumes("nvidia_driver_")] == [NAME]
    assert docker.users(NAME, "/srv/volumes") == ["cccccccccccc (created)", "job (exited)", "web (running)"]
    assert docker.users("other", "/srv") == ["cccccccccccc (created)", "far (running)", "job (exited)"]
    assert docker.users("other", "/srv/volumes3") == []


def test_missing_docker_has_no_volumes(tmp_path):
    written(tmp_path, "etc/docker/daemon.json", "{broken")
    docker = stopped_engine.docker(str(tmp_path))
    assert docker.volumes("") == []
    assert docker.users(NAME, "/srv") == []


def test_unreadable_files_are_reported(tmp_path, monkeypatch):
    docker_data(tmp_path / "var/lib/docker")

    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(stopped_engine.os, "listdir", refuse)
    with pytest.raises(EngineError) as error:
        stopped_engine.docker(str(tmp_path))
    for words in (
        "Docker is not running",
        "var/lib/docker/volumes",
        "Permission denied",
        "or start Docker",
    ):
        assert words in str(error.value)


def test_unused_podman_has_no_volumes(tmp_path):
    podman = stopped_engine.podman(str(tmp_path))
    assert podman.name == "podman"
    assert podman.unavailable_reason() is None
    assert podman.volume(NAME) is None
    assert podman.volumes("") == podman.users(NAME, "/srv") == []


def test_used_podman_is_queried(tmp_path):
    Path(stopped_engine.podman_data(str(tmp_path))[0]).mkdir(parents=True)
    assert stopped_engine.podman(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("user", "variable", "place"),
    [
        (0, None, "var/lib/containers/storage"),
        (1000, None, "home/gpu/.local/share/containers/storage"),
        (1000, "/data/gpu", "data/gpu/containers/storage"),
    ],
)
def test_user_determines_storage_of_podman(tmp_path, monkeypatch, user, variable, place):
    monkeypatch.setattr(stopped_engine.os, "geteuid", lambda: user)
    monkeypatch.setenv("HOME", "/home/gpu")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if variable:
        monkeypatch.setenv("XDG_DATA_HOME", variable)
    assert stopped_engine.podman(str(tmp_path)) is not None
    (tmp_path / place).mkdir(parents=True)
    assert stopped_engine.podman(str(tmp_path)) is None


@pytest.mark.parametrize("file", stopped_engine.PODMAN_CONFIGURATION)
def test_configured_storage_of_podman_is_used(tmp_path, monkeypatch, file):
    monkeypatch.setattr(stopped_engine.os, "geteuid", lambda: 0)
    written(tmp_path, file, '[storage]\n# graphroot = "/no"\n  graphroot = "/data/containers"\n')
    assert stopped_engine.podman(str(tmp_path)) is not None
    (tmp_path / "data/containers").mkdir(parents=True)
    assert stopped_engine.podman(str(tmp_path)) is None
