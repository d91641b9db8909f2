# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import lxc_guest
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

DOCKER_ID = "4f1c9ab3e2d0" * 5


@pytest.mark.parametrize(
    ("environment", "file", "groups", "expected"),
    [
        # LXC, LXD and Incus
        ("container=lxc", "lxc", "0::/init.scope\n", True),
        ("TERM=linux\0container=lxc\0container_ttys=", None, "0::/\n", True),
        (None, "lxc\n", "0::/init.scope\n", True),
        # Without rights for the environment, and with the groups of the node
        (None, None, "0::/lxc/gpu1/init.scope\n", True),
        (None, None, "12:devices:/lxc.payload.gpu1/init.scope\n0::/lxc.payload.gpu1/init.scope\n", True),
        (None, None, "0::/lxc.payload/gpu1/init.scope\n", True),
        # Machines
        (None, None, "0::/init.scope\n", False),
        ("TERM=linux", None, "0::/\n", False),
        (None, None, "0::/system.slice/lxcfs.service\n", False),
        # Other containers, also in a guest
        ("container=docker", "docker", "0::/\n", False),
        ("container=podman", "podman", "0::/\n", False),
        ("container=systemd-nspawn", None, "0::/\n", False),
        ("container=", "oci", "0::/\n", False),
        ("my_container=lxc", None, "0::/\n", False),
        (None, None, f"0::/lxc.payload.ci/docker/{DOCKER_ID}\n", False),
        (None, None, f"0::/lxc/ci/system.slice/docker-{DOCKER_ID}.scope/init.scope\n", False),
        (None, None, f"0::/docker/{DOCKER_ID}\n", False),
    ],
)
def test_only_lxc_lxd_and_incus_guests_are_recognized(tmp_path, environment, file, groups, expected):
    tree = Tree(tmp_path, "6.1.0-47-amd64")
    tree.file("proc/1/cgroup", groups)
    if environment is not None:
        tree.file("proc/1/environ", f"{environment}\0")
    if file is not None:
        tree.file("run/systemd/container", file)
    assert lxc_guest.is_guest(tree.root) is expected
