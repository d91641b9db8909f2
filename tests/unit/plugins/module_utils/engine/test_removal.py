# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import EMPTY_RECORD
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.plan import RECORD_FILE
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.removal import EngineRemoval
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import read
from ansible_collections.gpufleet.hosts.tests.unit.plugins.engine_samples import PLATFORMS, host, recorded

CE = {"docker-ce": "5:28.5.1-1", "docker-ce-cli": "5:28.5.1-1", "containerd.io": "2.1.5"}
REST = "remove the dependencies, repositories and holds that this role recorded"
OPTIONS = "remove the options of this role from /etc/docker/daemon.json"


def absent(seen: dict[str, t.Any], name: str = "docker") -> EngineRemoval:
    return removal.plan(t.cast("t.Any", seen), read({"state": "absent", "name": name}), PLATFORMS)


def options(manager: str = "container_engine") -> dict[str, t.Any]:
    state = record.State(EMPTY_RECORD)
    done = daemon_plan.plan(
        None, state, manager, {"mtu": 9000}, present=True, lists="union", flags=[], path=DEFAULT_PATH
    )
    return {RECORD_FILE: {"exists": True, "content": record.dump_state(done.state)}}


@pytest.mark.parametrize(
    ("key", "packages", "files", "expected"),
    [
        ("debian-12", {}, {}, []),
        ("debian-12", {"docker.io": "20"}, {}, []),
        (
            "debian-12",
            {"docker.io": "20"},
            {**recorded("docker.io"), **options()},
            [OPTIONS, "stop and disable docker.service", "remove docker.io", REST],
        ),
        (
            "el-9",
            CE,
            recorded(*CE),
            ["stop and disable docker.service", "remove containerd.io, docker-ce, docker-ce-cli", REST],
        ),
        # The dependency stays if another package needs it.
        (
            "debian-12",
            {"docker.io": "20", "containerd": "1.6"},
            recorded("docker.io", "containerd", requested=["docker.io"]),
            ["stop and disable docker.service", "remove docker.io", REST],
        ),
        # Only the packages that the collection's modules need were installed.
        ("debian-12", {"docker.io": "20", "python3-requests": "2"}, recorded("python3-requests"), [REST]),
        ("debian-12", {"docker.io": "20"}, options(), [OPTIONS]),
        ("debian-12", {"docker.io": "20"}, options("nightly"), []),
        ("debian-12", {"podman": "4.3"}, recorded("podman"), ["remove podman", REST]),
        # Somebody has removed the client since.
        (
            "el-9",
            {"docker-ce": "3:28.5.1-1"},
            recorded("docker-ce", "docker-ce-cli"),
            ["stop and disable docker.service", "remove docker-ce", REST],
        ),
        # An interrupted run counts what was installed since, but not what another record lists.
        (
            "debian-12",
            {"docker.io": "20", "containerd": "1.6"},
            {
                **recorded(requested=["docker.io", "containerd"], asked=["docker.io"], pending=["dpkg"], packages=[]),
                "/var/lib/gpufleet/monitoring.json": recorded("containerd")[owned.ENGINE_RECORD],
            },
            ["stop and disable docker.service", "remove docker.io", REST],
        ),
    ],
)
def test_only_what_the_role_installed_is_removed(
    key: str, packages: dict[str, str], files: dict[str, t.Any], expected: list[str]
) -> None:
    done = absent(host(key, packages, files=files))
    assert (done.problems, done.changes, done.acts) == ([], expected, bool(expected))
    assert done.removes_docker == ("stop and disable docker.service" in expected)


def test_removal_says_what_stays() -> None:
    assert absent(host("debian-12")).reasons == ["this role has not installed anything on this host"]
    done = absent(host("debian-12", {"docker.io": "20"}))
    assert done.reasons == ["docker is kept because this role did not install it"]


@pytest.mark.parametrize(
    ("packages", "more", "words"),
    [
        (
            {"docker.io": "20"},
            {"containers": {"docker": 2}},
            "docker cannot be removed: its containers are running (2)",
        ),
        (CE, {"containers": {"kubernetes": 4}}, "running containers of Kubernetes (4) need it"),
        ({"docker.io": "20", "containerd": "1.6"}, {"containers": {"kubernetes": 4}}, "of Kubernetes (4) need it"),
        (
            {"docker.io": "20"},
            {"containers": {"docker": 2}, "services": {"kubelet.service": {"active_state": "active"}}},
            "docker cannot be removed: its containers are running (2). Nothing was changed. Remove the node from the",
        ),
        (
            {"containerd": "1.6"},
            {"services": {"kubelet.service": {"active_state": "active"}}},
            "Kubernetes uses this host (kubelet.service is active). Nothing was changed. Remove the node from the "
            "cluster first.",
        ),
        ({"docker.io": "20"}, {"containers": {"podman": 2}}, None),
        ({"podman": "4.3"}, {"containers": {"podman": 2}}, "podman cannot be removed: its containers are running (2)"),
        ({"docker.io": "20"}, {"uid": 1000}, "needs root"),
    ],
)
def test_removal_does_not_harm_containers(packages: dict[str, str], more: dict[str, t.Any], words: str | None) -> None:
    done = absent(host("debian-12", packages, files=recorded(*packages), **more))
    assert [words in text for text in done.problems] == ([True] if words else [])
