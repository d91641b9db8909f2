# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import docker_group

PASSWD = """\
root:x:0:0:root:/root:/bin/bash
alice:x:1000:1000::/home/alice:/bin/bash
robot:x:998:991::/:/sbin/nologin
broken line
"""


def read(root: Path, group: str | None, users: tuple[str, ...] = (), found: tuple[str, ...] = ()) -> t.Any:
    """Return the observation, and the users that were looked up outside the files."""
    asked: list[str] = []

    def find_user(name: str) -> bool:
        asked.append(name)
        return name in found

    (root / "etc").mkdir()
    (root / "etc/passwd").write_text(PASSWD)
    if group is not None:
        (root / "etc/group").write_text(f"root:x:0:\n{group}")
    return docker_group.read(str(root), users, find_user), asked


def test_members_and_users_with_the_primary_group_are_read(tmp_path: Path) -> None:
    seen, _asked = read(tmp_path, "docker:x:991:alice,carol\ndockers:x:992:mallory\n")
    assert seen["exists"]
    assert (seen["members"], seen["primary_members"]) == (["alice", "carol"], ["robot"])


def test_empty_group_has_no_members(tmp_path: Path) -> None:
    seen, _asked = read(tmp_path, "docker:x:5:\n")
    assert (seen["exists"], seen["members"], seen["primary_members"]) == (True, [], [])


def test_host_without_the_group(tmp_path: Path) -> None:
    seen, _asked = read(tmp_path, None)
    assert (seen["exists"], seen["members"], seen["primary_members"]) == (False, [], [])


def test_only_users_of_no_file_are_looked_up_elsewhere(tmp_path: Path) -> None:
    users = ("alice", "carol", "dave", "erin")
    seen, asked = read(tmp_path, "docker:x:991:carol\n", users, found=("dave",))
    assert seen["users"] == {"alice": True, "carol": True, "dave": True, "erin": False}
    assert asked == ["dave", "erin"]


def test_socket_without_a_named_group_has_a_number(tmp_path: Path) -> None:
    assert read(tmp_path, "docker:x:4294000:\n")[0]["socket_group"] is None
    socket = tmp_path / "run/docker.sock"
    socket.parent.mkdir()
    socket.touch()
    number = socket.stat().st_gid
    (tmp_path / "etc/group").write_text("docker:x:4294000:\n")
    assert docker_group.read(str(tmp_path), ())["socket_group"] == str(number)
    (tmp_path / "etc/group").write_text(f"operators:x:{number}:\n")
    assert docker_group.read(str(tmp_path), ())["socket_group"] == "operators"
