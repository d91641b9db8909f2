# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The users that the role adds to group docker."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import read
from ansible_collections.gpufleet.hosts.tests.unit.plugins.engine_samples import PLATFORMS, host, plan

CE = {"docker-ce": "5:28.5.1-1", "docker-ce-cli": "5:28.5.1-1", "containerd.io": "2.1.5"}


def seen(
    packages: dict[str, str],
    members: tuple[str, ...] = (),
    recorded: tuple[str, ...] | None = None,
    key: str = "el-9",
    **group: t.Any,
) -> dict[str, t.Any]:
    """Describe a host with the users alice, bob and carol. Group docker comes with the packages."""
    files = {}
    if recorded is not None:
        files[owned.ENGINE_USERS] = {"exists": True, "content": json.dumps({"users": list(recorded)})}
    known = {
        "exists": bool(packages),
        "members": list(members),
        "primary_members": [],
        "users": dict.fromkeys(("alice", "bob", "carol"), True),
        "socket_group": "docker" if packages else None,
    }
    return host(key, packages, files=files, docker_group={**known, **group})


@pytest.mark.parametrize(
    ("members", "recorded", "requested", "added", "record"),
    [
        ((), None, ["alice", "bob"], ["alice", "bob"], ["alice", "bob"]),
        (("alice",), None, ["alice"], [], []),
        # Others have added carol.
        (("carol",), None, ["alice", "carol"], ["alice"], ["alice"]),
        (("alice",), ("alice",), ["alice", "bob"], ["bob"], ["alice", "bob"]),
        # Somebody has removed alice, whom the role no longer requests.
        ((), ("alice",), ["bob"], ["bob"], ["bob"]),
        # Somebody has removed alice, whom the role still requests.
        ((), ("alice",), ["alice"], ["alice"], ["alice"]),
        ((), None, ["bob", "bob"], ["bob"], ["bob"]),
    ],
)
def test_missing_users_are_added_and_recorded(
    members: tuple[str, ...],
    recorded: tuple[str, ...] | None,
    requested: list[str],
    added: list[str],
    record: list[str],
) -> None:
    done = plan(seen(CE, members, recorded), users=requested)
    assert done.problems == []
    assert (done.users, done.recorded_users) == (added, record)
    texts = [text for text in done.changes if "group docker" in text]
    assert texts == ([f"add {', '.join(added)} to group docker"] if added else [])


def test_only_a_missing_user_makes_a_converged_host_act() -> None:
    ready = {**CE, **dict.fromkeys(plan(seen(CE)).packages, "1")}
    assert not plan(seen(ready, ("alice",), ("alice",)), users=["alice"]).acts
    done = plan(seen(ready, (), ("alice",)), users=["alice"])
    assert (done.acts, done.changes) == (True, ["add alice to group docker"])


def test_bare_host_gets_the_users_after_the_packages() -> None:
    done = plan(seen({}), users=["alice"])
    assert done.problems == []
    assert done.changes[-1] == "add alice to group docker"
    assert any(text.startswith("install ") for text in done.changes[:-1])


def test_user_whose_primary_group_it_is_needs_no_membership() -> None:
    assert plan(seen(CE, primary_members=["alice"]), users=["alice"]).users == []


@pytest.mark.parametrize("packages", [{}, CE], ids=["bare", "installed"])
def test_unknown_users_are_refused_by_name(packages: dict[str, str]) -> None:
    users = {"alice": True, "mallory": False, "trudy": False}
    (problem,) = plan(seen(packages, users=users), users=["alice", "trudy", "mallory", "trudy"]).problems
    assert problem == (
        "container_engine_users contains trudy, mallory, but this host has no such user. Nothing was changed. Create "
        "the user first, or remove the name."
    )


def test_missing_group_of_an_installed_docker_is_refused() -> None:
    (problem,) = plan(seen(CE, exists=False), users=["alice"]).problems
    assert "needs group docker, which /etc/group does not contain. Nothing was changed. Run 'groupadd" in problem


@pytest.mark.parametrize(("group", "is_refused"), [("docker", False), (None, False), ("operators", True), ("0", True)])
def test_socket_of_another_group_is_refused(group: str | None, is_refused: bool) -> None:
    problems = plan(seen(CE, socket_group=group), users=["alice"]).problems
    assert bool(problems) == is_refused
    assert all(f"/run/docker.sock belongs to group {group}. Nothing was changed. Set" in text for text in problems)


def test_old_socket_of_a_stopped_docker_does_not_matter() -> None:
    stopped = seen(CE, socket_group="operators")
    stopped["services"]["docker.service"] = {**stopped["services"]["docker.service"], "active_state": "inactive"}
    assert plan(stopped, users=["alice"]).problems == []


def test_users_that_are_no_longer_requested_stay_and_are_named() -> None:
    done = plan(seen(CE, ("alice", "bob", "carol"), ("alice", "bob")), users=["alice"])
    assert done.users == []
    assert "bob stay in group docker, to which this role added them" in done.reason
    without = plan(seen(CE, ("alice",), ("alice", "bob")), users=[])
    assert "alice stay in group docker" in without.reason
    assert "bob" not in without.reason


@pytest.mark.parametrize(
    ("name", "packages", "words"),
    [
        ("podman", {"podman": "5.4.0"}, "container_engine_users is ignored: Podman has no daemon and needs no group"),
        ("containerd", {"containerd.io": "2.1.5"}, "container_engine_users is ignored: containerd has no group"),
    ],
)
def test_other_engines_need_no_group_and_say_so(name: str, packages: dict[str, str], words: str) -> None:
    done = plan(seen(packages), name=name, users=["alice"])
    assert (done.problems, done.users) == ([], [])
    assert words in done.reason


def test_users_without_an_engine_are_refused() -> None:
    (problem,) = plan(seen({}), name="none", users=["alice"]).problems
    assert problem.startswith("container_engine_name is none, but container_engine_users contains users. Remove")


@pytest.mark.parametrize("name", ["", "a b", "-a", "--root=/x", "a:b", "a,b\nc"])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(VariableError, match="container_engine_users contains"):
        read({"users": [name]})


@pytest.mark.parametrize("name", ["alice", "j.doe", "svc_gpu", "EXAMPLE\\\\jdoe", "jdoe@example.com", "host$"])
def test_names_of_local_and_directory_users_are_accepted(name: str) -> None:
    assert read({"users": [name]}).users == [name]


@pytest.mark.parametrize(
    ("members", "recorded", "users", "changes"),
    [
        (("alice", "carol"), ("alice",), ["alice"], ["remove alice from group docker"]),
        (("carol",), None, [], []),
        # Somebody has removed alice.
        (("carol",), ("alice",), [], ["remove the record of the users in group docker"]),
    ],
)
def test_absent_removes_exactly_the_users_of_the_role(
    members: tuple[str, ...], recorded: tuple[str, ...] | None, users: list[str], changes: list[str]
) -> None:
    done = removal.plan(t.cast("t.Any", seen(CE, members, recorded)), read({"state": "absent"}), PLATFORMS)
    assert (done.problems, done.users, done.changes) == ([], users, changes)
    assert done.acts == bool(changes)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"users": "alice"}', '{"users": [1]}'])
def test_invalid_record_removes_nobody(content: str) -> None:
    here = seen(CE, ("alice",))
    here["files"][owned.ENGINE_USERS] = {"exists": True, "content": content}
    assert removal.plan(t.cast("t.Any", here), read({"state": "absent"}), PLATFORMS).users == []
