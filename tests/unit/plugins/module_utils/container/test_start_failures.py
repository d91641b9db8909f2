# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Error messages for containers that cannot be started, and their removal."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import start_failures
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Docker, Podman
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.tests.unit.plugins.fake_engines import FakeDocker

OLD, NEW = "1" * 64, "2" * 64


class Containers(FakeDocker):
    """A Docker with one container that refuses to remove it while it is running."""

    def __init__(self, path, identifier, status):
        super().__init__(path)
        self.status, self.removed = status, []
        self.containers = [{"Id": identifier, "Names": ["/ct"]}] if identifier else []

    def handle(self, method, path, body):
        if method == "DELETE":
            if self.status == "running":
                return 409, {"message": "cannot remove a running container"}
            self.removed.append(path.split("/")[2])
            return 204, b""
        if path.startswith("/containers/") and path != "/containers/json":
            return 200, {"Id": path.split("/")[2], "Name": "/ct", "State": {"Status": self.status}}
        return super().handle(method, path, body)


def on_docker(tmp_path, identifier, status):
    fake = Containers(tmp_path / "docker.sock", identifier, status)
    return Docker(fake.host), fake.removed


def on_podman(_tmp_path, identifier, status):
    removed = []

    def run(argv):
        if argv[1] == "rm":
            assert argv[2] == "--volumes", "anonymous volumes must be removed"
            removed.append(argv[-1])
            return 0, "", ""
        if not identifier:
            return 125, "[]", f'Error: no such container "{argv[-1]}"'
        return 0, json.dumps([{"Id": identifier, "Name": "ct", "State": {"Status": status}}]), ""

    return Podman(run, "/usr/bin/podman"), removed


@pytest.mark.parametrize("place", [on_docker, on_podman])
@pytest.mark.parametrize(
    ("identifiers", "status", "removed"),
    [
        ((None, NEW), "created", True),
        ((None, NEW), "configured", True),
        ((None, NEW), "initialized", True),
        ((OLD, NEW), "created", True),
        # The container has run, so its output is kept.
        ((None, NEW), "exited", False),
        ((None, NEW), "running", False),
        # The container existed before.
        ((OLD, OLD), "created", False),
        ((None, None), "", False),
        ((OLD, None), "", False),
    ],
)
def test_only_an_unstarted_new_container_is_removed(tmp_path, place, identifiers, status, removed):
    before, after = identifiers
    engine, gone = place(tmp_path, after, status)
    outcome = start_failures.remove_unstarted(engine, "ct", before, keep=False)
    assert gone == ([NEW] if removed else [])
    assert outcome["removed"] is removed
    assert outcome["after"] == (None if removed else after)
    assert start_failures.has_changed(outcome) is ((None if removed else after) != before)


@pytest.mark.parametrize("place", [on_docker, on_podman])
def test_container_of_somebody_else_is_kept(tmp_path, place):
    engine, gone = place(tmp_path, NEW, "created")
    assert start_failures.remove_unstarted(engine, "ct", None, keep=True)["after"] == NEW
    assert gone == []


def test_failed_removal_is_reported(tmp_path):
    class Busy(Docker):
        def remove_container(self, identifier):
            raise EngineError("removal is already in progress")

    engine = Busy(Containers(tmp_path / "docker.sock", NEW, "created").host)
    outcome = start_failures.remove_unstarted(engine, "ct", None, keep=False)
    assert start_failures.has_changed(outcome)
    assert start_failures.describe_outcome(outcome) == (
        "The new container could not be removed: removal is already in progress. Its state is created."
    )


def test_unavailable_engine_is_reported():
    with pytest.raises(EngineError, match="podman is not in PATH"):
        start_failures.remove_unstarted(Podman(lambda argv: (0, "", ""), None), "ct", None, keep=False)


WARNING = 'time="2026-11-21T20:00:00Z" level=warning msg="The cgroupv2 manager is set to systemd"'


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (
            {
                "msg": "Container ct exited with code 127 when runed",
                "stderr": f"{WARNING}\nError: crun: not there\n",
            },
            "podman run exited with status 127: crun: not there",
        ),
        (
            {"msg": "Container ct exited with code -9 when started", "stderr": ""},
            "podman start exited with status -9",
        ),
        (
            {"msg": "Container ct exited with code 125 when createed", "stderr": "Error: a\nError: b\nError: a\n"},
            "podman create exited with status 125: a; b",
        ),
        # With detach=false, stderr is the output of the container.
        (
            {"msg": "Container ct exited with code 3 when runed", "stderr": "1\n2\n3\n\n4\n"},
            "podman run exited with status 3: 2; 3; 4",
        ),
        ({"msg": "Can't pull image x", "stderr": "Error: manifest unknown"}, "Can't pull image x: manifest unknown"),
        ({"msg": "Can't: manifest unknown.", "stderr": "Error: manifest unknown"}, "Can't: manifest unknown."),
        (
            {"msg": "MODULE FAILURE.", "module_stderr": "Traceback\nKeyError: 'x'\n"},
            "MODULE FAILURE: Traceback; KeyError: 'x'",
        ),
        ({"msg": "no such file", "status": 3}, "its program ended with status 3: no such file"),
        ({}, "failed without a message"),
    ],
)
def test_message_contains_the_reason(result, says):
    assert start_failures.message("podman", "ct", result) == f"podman container ct: {says}"


@pytest.mark.parametrize(("capabilities", "names"), [("[[gpu]]", True), ("[[compute gpu]]", True), ("[[tpu]]", False)])
def test_docker_that_started_before_the_toolkit_has_to_restart(capabilities, names):
    text = f'Error starting container 1a: could not select device driver "" with capabilities: {capabilities}'
    found = start_failures.message("docker", "ct", {"msg": text})
    assert found.startswith(f"docker container ct: {text}")
    assert ("Run `systemctl restart docker`, or use another isolation." in found) is names


def test_sentences_end_with_one_full_stop():
    assert start_failures.join_sentences(["one", "", "two.", "three?"]) == "one. two. three?"
