# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.running_containers import read

HOST, NESTED = "pid:[4026531836]", "pid:[4026532999]"
SHIM = "/usr/bin/containerd-shim-runc-v2 -namespace {} -id 5f3a -address /run/containerd/containerd.sock"
PODMAN = "/usr/bin/conmon --api-version 1 -c 5f3a -r /usr/bin/crun --exit-command /usr/bin/podman --exit-command-arg x"
SNAP = (
    "/snap/docker/3377/bin/containerd-shim-runc-v2 -namespace moby -id 5f3a "
    "-address /run/snap.docker/containerd/containerd.sock"
)
K3S = (
    "/var/lib/rancher/k3s/data/x/bin/containerd-shim-runc-v2 -namespace k8s.io -id 5f3a "
    "-address /run/k3s/containerd/containerd.sock"
)
MANAGED = "/usr/bin/containerd-shim-runc-v2 -namespace moby -id 5 -address /var/run/docker/containerd/containerd.sock"
CRIO = "/usr/libexec/crio/conmon -b /run/containers -c 5f3a --exit-dir /var/run/crio/exits"


def proc(root: Path, *commands: tuple[str, str]) -> str:
    """Write processes of root with their command and PID namespace."""
    (root / "proc/self/ns").mkdir(parents=True)
    os.symlink(HOST, root / "proc/self/ns/pid")
    for number, (command, namespace) in enumerate(commands, start=100):
        (root / f"proc/{number}/ns").mkdir(parents=True)
        (root / f"proc/{number}/cmdline").write_text("\0".join([*command.split(), ""]))
        os.symlink(namespace, root / f"proc/{number}/ns/pid")
    (root / "proc/99").mkdir()
    return str(root)


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        (SHIM.format("moby"), "docker"),
        (SHIM.format("k8s.io"), "kubernetes"),
        (SHIM.format("default"), "containerd"),
        (PODMAN, "podman"),
        (CRIO, "crio"),
        (f"{CRIO} -n podman", "crio"),
        # dockerd can start its own containerd.
        (MANAGED, "docker"),
        # These have their own containerd, so that the packages of Docker and containerd can change.
        (SNAP, "snap"),
        (SNAP.replace("/snap/docker/3377/bin/", ""), "snap"),
        (K3S, "k3s"),
        (K3S.replace("k3s/data", "rke2/data"), "k3s"),
    ],
)
def test_containers_are_counted_by_engine(tmp_path: Path, command: str, engine: str) -> None:
    root = proc(tmp_path, (command, HOST), (command, HOST), (command, NESTED), ("/usr/bin/sleep 9", HOST))
    assert read(root) == {"containers": {engine: 2}, "rootless_docker": []}


def test_daemon_of_a_user_is_rootless(tmp_path: Path) -> None:
    root = proc(tmp_path, ("/usr/bin/dockerd --rootless", HOST), ("/usr/bin/dockerd -H fd://", HOST))
    os.chown(tmp_path / "proc/100", 1000, 1000)
    os.chown(tmp_path / "proc/101", 0, 0)
    assert read(root) == {"containers": {}, "rootless_docker": [1000]}


def test_containers_of_a_rootless_docker_are_not_those_of_the_systems_docker(tmp_path: Path) -> None:
    shim = "/usr/bin/containerd-shim-runc-v2 -namespace moby -id 5f3a -address /run/{}/containerd/containerd.sock"
    root = proc(tmp_path, (shim.format("user/1000/docker"), HOST), (SHIM.format("moby"), HOST), (PODMAN, HOST))
    for pid in (100, 102):
        os.chown(tmp_path / f"proc/{pid}", 1000, 1000)
    os.chown(tmp_path / "proc/101", 0, 0)
    assert read(root)["containers"] == {"docker": 1, "podman": 1, "rootless": 1}


def test_host_without_proc(tmp_path: Path) -> None:
    assert read(str(tmp_path)) == {"containers": {}, "rootless_docker": []}
