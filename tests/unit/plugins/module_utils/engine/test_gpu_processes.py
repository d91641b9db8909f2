# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers in the process table."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import nvidia_gpu_holders
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import (
    ALICE,
    ALL_CAPABILITIES,
    CAPABILITIES_MAJOR,
    ProcessTree,
    identifier,
    numbers,
)

POD = "0f3c1d52-9c1e-4a57-8f0e-0c1de6a1b2c3"
POD_SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice"


@pytest.fixture
def tree(tmp_path):
    return ProcessTree(tmp_path)


def minors(container):
    """Return the minor numbers of the GPUs in the /dev of a container."""
    return {minor for major, minor in container.devices if major == 195 and minor not in (254, 255)}


def read(tree, *pids):
    return gpu_processes.read(str(tree.root), pids, numbers)


ID = identifier(40)
# The names that engines give to the cgroup of a container, with its engine and its pod.
CGROUPS = [
    (f"/system.slice/docker-{ID}.scope", "docker", ""),
    (f"/docker/{ID}", "docker", ""),
    (f"/docker/{ID}/init.scope", "docker", ""),  # systemd in the container
    (f"/training.slice/docker-{ID}.scope", "docker", ""),  # cgroup_parent
    (f"/training/{ID}", "containerd", ""),  # cgroup_parent with the cgroupfs driver
    (f"/machine.slice/libpod-{ID}.scope/container", "podman", ""),
    (f"/machine.slice/libpod-{ID}.scope", "podman", ""),
    (f"/libpod_parent/libpod-{ID}", "podman", ""),  # the cgroupfs driver
    (f"/system.slice/trainer.service/libpod-payload-{ID}", "podman", ""),  # a Quadlet with cgroups=split
    (f"/machine.slice/machine-libpod_pod_{identifier(7)}.slice/libpod-{ID}.scope", "podman", ""),
    (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container", "podman", ""),
    (f"/user.slice/user-1000.slice/user@1000.service/app.slice/docker-{ID}.scope", "docker", ""),
    (f"{POD_SYSTEMD}/cri-containerd-{ID}.scope", "kubernetes", POD),
    (f"{POD_SYSTEMD}/crio-{ID}.scope", "kubernetes", POD),
    (f"{POD_SYSTEMD}/crio-{ID}.scope/container", "kubernetes", POD),
    (f"{POD_SYSTEMD}/docker-{ID}.scope", "kubernetes", POD),  # cri-dockerd
    (f"/kubepods/besteffort/pod{POD}/{ID}", "kubernetes", POD),
    (f"/kubepods/besteffort/pod{POD}/crio-{ID}", "kubernetes", POD),
    (f"/kubepods/pod{'ab' * 16}/{ID}", "kubernetes", "ab" * 16),  # a static pod
    (f"/kubepods.slice/kubepods-pod{'ab' * 16}.slice/cri-containerd-{ID}.scope", "kubernetes", "ab" * 16),
    (f"/k3s/kubepods/burstable/pod{POD}/{ID}", "kubernetes", POD),  # k3s --rootless and --cgroup-root
    (f"/kubelet.slice/kubelet{POD_SYSTEMD[1:].replace('/', '/kubelet-')}/cri-containerd-{ID}.scope", "kubernetes", POD),
    # Each cgroup of containerd's unit with the cgroupfs driver: moby/moby and containerd/cri in cgroup v1.
    (f"/system.slice/containerd.service/kubepods-besteffort-pod{POD.replace('-', '_')}.slice:cri-containerd:{ID}",
     "kubernetes", POD),
    (f"/default/{ID}", "containerd", ""),
    (f"/system.slice/nerdctl-{ID}.scope", "containerd", ""),
]  # fmt: skip


@pytest.mark.parametrize(("cgroup", "engine", "pod"), CGROUPS)
def test_containers_are_found_by_their_cgroups(tree, cgroup, engine, pod):
    tree.container(40, "nvidia2", cgroup=cgroup)
    (found,) = read(tree).containers
    assert (found.engine, found.pod, found.identifiers, minors(found)) == (engine, pod, (identifier(40),), {2})
    assert read(tree).pods == ({pod} if pod else set())


@pytest.mark.parametrize("cgroup", [cgroup for cgroup, _engine, _pod in CGROUPS])
def test_an_idle_container_with_a_gpu_prevents_a_reload_of_the_driver(tree, cgroup):
    tree.container(40, "nvidia2", cgroup=cgroup, command="pause")
    (holder,) = nvidia_gpu_holders.holders(str(tree.root))
    assert holder == {
        "pid": 40,
        "command": "pause",
        "devices": ["/dev/nvidia2"],
        "open": False,
        "container": identifier(40)[:12],
    }


@pytest.mark.parametrize(
    "cgroup", ["/lxc.payload.101", "/lxc.payload.101/init.scope", "/lxc/101/ns/init.scope", "/lxc/101"]
)
def test_a_container_of_lxc_is_found_by_its_name(tree, cgroup):
    tree.container(40, "nvidia2", cgroup=cgroup)
    (found,) = read(tree).containers
    assert (found.engine, found.name, found.identifiers, minors(found)) == ("lxc", "101", (), {2})
    assert [holder["container"] for holder in nvidia_gpu_holders.holders(str(tree.root))] == ["101"]


def test_a_service_in_a_guest_of_lxc_is_no_container(tree):
    tree.write("proc/1/cgroup", "0::/lxc/101/ns/init.scope\n")
    tree.container(40, "nvidia2", cgroup="/lxc/101/ns/system.slice/cron.service")
    tree.container(50, "nvidia3", cgroup=f"/lxc/101/ns/system.slice/docker-{identifier(50)}.scope")
    assert [found.identifiers for found in read(tree).containers] == [(identifier(50),)]
    assert [holder["pid"] for holder in nvidia_gpu_holders.holders(str(tree.root))] == [50]


def test_a_container_without_its_id_in_the_cgroup_is_found_by_its_shim(tree):
    words = ("/usr/bin/containerd-shim-runc-v2", "-namespace", "default", "-id", "trainer")
    tree.process(39, "containerd-shim", words=words)
    tree.container(40, "nvidia2", cgroup="/default/trainer", parent=39)
    assert [holder["container"] for holder in nvidia_gpu_holders.holders(str(tree.root))] == ["trainer"]


def test_the_monitor_of_a_rootless_container_does_not_use_the_gpus_of_the_host(tree):
    tree.rootless_podman(40, name="shell")
    for pid in (1, 41):
        tree.write(f"proc/{pid}/root/dev/nvidia0")
    assert nvidia_gpu_holders.holders(str(tree.root)) == []


@pytest.mark.parametrize("in_cgroup", [True, False])
def test_rootless_podman_is_found_with_name_and_user(tree, in_cgroup):
    tree.rootless_podman(40, "nvidia0", "nvidia3", name="notebook", in_cgroup=in_cgroup)
    table = read(tree)
    (found,) = [container for container in table.containers if minors(container)]
    assert (found.engine, found.name, found.user) == ("podman", "notebook", str(ALICE))
    assert (found.identifiers, minors(found), found.privileged) == ((identifier(40),), {0, 3}, False)
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
    assert (found.engine, found.name, minors(found)) == ("lxc", "build", {1})


def test_the_hosts_dev_in_a_container_says_nothing(tree):
    tree.container(40, "nvidia1", dev="0:5")
    assert [found.devices for found in read(tree).containers] == [frozenset()]


def test_privileged_containers_are_marked(tree):
    tree.container(40, "nvidia1", capabilities=ALL_CAPABILITIES)
    assert [found.privileged for found in read(tree).containers] == [True]


def test_capability_nodes_are_read(tree):
    tree.container(40, "nvidia1", "nvidia-caps/nvidia-cap21", "nvidia-caps/nvidia-cap22", "nvidia-modeset")
    (found,) = read(tree).containers
    assert (minors(found), {(CAPABILITIES_MAJOR, 21), (CAPABILITIES_MAJOR, 22)} <= found.devices) == ({1}, True)


def test_a_link_in_a_container_does_not_lead_to_the_host(tree, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/nvidia7").write_text("")
    tree.container(40, "nvidia1")
    os.symlink(tmp_path / "elsewhere", tmp_path / "proc/40/root/dev/nvidia-caps")
    assert [minors(found) for found in read(tree).containers] == [{1}]


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
    assert gpu_processes.device_numbers("/dev/null") == (1, 3)
    assert [gpu_processes.device_numbers(str(tmp_path / name)) for name in ("nvidia0", "link", "none")] == [None] * 3
