# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers in the process table."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import process_table
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import (
    ALICE,
    ALL_CAPABILITIES,
    ProcessTree,
    identifier,
    numbers,
)

POD = "0f3c1d52-9c1e-4a57-8f0e-0c1de6a1b2c3"
POD_SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice"


@pytest.fixture
def tree(tmp_path):
    return ProcessTree(tmp_path)


def read(tree, *pids):
    return process_table.read(str(tree.root), pids, numbers)


@pytest.mark.parametrize(
    ("cgroup", "engine", "pod"),
    [
        (f"/system.slice/docker-{identifier(40)}.scope", "docker", ""),
        (f"/docker/{identifier(40)}", "docker", ""),
        (f"/machine.slice/libpod-{identifier(40)}.scope/container", "podman", ""),
        (f"/machine.slice/machine-libpod_pod_{identifier(7)}.slice/libpod-{identifier(40)}.scope", "podman", ""),
        (f"{POD_SYSTEMD}/cri-containerd-{identifier(40)}.scope", "kubernetes", POD),
        (f"{POD_SYSTEMD}/crio-{identifier(40)}.scope", "kubernetes", POD),
        (f"/kubepods/besteffort/pod{POD}/{identifier(40)}", "kubernetes", POD),
        (f"/kubepods/pod{'ab' * 16}/{identifier(40)}", "kubernetes", "ab" * 16),  # a static pod
        (f"/default/{identifier(40)}", "containerd", ""),
    ],
)
def test_containers_are_found_by_their_cgroups(tree, cgroup, engine, pod):
    tree.container(40, "nvidia2", cgroup=cgroup)
    (found,) = read(tree).containers
    assert (found.engine, found.pod, found.identifiers, found.minors) == (engine, pod, (identifier(40),), {2})
    assert read(tree).pods == ({pod} if pod else set())


@pytest.mark.parametrize("in_cgroup", [True, False])
def test_rootless_podman_is_found_with_name_and_user(tree, in_cgroup):
    tree.rootless_podman(40, "nvidia0", "nvidia3", name="notebook", in_cgroup=in_cgroup)
    table = read(tree)
    (found,) = [container for container in table.containers if container.minors]
    assert (found.engine, found.name, found.user) == ("podman", "notebook", str(ALICE))
    assert (found.identifiers, found.minors, found.privileged) == ((identifier(40),), {0, 3}, False)
    assert table.rootless_users == {str(ALICE)}


def test_rootless_docker_and_a_remapped_docker_of_root_are_distinguished(tree):
    group = f"/user.slice/user-{ALICE}.slice/user@{ALICE}.service/docker.slice/docker-{identifier(50)}.scope"
    tree.container(50, "nvidia1", cgroup=group, user=165536, uid_map="0 1000 1\n1 100000 65536")
    tree.container(60, "nvidia1", user=165536, uid_map="0 165536 65536")
    assert [(found.engine, found.user) for found in read(tree).containers] == [("docker", str(ALICE)), ("docker", "")]


def test_every_process_of_a_container_belongs_to_it(tree):
    tree.container(40, "nvidia1")
    tree.process(41, "worker", cgroup=f"/system.slice/docker-{identifier(40)}.scope", mounts="mnt:[40]")
    tree.process(70, "trainer", user=ALICE)
    table = read(tree, 41, 70, 99)
    assert {pid: (one.command, one.user) for pid, one in table.processes.items()} == {
        41: ("worker", "root"),
        70: ("trainer", str(ALICE)),
    }
    assert table.processes[41].container.identifiers == (identifier(40),)
    assert table.processes[70].container is None


def test_a_container_without_a_container_id_in_its_cgroup_is_found_by_its_monitor(tree):
    words = ("/usr/bin/containerd-shim-runc-v2", "-namespace", "moby", "-id", identifier(9), "-address", "/run/x.sock")
    tree.process(8, "containerd-shim", words=words)
    tree.container(9, "nvidia1", cgroup="/", parent=8)
    tree.process(10, "bash", cgroup="/", parent=9, mounts="mnt:[9]")
    (found,) = read(tree).containers
    assert (found.engine, found.identifiers) == ("docker", (identifier(9),))


def test_services_and_sandboxes_are_not_containers(tree):
    tree.container(40, "nvidia1", cgroup="/system.slice/systemd-resolved.service")
    tree.container(41, "nvidia1", cgroup="/user.slice/user-1000.slice/session-1.scope", command="bwrap")
    assert read(tree, 40).containers == ()
    assert read(tree, 40).processes[40].container is None


def test_lxc_containers_are_found_by_name(tree):
    tree.container(40, "nvidia1", cgroup="/lxc.payload.build/system.slice/x.service")
    (found,) = read(tree).containers
    assert (found.engine, found.name, found.minors) == ("lxc", "build", {1})


def test_the_hosts_dev_in_a_container_says_nothing(tree):
    tree.container(40, "nvidia1", dev="0:5")
    assert [found.minors for found in read(tree).containers] == [frozenset()]


def test_privileged_containers_are_marked(tree):
    tree.container(40, "nvidia1", capabilities=ALL_CAPABILITIES)
    assert [found.privileged for found in read(tree).containers] == [True]


def test_capability_nodes_are_read(tree):
    tree.container(40, "nvidia1", "nvidia-caps/nvidia-cap21", "nvidia-caps/nvidia-cap22", "nvidia-modeset")
    (found,) = read(tree).containers
    assert (found.minors, found.capability_minors) == ({1}, {21, 22})


def test_a_link_in_a_container_does_not_lead_to_the_host(tree, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/nvidia7").write_text("")
    tree.container(40, "nvidia1")
    os.symlink(tmp_path / "elsewhere", tmp_path / "proc/40/root/dev/nvidia-caps")
    assert [found.minors for found in read(tree).containers] == [{1}]


def test_the_container_in_which_the_host_runs_is_not_one_of_its_containers(tmp_path):
    tree = ProcessTree(tmp_path)
    outer = f"/docker/{identifier(5)}"
    tree.write("proc/1/cgroup", f"0::{outer}/init.scope\n")
    tree.container(40, "nvidia1", cgroup=f"{outer}/system.slice/sshd.service")
    tree.container(50, "nvidia2", cgroup=f"{outer}/system.slice/docker-{identifier(50)}.scope")
    assert [found.identifiers for found in read(tree).containers] == [(identifier(50),)]


def test_only_real_devices_have_numbers(tmp_path):
    (tmp_path / "nvidia0").write_text("")
    os.symlink("/dev/null", tmp_path / "link")
    assert process_table.device_numbers("/dev/null") == (1, 3)
    assert [process_table.device_numbers(str(tmp_path / name)) for name in ("nvidia0", "link", "none")] == [None] * 3
