# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import mount_users as host_processes

HOST = """22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 254:2 / /var rw,relatime shared:2 - ext4 /dev/vda2 rw
24 22 0:20 / /proc rw - proc proc rw
25 23 0:30 / /var/spare\\040room rw - tmpfs tmpfs rw
"""


@pytest.fixture
def process(tmp_path):
    def make(pid, namespace, mounts, name="python3"):
        directory = tmp_path / "proc" / str(pid)
        (directory / "ns").mkdir(parents=True)
        (directory / "ns/mnt").symlink_to(f"mnt:[{namespace}]")
        (directory / "mountinfo").write_text(mounts)
        (directory / "comm").write_text(name + "\n")

    make(1, 1, HOST, "systemd")
    os.symlink("1", tmp_path / "proc/self")
    return make


DIRECTORY = "/var/lib/gpufleet/volumes/nvidia_driver/580.95.05"
INSIDE = "/lib/gpufleet/volumes/nvidia_driver/580.95.05"


def line(root, device="254:2"):
    return f"90 80 {device} {root} /usr/local/nvidia ro,relatime - ext4 /dev/vda2 rw\n"


def users(root, directory=DIRECTORY):
    return [str(user) for user in host_processes.mount_users(directory, str(root))]


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        (line(INSIDE), ["process 40 (trainer)"]),
        (line(INSIDE + "/lib64"), ["process 40 (trainer)"]),
        (line(INSIDE + ".1"), []),
        (line("/lib/gpufleet"), []),
        (line(INSIDE, "254:1"), []),
        (line(INSIDE + "//deleted"), ["process 40 (trainer)"]),
        ("", []),
    ],
)
def test_mounts_of_the_directory_or_of_a_part_of_it_are_found(tmp_path, process, mounts, expected):
    process(40, 2, HOST + mounts, "trainer")
    assert users(tmp_path) == expected


def test_only_one_process_of_each_container_is_listed(tmp_path, process):
    for pid, namespace in ((40, 2), (41, 2), (50, 3)):
        process(pid, namespace, line(INSIDE))
    assert users(tmp_path) == ["process 40 (python3)", "process 50 (python3)"]


def test_a_process_that_ends_during_the_search_is_skipped(tmp_path, process):
    process(40, 2, line(INSIDE))
    (tmp_path / "proc/39").mkdir()
    (tmp_path / "proc/irq").mkdir()
    assert users(tmp_path) == ["process 40 (python3)"]


def test_paths_with_spaces_are_decoded(tmp_path, process):
    process(40, 2, line("/v/580.95.05", "0:30"))
    assert users(tmp_path, "/var/spare room/v/580.95.05") == ["process 40 (python3)"]


OUTER, IDENTIFIER = "0" * 64, "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"0::/system.slice/docker-{IDENTIFIER}.scope", IDENTIFIER),
        (f"12:memory:/docker/{IDENTIFIER}\n1:name=systemd:/docker/{IDENTIFIER}", IDENTIFIER),
        (f"0::/machine.slice/libpod-{IDENTIFIER}.scope/container", IDENTIFIER),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{IDENTIFIER}.scope", IDENTIFIER),
        # The host is a container.
        (f"0::/docker/{OUTER}/system.slice/docker-{IDENTIFIER}.scope", IDENTIFIER),
        (f"0::/docker/{OUTER}/system.slice/ssh.service", None),
        ("0::/system.slice/ssh.service", None),
        (f"0::/machine.slice/libpod-conmon-{IDENTIFIER}x", None),
    ],
)
def test_the_cgroup_names_the_container_of_a_process(tmp_path, process, cgroup, container):
    process(40, 2, line(INSIDE))
    (tmp_path / "proc/1/cgroup").write_text(f"0::/docker/{OUTER}/init.scope\n")
    (tmp_path / "proc/40/cgroup").write_text(cgroup + "\n")
    (user,) = host_processes.mount_users(DIRECTORY, str(tmp_path))
    assert user.container == container
    assert str(user) == "process 40 (python3)" + (" of container 0123456789ab" if container else "")
