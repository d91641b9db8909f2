# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program with which a host configures itself, with programs that stand for git, pip and ansible."""

from __future__ import annotations

import fcntl
import http.server
import json
import os
import threading

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.unattended import pull

COMMIT = "3c0f1a2b" * 5
RECAP = "localhost : ok=9 changed={} unreachable=0 failed=0 skipped=2 rescued=0 ignored=0\n"
SETTINGS = {
    "repository": "https://git.example/site.git",
    "revision": "v1",
    "playbook": "site.yml",
    "inventory": "",
    "collection": "gpufleet.hosts:0.1.0",
    "packages": ["ansible==12.3.0"],
    "python": "python3",
    "interval": 60,
    "attempts": 3,
    "ec2_tag": False,
}


class Host(pull.Pull):
    """A host whose programs have prepared answers by the first words of their commands: a list, one for each call."""

    def __init__(self, state, answers=None, **settings):
        super().__init__({**SETTINGS, **settings}, str(state))
        self.answers = {
            "git": [(0, f"{COMMIT}\trefs/tags/v1\n")],
            "ansible-pull": [(0, RECAP.format(3))],
            **(answers or {}),
        }
        self.commands = []

    def _do(self, argv):
        self.commands.append(argv)
        found = self.answers.get(os.path.basename(argv[0]), [(0, "")])
        return found.pop(0) if len(found) > 1 else found[0]

    def count(self, program):
        return sum(os.path.basename(argv[0]) == program for argv in self.commands)


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    found = []
    monkeypatch.setattr(pull.time, "sleep", found.append)
    monkeypatch.setattr(pull.shutil, "which", lambda name: f"/usr/bin/{name}")
    return found


@pytest.mark.parametrize(("changed", "state"), [(3, "changed"), (0, "unchanged")])
def test_the_outcome_has_the_changes_and_the_commit(tmp_path, changed, state):
    outcome = Host(tmp_path, {"ansible-pull": [(0, RECAP.format(changed))]}).run()
    assert outcome == {"state": state, "changed": changed, "commit": COMMIT, "reason": None, "attempts": 1}


def test_an_annotated_tag_is_its_commit(tmp_path):
    lines = f"{'a' * 40}\trefs/tags/v1\n{COMMIT}\trefs/tags/v1^{{}}\n"
    host = Host(tmp_path, {"git": [(0, lines)]})
    assert host.run()["commit"] == COMMIT
    pulled = next(argv for argv in host.commands if argv[0] == "ansible-pull")
    assert pulled[pulled.index("--checkout") + 1] == COMMIT


def test_the_second_run_installs_nothing(tmp_path):
    Host(tmp_path).run()
    again = Host(tmp_path)
    assert again.run()["state"] == "changed"
    assert [os.path.basename(argv[0]) for argv in again.commands] == ["git", "ansible-pull"]
    newer = Host(tmp_path, collection="gpufleet.hosts:0.2.0")
    newer.run()
    assert newer.count("ansible-galaxy") == 1


def test_an_interrupted_installation_is_repeated(tmp_path):
    assert Host(tmp_path, {"ansible-galaxy": [(1, "[ERROR]: no route\n")]}, attempts=1).run()["state"] == "unavailable"
    host = Host(tmp_path)
    assert host.run()["state"] == "changed"
    assert host.count("ansible-galaxy") == 1


def test_an_unreachable_repository_is_tried_again_with_longer_waits(tmp_path, waits):
    host = Host(tmp_path, {"git": [(128, "fatal: unable to access 'https://u:p@git.example': no route\n")]})
    outcome = host.run()
    assert (outcome["state"], outcome["attempts"], waits) == ("unavailable", 3, [10, 20])
    assert "https://git.example/site.git cannot be read" in outcome["reason"]
    assert "u:p@" not in outcome["reason"]
    assert host.count("ansible-pull") == host.count("ansible-galaxy") == 0


def test_a_later_attempt_succeeds(tmp_path, waits):
    host = Host(tmp_path, {"git": [(128, "no route"), (0, f"{COMMIT}\trefs/tags/v1\n")]})
    outcome = host.run()
    assert (outcome["state"], outcome["attempts"], waits) == ("changed", 2, [10])


@pytest.mark.parametrize(
    ("answers", "settings", "text"),
    [
        ({"git": [(0, "")]}, {}, "has no tag v1"),
        (
            {"git": [(0, "")], "ansible-pull": [(1, "fatal: reference is not a tree: 3c0f\n")]},
            {"revision": COMMIT},
            "no commit",
        ),
        ({"ansible-galaxy": [(1, "[ERROR]: Failed to resolve the requested dependencies map")]}, {}, "the collection"),
    ],
)
def test_a_pin_that_does_not_exist_is_said_and_not_tried_again(tmp_path, waits, answers, settings, text):
    outcome = Host(tmp_path, answers, **settings).run()
    assert (outcome["state"], outcome["attempts"], waits) == ("invalid", 1, [])
    assert text in outcome["reason"]


def test_a_failed_playbook_reports_its_last_error(tmp_path, waits):
    output = 'fatal: [localhost]: FAILED! => {"msg": "no driver"}\n' + RECAP.format(1)
    outcome = Host(tmp_path, {"ansible-pull": [(2, output)]}).run()
    assert (outcome["state"], waits) == ("failed", [])
    assert "no driver" in outcome["reason"]


def test_missing_git_is_waited_for(tmp_path, waits, monkeypatch):
    monkeypatch.setattr(pull.shutil, "which", lambda name: None)
    outcome = Host(tmp_path).run()
    assert (outcome["state"], len(waits)) == ("unavailable", 2)
    assert "git" in outcome["reason"]


@pytest.fixture
def host_files(tmp_path, monkeypatch):
    monkeypatch.setattr(pull, "STATE", str(tmp_path))
    monkeypatch.setattr(pull, "SETTINGS", str(tmp_path / "pull.json"))
    monkeypatch.setattr(pull, "Pull", lambda settings: Host(tmp_path, **settings))
    (tmp_path / "pull.json").write_text(json.dumps(SETTINGS))
    return tmp_path


def test_the_outcome_is_a_file_that_everybody_can_read(host_files):
    assert pull.main() == 0
    outcome = json.loads((host_files / "outcome.json").read_text())
    assert (outcome["state"], outcome["collection"], outcome["revision"]) == ("changed", "gpufleet.hosts:0.1.0", "v1")
    assert outcome["next"] > outcome["time"]
    assert (host_files / "outcome.json").stat().st_mode & 0o777 == 0o644


def test_only_one_run_at_a_time(host_files, capsys):
    with (host_files / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert pull.main() == 0
    assert "another run is in progress" in capsys.readouterr().out
    assert not (host_files / "outcome.json").exists()


def test_damaged_settings_fail_with_a_sentence(host_files, capsys):
    (host_files / "pull.json").write_text("{")
    assert pull.main() == 1
    assert "pull.json is missing or damaged" in capsys.readouterr().out


class Metadata(http.server.BaseHTTPRequestHandler):
    """The instance metadata service, version 2."""

    def do_PUT(self):
        self._answer(b"TOKEN" if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else b"")

    def do_GET(self):
        known = self.headers["X-aws-ec2-metadata-token"] == "TOKEN"
        self._answer(json.dumps({"instanceId": "i-1", "region": "eu-west-1"}).encode() if known else b"")

    def _answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


def test_the_outcome_becomes_a_tag_of_the_instance(monkeypatch):
    server = http.server.HTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    commands = []
    monkeypatch.setattr(pull.subprocess, "run", lambda argv, **_more: commands.append(argv) or Done)
    try:
        problem = pull.tag_instance({"state": "changed", "time": "T"}, f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
    assert problem is None
    tag = ["--tags", "Key=gpufleet:outcome,Value=changed T"]
    assert commands == [["aws", "ec2", "create-tags", "--region", "eu-west-1", "--resources", "i-1", *tag]]


class Done:
    """A program that succeeded."""

    returncode, stderr = 0, ""


def test_a_host_without_the_metadata_service_says_so():
    assert "metadata" in str(pull.tag_instance({"state": "changed", "time": "T"}, "http://127.0.0.1:1"))
