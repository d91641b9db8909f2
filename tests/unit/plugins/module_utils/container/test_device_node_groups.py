# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The groups that the user of a container needs to open the device nodes of its GPUs."""

from __future__ import annotations

import os
import platform
from types import SimpleNamespace

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import device_node_groups
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import (
    avoided_recreation,
    existing_container,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Image
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import Engine, podman
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.container.test_planner import Case, given_gpu

NODES = ["/dev/nvidiactl", "/dev/nvidia2"]


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    found = Case(tmp_path)
    for node in (found.root / "dev").iterdir():
        node.chmod(0o666)
    return found


def close(root, mode, *paths):
    """Set the mode of nodes. Return their group."""
    for path in paths:
        os.chmod(root / path.lstrip("/"), mode)
    return os.stat(root / paths[0].lstrip("/")).st_gid


@pytest.mark.parametrize(
    ("mode", "user", "is_mapped", "words"),
    [
        (0o666, "1000", False, None),
        (0o660, "1000", False, "user 1000 can open the device nodes only through their groups, which are added"),
        (0o660, "app:app", False, "owns /dev/nvidia2"),
        (0o660, "0", False, None),
        (0o660, "root:1000", False, None),
        (0o660, "", False, None),
        (0o660, "1000", True, "keep-groups"),
        (0o600, "1000", False, "only its owner can. Open it, or run the container as root."),
    ],
)
def test_the_group_of_a_closed_node_is_added(case, mode, user, is_mapped, words):
    gid = close(case.root, mode, "/dev/nvidia2")
    found = device_node_groups.needed(str(case.root), NODES, user, "Open it", is_mapped=is_mapped)
    is_added = mode == 0o660 and words is not None and not is_mapped
    assert found.gids == ((gid,) if is_added else ())
    assert (words in found.warnings[0]) if words else found.warnings == ()


def warned(plan):
    return [text for text in plan["gpu_assignment"]["warnings"] if "device nodes" in text]


@pytest.mark.parametrize("isolation", ["volume", "runtime"])
def test_docker_gets_the_group_and_says_so(case, isolation):
    gid = close(case.root, 0o660, "/dev/nvidia2")
    if isolation == "runtime":
        case.docker._state = case.docker.state().__class__(
            **{**case.docker.state().__dict__, "runtimes": {"nvidia": "/usr/bin/nvidia-container-runtime"}}
        )
        case.file("/usr/bin/nvidia-container-runtime")
    plan = case.plan(gpus=[1], user="1000", isolation=isolation)
    assert plan["module_args"]["groups"] == [str(gid)]
    assert warned(plan)
    assert "groups" not in case.plan(gpus=[1], isolation=isolation)["module_args"]


def test_the_user_of_the_image_counts_too(case):
    gid = close(case.root, 0o660, "/dev/nvidia2")
    case.docker.images["image"] = Image("sha256:1", user="app")
    assert case.plan(gpus=[1])["module_args"]["groups"] == [str(gid)]
    assert "groups" not in case.plan(gpus=[1], user="root")["module_args"]


def test_podman_gets_the_group_under_its_own_name(case):
    gid = close(case.root, 0o660, "/dev/nvidia2")
    case.podman = Engine(podman(), volumes=case.docker.volumes)
    plan = case.plan(gpus=[1], user="1000", engine="podman", engine_options={"group_add": ["video"]})
    assert plan["module_args"]["group_add"] == ["video", str(gid)]


def test_a_container_that_has_no_such_group_is_not_recreated_for_it(case):
    close(case.root, 0o660, "/dev/nvidia2")
    case.has(given_gpu(1))
    plan = case.plan(gpus=[1], user="1000")
    assert plan["gpu_assignment"]["changes"] == []
    # Docker's module ignores the difference, and a container that it recreates for another reason gets the group.
    assert plan["module_args"]["comparisons"] == {"groups": "ignore"}
    assert plan["module_args"]["groups"]


@pytest.mark.parametrize(
    ("inspected", "expected"),
    [
        ({"HostConfig": {"GroupAdd": [], "Annotations": {"run.oci.keep_original_groups": "1"}}}, ["keep-groups"]),
        ({"Config": {"Annotations": {"run.oci.keep_original_groups": "1"}}, "HostConfig": {}}, ["keep-groups"]),
        # A container without groups perhaps opens its nodes in another way, and is not recreated for them.
        ({"HostConfig": {"GroupAdd": [], "Annotations": None}}, None),
        ({"HostConfig": {"Annotations": {"run.oci.keep_original_groups": "0"}}}, None),
    ],
)
def test_a_container_with_the_groups_of_its_user_keeps_them(inspected, expected):
    container = existing_container.ExistingContainer(inspected, SimpleNamespace(name="podman"), None, {})
    access = Access(groups=("keep-groups",))
    options = avoided_recreation.keep_groups(container, {"name": "ct", "group_add": ["keep-groups"]}, access)
    assert options.get("group_add") == expected
