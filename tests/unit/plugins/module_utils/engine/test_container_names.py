# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find containers by name only. Engines and their modules also accept the beginning of an identifier."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Docker, Podman
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.tests.unit.plugins.fake_engines import FakeDocker

DB = ("1" * 64, "db")
BILLING = ("db" + "2" * 62, "billing")
MAIL = ("db" + "3" * 62, "mail")


class Names(FakeDocker):
    """A Docker that resolves names and prefixes of identifiers, as Docker does."""

    def __init__(self, path, *known):
        super().__init__(path)
        self.known = known
        self.containers = [{"Id": identifier, "Names": [f"/{name}", f"/proxy/{name}"]} for identifier, name in known]

    def handle(self, method, path, body):
        if not path.startswith("/containers/") or path == "/containers/json":
            return super().handle(method, path, body)
        found = _resolve(self.known, path.split("/")[2])
        if len(found) > 1:
            return 400, {"message": "multiple IDs found with provided prefix"}
        if not found:
            return 404, {"message": "No such container"}
        return 200, {"Id": found[0][0], "Name": f"/{found[0][1]}"}


def _resolve(known, reference):
    named = [one for one in known if reference == one[1]]
    return named or [one for one in known if one[0].startswith(reference)]


def docker(tmp_path, known):
    return Docker(Names(tmp_path / "docker.sock", *known).host)


def podman(_tmp_path, known):
    def run(argv):
        found = _resolve(known, argv[-1])
        if len(found) > 1:
            return 125, "[]", f'Error: more than one result for container "{argv[-1]}": container already exists'
        if not found:
            return 125, "[]", f'Error: no such container "{argv[-1]}"'
        return 0, json.dumps([{"Id": found[0][0], "Name": found[0][1]}]), ""

    return Podman(run, "/usr/bin/podman")


@pytest.mark.parametrize("engine", [docker, podman])
@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([], None),
        ([DB], DB[0]),
        ([BILLING], None),
        ([BILLING, MAIL], None),
        ([DB, BILLING], DB[0]),
        ([BILLING, DB], DB[0]),
    ],
    ids=["none", "name", "prefix", "prefixes", "name-first", "prefix-first"],
)
def test_container_is_found_by_name_only(tmp_path, engine, known, expected):
    found = engine(tmp_path, known).container("db")
    assert (found and found["Id"]) == expected


@pytest.mark.parametrize(
    ("engine", "known", "expected"),
    [
        (docker, [DB], None),
        (docker, [BILLING], "billing"),
        # Docker's module uses the first match in the list.
        (docker, [DB, BILLING], None),
        (docker, [BILLING, DB], "billing"),
        (podman, [DB], None),
        (podman, [BILLING], "billing"),
        (podman, [BILLING, DB], None),
        (podman, [BILLING, MAIL], None),
    ],
)
def test_container_matched_by_prefix_is_named(tmp_path, engine, known, expected):
    assert engine(tmp_path, known).matched_by_id("db") == expected


def test_containers_are_inspected_by_identifier(tmp_path):
    found = docker(tmp_path, [BILLING, DB]).containers()
    assert [one["Name"] for one in found] == ["/billing", "/db"]


def test_other_messages_of_podman_are_errors():
    with pytest.raises(EngineError, match="database is locked"):
        Podman(lambda argv: (125, "", "Error: database is locked"), "/usr/bin/podman").container("db")
