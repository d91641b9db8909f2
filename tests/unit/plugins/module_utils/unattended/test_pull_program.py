# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program with which a host configures itself, with programs that stand for git, pip and ansible."""

from __future__ import annotations

import fcntl
import http.client
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.unattended import pull_program

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
    "host_packages": ["git", "python3-venv"],
    "interval": 60,
    "attempts": 3,
    "ec2_tag": False,
}


class Host(pull_program.Pull):
    """A host whose programs have prepared answers by the first words of their commands: a list, one for each call."""

    def __init__(self, state, answers=None, **settings):
        super().__init__({**SETTINGS, **settings}, str(state))
        self.answers = {
            "rev-parse": [(0, f"{COMMIT}\n")],
            "ansible-playbook": [(0, RECAP.format(3))],
            **(answers or {}),
        }
        self.commands = []

    def _do(self, argv, *, to_journal=False, directory=None):
        self.commands.append(argv)
        name = argv[2] if argv[0] == "git" else os.path.basename(argv[0])
        if "checkout" in argv:
            pathlib.Path(self.site, os.path.dirname(self.settings["inventory"])).mkdir(parents=True, exist_ok=True)
            for path in ("site.yml", self.settings["inventory"] or "site.yml"):
                pathlib.Path(self.site, path).touch()
        found = self.answers.get(name, [(0, "")])
        answer = found.pop(0) if len(found) > 1 else found[0]
        if name == "ansible-galaxy" and answer[0] == 0:
            manifest = pathlib.Path(self.collections, "ansible_collections/gpufleet/hosts/MANIFEST.json")
            manifest.parent.mkdir(parents=True, exist_ok=True)
            manifest.write_text('{"format": 1}')
        return answer

    def count(self, program):
        return sum(os.path.basename(argv[0]) == program for argv in self.commands)


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    found = []
    monkeypatch.setattr(pull_program.time, "sleep", found.append)
    monkeypatch.setattr(pull_program.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(pull_program, "LOCKS", ())
    return found


@pytest.mark.parametrize(("changed", "state"), [(3, "changed"), (0, "unchanged")])
def test_the_outcome_has_the_changes_and_the_commit(tmp_path, changed, state):
    outcome = Host(tmp_path, {"ansible-playbook": [(0, RECAP.format(changed))]}).run()
    assert outcome == {"state": state, "changed": changed, "commit": COMMIT, "reason": None, "attempts": 1}


def test_the_commit_of_the_tag_is_checked_out_for_this_host_only(tmp_path):
    host = Host(tmp_path, inventory="inventory/hosts.yml")
    host.run()
    pulled = next(argv for argv in host.commands if argv[0].endswith("/ansible-playbook"))
    assert ["git", "-C", f"{tmp_path}/site", "checkout", "--quiet", "--detach", COMMIT] in host.commands
    assert pulled[-1] == f"{tmp_path}/site/site.yml"
    assert pulled[pulled.index("--limit") + 1] == "localhost"
    assert [pulled[at + 1] for at, word in enumerate(pulled) if word == "--inventory"] == [
        f"{tmp_path}/inventory.yml",
        f"{tmp_path}/site/inventory/hosts.yml",
    ]
    own = yaml.safe_load((tmp_path / "inventory.yml").read_text())
    assert own["gpu_hosts"]["hosts"]["localhost"]["ansible_python_interpreter"] == "/usr/bin/python3"


def test_the_second_run_installs_nothing(tmp_path):
    Host(tmp_path).run()
    again = Host(tmp_path)
    assert again.run()["state"] == "changed"
    assert {"ansible-galaxy", "apt-get", "dnf"}.isdisjoint(os.path.basename(argv[0]) for argv in again.commands)
    newer = Host(tmp_path, collection="gpufleet.hosts:0.2.0")
    newer.run()
    assert newer.count("ansible-galaxy") == 1


def test_an_interrupted_installation_is_repeated(tmp_path):
    assert Host(tmp_path, {"ansible-galaxy": [(1, "[ERROR]: no route\n")]}, attempts=1).run()["state"] == "unavailable"
    host = Host(tmp_path)
    assert host.run()["state"] == "changed"
    assert host.count("ansible-galaxy") == 1


def test_an_installation_that_a_later_one_began_to_replace_is_repeated(tmp_path):
    Host(tmp_path).run()
    Host(tmp_path, {"ansible-galaxy": [(1, "no route\n")]}, attempts=1, collection="gpufleet.hosts:0.2.0").run()
    again = Host(tmp_path)
    assert again.run()["state"] == "changed"
    assert again.count("ansible-galaxy") == 1


def test_an_environment_whose_python_was_replaced_is_built_again(tmp_path):
    Host(tmp_path).run()
    again = Host(tmp_path, {"ansible": [(1, "No module named 'ansible'"), (0, "")]})
    assert again.run()["state"] == "changed"
    assert again.count("ansible-galaxy") == 1


@pytest.mark.parametrize("remaining", [None, ""])
def test_a_damaged_collection_is_installed_again(tmp_path, remaining):
    Host(tmp_path).run()
    manifest = tmp_path / "collections/ansible_collections/gpufleet/hosts/MANIFEST.json"
    manifest.unlink() if remaining is None else manifest.write_text(remaining)
    again = Host(tmp_path)
    assert again.run()["state"] == "changed"
    assert again.count("ansible-galaxy") == 1


def test_the_installation_is_on_the_disk_before_its_marker(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(pull_program.os, "sync", lambda: seen.append((tmp_path / "installed.json").exists()))
    Host(tmp_path).run()
    assert seen == [False]


def test_an_unreachable_repository_is_tried_again_with_longer_waits(tmp_path, waits):
    host = Host(tmp_path, {"fetch": [(128, "fatal: unable to access 'https://u:p@git.example': no route\nadvice\n")]})
    outcome = host.run()
    assert (outcome["state"], outcome["attempts"], waits) == ("unavailable", 3, [10, 20])
    assert "https://git.example/site.git cannot be read" in outcome["reason"]
    assert "u:p@" not in outcome["reason"]
    assert host.count("ansible-playbook") == host.count("ansible-galaxy") == 0


def test_a_wait_has_a_maximum(tmp_path, waits):
    Host(tmp_path, {"fetch": [(128, "no route")]}, attempts=8).run()
    assert waits == [10, 20, 40, 80, 160, 300, 300]


def test_a_later_attempt_succeeds(tmp_path, waits):
    host = Host(tmp_path, {"fetch": [(128, "no route"), (0, "")]})
    outcome = host.run()
    assert (outcome["state"], outcome["attempts"], waits) == ("changed", 2, [10])


@pytest.mark.parametrize(
    ("answers", "settings", "text"),
    [
        ({"rev-parse": [(1, "")]}, {}, "has no tag v1"),
        ({"rev-parse": [(1, "")]}, {"revision": COMMIT}, "has no commit 3c0f"),
        ({"ansible-galaxy": [(1, "[ERROR]: Failed to resolve the requested dependencies map")]}, {}, "the collection"),
    ],
)
def test_a_pin_that_does_not_exist_is_said_and_not_tried_again(tmp_path, waits, answers, settings, text):
    outcome = Host(tmp_path, answers, **settings).run()
    assert (outcome["state"], outcome["attempts"], waits) == ("invalid", 1, [])
    assert text in outcome["reason"]


@pytest.mark.parametrize("name", ["playbook", "inventory"])
def test_a_missing_playbook_or_inventory_is_said_before_anything_runs(tmp_path, repository, name):
    url, head = repository
    host = Cloning(tmp_path, repository=url, **{name: "other/hosts.yml"})
    outcome = host.run()
    assert (outcome["state"], outcome["attempts"]) == ("invalid", 1)
    assert outcome["reason"] == (
        f"commit {head} of the repository has no file other/hosts.yml. Correct unattended_{name}, which is {name} in "
        "/etc/gpufleet/pull.json."
    )
    assert host.count("ansible-playbook") == 0


@pytest.mark.parametrize("path", ["./site.yml", "envs/", "envs", "envs//hosts.yml", "linked/hosts.yml"])
def test_an_inventory_can_be_a_directory_or_behind_a_symbolic_link(tmp_path, repository, path):
    url, _head = repository
    assert Cloning(tmp_path, repository=url, inventory=path).run()["state"] == "changed"


FIRST, SECOND = "TASK [driver : First] ****\n", "TASK [driver : Second] ****\n"
FATAL = 'fatal: [localhost]: FAILED! => {"msg": "login hunter2"}\n'
DELEGATED = FATAL.replace("[localhost]", "[localhost -> other(192.0.2.1)]")
ITEM = 'failed: [localhost] (item=hunter2) => {"msg": "hunter2"}\n'
FAILED = RECAP.format(1).replace("failed=0", "failed=1")


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (FIRST + FATAL + FAILED, "task 'driver : First' failed"),
        (FIRST + "ok: [localhost]\n" + SECOND + DELEGATED + FAILED, "task 'driver : Second' failed"),
        (FIRST + ITEM + ITEM + FAILED, "task 'driver : First' failed"),
        # A section `always`, or handlers that run in any case.
        (FIRST + FATAL + SECOND + ITEM + ITEM + "...ignoring\n" + FAILED, "task 'driver : First' failed"),
        (FIRST + FATAL + "...ignoring\n" + SECOND + FATAL + FAILED, "task 'driver : Second' failed"),
        (FIRST + FATAL + "...ignoring\n", "ansible-playbook ended with status 2"),
        # A section `rescue`.
        (FIRST + FATAL + SECOND + "ok: [localhost]\n" + RECAP.format(1), "ansible-playbook ended with status 2"),
    ],
)
def test_a_failed_playbook_names_the_task_but_no_message(tmp_path, waits, output, text):
    outcome = Host(tmp_path, {"ansible-playbook": [(2, "\nPLAY [all] ***\n" + output)]}).run()
    assert (outcome["state"], waits) == ("failed", [])
    assert outcome["reason"].startswith(f"{text}. journalctl")
    assert "hunter2" not in outcome["reason"]


def test_a_playbook_without_a_play_for_the_host_fails(tmp_path):
    outcome = Host(tmp_path, {"ansible-playbook": [(0, "skipping: no hosts matched\n")]}).run()
    assert (outcome["state"], outcome["reason"]) == ("failed", "site.yml has no play for localhost")


def test_missing_programs_are_installed(tmp_path):
    host = Host(tmp_path, {"python3": [(1, "No module named ensurepip"), (0, "")]})
    assert host.run()["state"] == "changed"
    assert any(argv[0] == "apt-get" and argv[-2:] == ["git", "python3-venv"] for argv in host.commands)


def test_an_unreachable_package_mirror_is_tried_again(tmp_path, waits, monkeypatch):
    monkeypatch.setattr(pull_program.shutil, "which", lambda name: None)
    outcome = Host(tmp_path, {"dnf": [(1, "Error: cannot download\n")]}).run()
    assert (outcome["state"], len(waits)) == ("unavailable", 2)
    assert outcome["reason"] == "git and python3-venv could not be installed: Error: cannot download"


@pytest.mark.parametrize(("holder", "waited"), [("LOCK_EX", True), ("LOCK_UN", False)])
def test_the_locks_of_other_package_managers_are_awaited(tmp_path, waits, monkeypatch, holder, waited):
    lock = tmp_path / "lock-frontend"
    lock.touch()
    monkeypatch.setattr(pull_program, "LOCKS", (str(lock), str(tmp_path / "missing")))
    hold = (
        f"import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.{holder}); print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        host = Host(tmp_path, {"python3": [(1, "No module named ensurepip"), (0, "")]})
        assert host.run()["state"] == "changed"
        other.communicate(b"\n")
    # Each of the three commands waits, and runs in the end to say who holds the lock.
    assert waits == (
        [pull_program.LOCK_POLL] * 3 * (pull_program.LOCK_LIMIT // pull_program.LOCK_POLL) if waited else []
    )


def test_asking_for_a_lock_does_not_take_it(tmp_path, monkeypatch):
    (tmp_path / "lock").touch()
    for name in ("lockf", "flock"):
        monkeypatch.setattr(pull_program.fcntl, name, lambda *_how: pytest.fail("the lock was taken"))
    assert not pull_program.is_locked(str(tmp_path / "lock"))


@pytest.mark.parametrize(
    ("program", "limit"),
    [("git", pull_program.LIMIT), ("pip", pull_program.LIMIT), ("apt-get", None), ("dpkg", None), ("dnf", None)],
)
def test_a_package_manager_is_not_killed(tmp_path, monkeypatch, program, limit):
    limits = []

    def run(argv, *, timeout, **_more):
        limits.append(timeout)
        return subprocess.CompletedProcess(argv, 0, "")

    monkeypatch.setattr(pull_program.subprocess, "run", run)
    pull_program.Pull(SETTINGS, str(tmp_path))._do([program])
    assert limits == [limit]


IDENTITY = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]


@pytest.fixture
def repository(tmp_path):
    """A git repository with one commit and tag v1."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "site.yml").write_text("[]\n")
    (work / "envs").mkdir()
    (work / "envs/hosts.yml").write_text("all:\n")
    (work / "linked").symlink_to("envs")
    for argv in (
        ["init", "--quiet", "--initial-branch=main"],
        ["add", "."],
        [*IDENTITY, "commit", "--quiet", "--message=first"],
        [*IDENTITY, "tag", "--annotate", "--message=first", "v1"],
    ):
        subprocess.run(["git", *argv], cwd=work, check=True)
    return f"file://{work}", git(work, "rev-parse", "HEAD").decode().strip()


def git(directory, *arguments, data=b""):
    return subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, input=data).stdout


def commit(state, url, revision):
    return pull_program.Pull({**SETTINGS, "repository": url, "revision": revision}, str(state))._commit()


def test_an_annotated_tag_is_its_commit(tmp_path, repository):
    url, head = repository
    assert commit(tmp_path, url, "v1") == head


def test_a_fetched_commit_needs_no_network(tmp_path, repository):
    url, head = repository
    assert commit(tmp_path, url, head) == head
    assert commit(tmp_path, "file:///nonexistent", head) == head


def test_what_a_killed_git_left_is_repaired(tmp_path, repository):
    url, head = repository
    (tmp_path / "repository.git").mkdir()
    assert commit(tmp_path, url, "v1") == head
    for name in ("packed-refs.lock", "refs/tags/v1.lock", "shallow.lock"):
        (tmp_path / "repository.git" / name).touch()
    assert commit(tmp_path, url, "v1") == head


def test_a_commit_without_its_files_is_fetched_again(tmp_path, repository):
    url, head = repository
    bare = tmp_path / "repository.git"
    subprocess.run(["git", "init", "--quiet", "--bare", bare], check=True)
    git(bare, "hash-object", "-w", "-t", "commit", "--stdin", data=git(tmp_path / "work", "cat-file", "commit", head))
    assert commit(tmp_path, url, head) == head
    assert git(bare, "show", f"{head}:site.yml") == b"[]\n"
    # The next fetch keeps our reference.
    assert pull_program.Pull({**SETTINGS, "repository": url}, str(tmp_path))._fetch()[0] == 0
    assert commit(tmp_path, "file:///nonexistent", head) == head


def damage(bare):
    """Empty all objects, as a power failure does."""
    for path in (bare / "objects").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"")


def test_a_damaged_repository_is_fetched_again(tmp_path, repository):
    url, head = repository
    commit(tmp_path, url, "v1")
    damage(tmp_path / "repository.git")
    assert commit(tmp_path, url, "v1") == head
    assert git(tmp_path / "repository.git", "show", f"{head}:site.yml") == b"[]\n"


def test_a_defect_in_an_old_commit_is_no_damage(tmp_path, repository):
    url, head = repository
    work = tmp_path / "work"
    text = git(work, "cat-file", "commit", head).replace(b" +0000\n", b" +00000000000\n")
    bad = git(work, "hash-object", "--literally", "-w", "-t", "commit", "--stdin", data=text).decode().strip()
    child = git(work, *IDENTITY, "commit-tree", "-m", "child", "-p", bad, "HEAD^{tree}").decode().strip()
    git(work, "tag", "--force", "v1", child)
    host = Cloning(tmp_path, repository=url)
    assert host.run()["state"] == "changed"
    assert subprocess.run(["git", "fsck"], cwd=tmp_path / "repository.git", capture_output=True, check=False).returncode
    work.rename(tmp_path / "away")
    assert host.run()["state"] == "unavailable"
    assert git(tmp_path / "repository.git", "show", f"{child}:site.yml") == b"[]\n"


@pytest.mark.parametrize("what", ["objects", "HEAD"])
def test_a_damaged_repository_is_kept_until_a_new_one_is_fetched(tmp_path, repository, what):
    url, head = repository
    commit(tmp_path, url, "v1")
    bare, work = tmp_path / "repository.git", tmp_path / "work"
    damage(bare) if what == "objects" else (bare / "HEAD").write_text("")
    work.rename(tmp_path / "away")
    with pytest.raises(pull_program.PullFailure, match="cannot be read"):
        commit(tmp_path, url, "v1")
    assert any(path.is_file() for path in (bare / "objects").rglob("*"))
    (tmp_path / "away").rename(work)
    assert commit(tmp_path, url, "v1") == head
    assert bare.stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "repository.git.new").exists()
    assert not (tmp_path / "check").exists()


class Cloning(Host):
    """A host with git, whose ansible-playbook does nothing."""

    def _do(self, argv, *, to_journal=False, directory=None):
        return pull_program.Pull._do(self, argv) if argv[0] == "git" else super()._do(argv)


def test_a_repository_that_cannot_be_checked_out_is_fetched_again(tmp_path, repository):
    url, head = repository
    host = Cloning(tmp_path, repository=url, revision=head)
    assert host.run()["commit"] == head
    damage(tmp_path / "repository.git")
    again = host.run()
    assert (again["state"], again["commit"], again["reason"]) == ("changed", head, None)


def test_only_root_can_read_the_site(tmp_path, repository):
    url, _head = repository
    assert Cloning(tmp_path, repository=url).run()["state"] == "changed"
    for name in ("repository.git", "site"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700


def evil(work):
    """Return a commit with another playbook, and leave the branches as they are."""
    (work / "site.yml").write_text("[evil]\n")
    git(work, *IDENTITY, "commit", "--quiet", "--all", "--message=evil")
    found = git(work, "rev-parse", "HEAD").decode().strip()
    git(work, "reset", "--quiet", "--hard", "HEAD^")
    return found


@pytest.mark.parametrize("name", ["refs/heads/COMMIT", "refs/tags/COMMIT", "refs/heads/v1"])
@pytest.mark.parametrize("pin", ["commit", "tag"])
def test_a_branch_or_tag_with_the_name_of_the_pin_does_not_run(tmp_path, repository, name, pin):
    url, head = repository
    work = tmp_path / "work"
    git(work, "update-ref", name.replace("COMMIT", head), evil(work))
    host = Cloning(tmp_path, repository=url, revision=head if pin == "commit" else "v1")
    for _run in range(2):
        outcome = host.run()
        assert (outcome["state"], outcome["commit"], outcome["reason"]) == ("changed", head, None)
        assert (tmp_path / "site/site.yml").read_text() == "[]\n"
        assert git(tmp_path / "site", "rev-parse", "HEAD").decode().strip() == head
    assert git(tmp_path / "site", "for-each-ref", "refs/heads", "refs/tags") == b""


def refuse_objects(monkeypatch, work):
    """Let the server send only what a branch or a tag names, as with the first protocol. The pin is an older commit."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "protocol.version")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "0")
    git(work, *IDENTITY, "commit", "--quiet", "--allow-empty", "--message=later")


def test_a_server_that_refuses_single_objects_sends_an_older_commit(tmp_path, repository, monkeypatch):
    url, head = repository
    work = tmp_path / "work"
    refuse_objects(monkeypatch, work)
    git(work, "tag", "--delete", "v1")
    git(work, "update-ref", f"refs/heads/{head}", evil(work))
    bare = tmp_path / "empty.git"
    subprocess.run(["git", "init", "--quiet", "--bare", bare], check=True)
    refused = subprocess.run(["git", "fetch", url, head], cwd=bare, capture_output=True, text=True, check=False)
    assert "unadvertised object" in refused.stderr
    host = Cloning(tmp_path, repository=url, revision=head)
    assert host.run()["commit"] == head
    assert (tmp_path / "site/site.yml").read_text() == "[]\n"
    work.rename(tmp_path / "away")
    assert host.run()["commit"] == head


@pytest.mark.parametrize("pin", ["commit", "tag"])
def test_only_the_pin_is_fetched(tmp_path, repository, pin):
    url, head = repository
    other = evil(tmp_path / "work")
    git(tmp_path / "work", "update-ref", "refs/heads/other", other)
    assert Cloning(tmp_path, repository=url, revision=head if pin == "commit" else "v1").run()["commit"] == head
    found = subprocess.run(["git", "cat-file", "-e", other], cwd=tmp_path / "repository.git", check=False)
    assert found.returncode != 0


def test_a_tag_that_was_moved_is_followed(tmp_path, repository):
    url, head = repository
    host = Cloning(tmp_path, repository=url)
    assert host.run()["commit"] == head
    moved = evil(tmp_path / "work")
    git(tmp_path / "work", "tag", "--force", "v1", moved)
    assert host.run()["commit"] == moved
    assert (tmp_path / "site/site.yml").read_text() == "[evil]\n"


def test_another_commit_than_the_pin_does_not_run(tmp_path):
    host = Host(tmp_path, {"rev-parse": [(0, ""), (0, f"{COMMIT}\n"), (0, f"{'0' * 40}\n")]})
    outcome = host.run()
    assert (outcome["state"], outcome["commit"]) == ("failed", None)
    assert f"commit {COMMIT} of the repository cannot be checked out: git checked out {'0' * 40}" in outcome["reason"]
    assert host.count("ansible-playbook") == 0


def test_a_pin_that_git_cannot_write_fails(tmp_path):
    outcome = Host(tmp_path, {"update-ref": [(128, "fatal: no space left")]}).run()
    assert outcome["reason"] == f"git cannot pin commit {COMMIT}: fatal: no space left"


def test_a_submodule_is_a_part_of_the_commit(tmp_path, repository):
    url, _head = repository
    work = tmp_path / "work"
    subprocess.run(["git", "clone", "--quiet", "--bare", work, tmp_path / "lib.git"], check=True)
    add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", f"file://{tmp_path}/lib.git", "lib"]
    git(work, *add)
    git(work, "config", "--file", ".gitmodules", "submodule.lib.url", "../lib.git")
    git(work, *IDENTITY, "commit", "--quiet", "--all", "--message=lib")
    git(work, "tag", "v3")
    host = Cloning(tmp_path, repository=url, revision="v3", playbook="site.yml")
    host.environment["GIT_ALLOW_PROTOCOL"] = "file"
    assert host.run()["reason"] is None
    assert (tmp_path / "site/lib/site.yml").read_text() == "[]\n"
    (tmp_path / "lib.git").rename(tmp_path / "away")
    outcome = host.run()
    assert (outcome["state"], "a submodule of the repository cannot be read" in outcome["reason"]) == (
        "unavailable",
        True,
    )


def test_a_recap_among_the_errors_is_no_result(tmp_path):
    program = tmp_path / "venv/bin/ansible-playbook"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho no hosts\necho 'localhost : ok=1 changed=0 unreachable=0 failed=0' >&2\n")
    program.chmod(0o755)
    (tmp_path / "site").mkdir()
    host = pull_program.Pull(SETTINGS, str(tmp_path))
    assert host._run_playbook() == (0, "no hosts\n")


@pytest.mark.parametrize("revision", ["v2", "main", "0" * 40])
def test_a_branch_is_no_pin_and_a_missing_pin_is_said(tmp_path, repository, revision):
    url, _head = repository
    with pytest.raises(pull_program.PullFailure, match=f"has no (tag|commit) {revision}") as caught:
        commit(tmp_path, url, revision)
    assert caught.value.state == "invalid"


def test_a_missing_repository_is_unavailable(tmp_path):
    with pytest.raises(pull_program.PullFailure, match="file:///nonexistent cannot be read: fatal: ") as caught:
        commit(tmp_path, "file:///nonexistent", "v1")
    assert caught.value.state == "unavailable"


def test_the_output_of_a_run_reaches_the_journal(tmp_path, capfd):
    host = pull_program.Pull(SETTINGS, str(tmp_path))
    assert host._do(["sh", "-c", "echo one; echo two >&2; exit 3"], to_journal=True) == (3, "one\n")
    assert "one\n" in capfd.readouterr().out


@pytest.fixture
def sigterm():
    former = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, former)


@pytest.mark.usefixtures("sigterm")
@pytest.mark.parametrize("to_journal", [True, False])
def test_a_stopped_run_ends_its_program(tmp_path, to_journal):
    host = pull_program.Pull(SETTINGS, str(tmp_path))
    pull_program.stop_on_sigterm()
    stop = f"echo $$ > {tmp_path}/child; sleep 0.3; kill -TERM {os.getpid()}; exec sleep 600"
    with pytest.raises(pull_program.PullFailure, match="the service was stopped"):
        host._do(["sh", "-c", stop], to_journal=to_journal)
    child = int((tmp_path / "child").read_text())
    assert not pathlib.Path(f"/proc/{child}").exists()


@pytest.fixture
def host_files(tmp_path, monkeypatch, sigterm):
    monkeypatch.setattr(pull_program, "STATE", str(tmp_path))
    monkeypatch.setattr(pull_program, "SETTINGS", str(tmp_path / "pull.json"))
    monkeypatch.setattr(pull_program, "Pull", lambda settings: Host(tmp_path, **settings))
    (tmp_path / "pull.json").write_text(json.dumps(SETTINGS))
    return tmp_path


def test_the_outcome_is_a_file_that_everybody_can_read(host_files):
    assert pull_program.main() == 0
    outcome = json.loads((host_files / "outcome.json").read_text())
    assert (outcome["state"], outcome["collection"], outcome["revision"]) == ("changed", "gpufleet.hosts:0.1.0", "v1")
    assert outcome["next"] > outcome["time"]
    assert (host_files / "outcome.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("where", ["run", "wait"])
def test_an_unexpected_error_is_an_outcome_without_a_login(host_files, monkeypatch, where):
    def fail(*_arguments):
        raise ValueError("bad URL https://u:hunter2@git.example")

    class Broken(Host):
        def _do(self, argv, *, to_journal=False, directory=None):
            return (1, "no route") if "fetch" in argv and where == "wait" else super()._do(argv)

    monkeypatch.setattr(pull_program, "Pull", lambda settings: Broken(host_files, **settings))
    monkeypatch.setattr(*((pull_program.time, "sleep") if where == "wait" else (Host, "_install")), fail)
    assert pull_program.main() == 1
    outcome = json.loads((host_files / "outcome.json").read_text())
    assert (outcome["state"], outcome["attempts"]) == ("failed", 1)
    assert outcome["reason"].startswith("unexpected ValueError: bad URL https://...@git.example. journalctl")


def test_an_error_before_the_run_is_an_outcome(host_files, monkeypatch):
    monkeypatch.setattr(pull_program, "Pull", lambda settings: settings["nothing"])
    assert pull_program.main() == 1
    outcome = json.loads((host_files / "outcome.json").read_text())
    assert (outcome["state"], outcome["attempts"]) == ("failed", 0)
    assert "unexpected KeyError" in outcome["reason"]


def test_the_outcome_is_written_before_the_instance_gets_its_tag(host_files, monkeypatch):
    def tag(_outcome):
        assert json.loads((host_files / "outcome.json").read_text())["tag"] == "not set yet"

    (host_files / "pull.json").write_text(json.dumps({**SETTINGS, "ec2_tag": True}))
    monkeypatch.setattr(pull_program, "tag_instance", tag)
    assert pull_program.main() == 0
    assert json.loads((host_files / "outcome.json").read_text())["tag"] == "set"


def test_a_locale_without_unicode_is_no_error(tmp_path):
    (tmp_path / "pull.json").write_text(json.dumps({**SETTINGS, "collection": "\ud800", "packages": ["\u00e9"]}))
    program = (
        "import sys; from ansible_collections.gpufleet.hosts.plugins.module_utils.unattended import pull_program\n"
        "pull_program.STATE, pull_program.SETTINGS = sys.argv[1], sys.argv[1] + '/pull.json'\n"
        "class Host(pull_program.Pull):\n"
        "    def run(self):\n"
        "        status, output = self._do(['printf', r'\\303\\251'], to_journal=True)\n"
        "        assert output == '\u00e9', output\n"
        "        pull_program.say(self.settings['collection'])\n"
        "        return {'state': 'unchanged', 'changed': 0, 'reason': None}\n"
        "pull_program.Pull = Host; sys.exit(pull_program.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\\xe9" in done.stdout


def test_only_one_run_at_a_time(host_files, capsys):
    with (host_files / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert pull_program.main() == 0
    assert "another run is in progress" in capsys.readouterr().out
    assert not (host_files / "outcome.json").exists()


@pytest.mark.parametrize(
    ("program", "elapsed", "reason"),
    [
        ("ansible-playbook", 0, "the service was stopped"),
        ("ansible-playbook", pull_program.RUN_LIMIT, "the run did not end within 3 hours"),
        ("sleep", 0, "the service was stopped"),
    ],
)
def test_a_stopped_run_has_an_outcome(host_files, monkeypatch, program, elapsed, reason):
    def stop(*_arguments):
        now = time.monotonic()
        monkeypatch.setattr(pull_program.time, "monotonic", lambda: now + elapsed)
        os.kill(os.getpid(), signal.SIGTERM)

    class Stopped(Host):
        def _do(self, argv, *, to_journal=False, directory=None):
            if argv[0].endswith(program):
                stop()
            return (1, "no route") if "fetch" in argv and program == "sleep" else super()._do(argv)

    monkeypatch.setattr(pull_program, "Pull", lambda settings: Stopped(host_files, **settings))
    monkeypatch.setattr(pull_program.time, "sleep", stop)
    assert pull_program.main() == 1
    outcome = json.loads((host_files / "outcome.json").read_text())
    assert (outcome["state"], outcome["reason"], outcome["attempts"]) == ("failed", reason, 1)


def test_other_users_cannot_lock_the_run(host_files):
    assert pull_program.main() == 0
    assert (host_files / "lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "pull.json is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        ("[]", "pull.json is not a JSON object"),
        ("{}", "pull.json has no key repository"),
        ({"revision": 1.4}, "pull.json is of type float, but must be a quoted string"),
        ({"revision": None}, "pull.json is of type NoneType, but must be a quoted string"),
        ({"packages": "ansible"}, "pull.json is of type str, but must be a list of strings"),
        ({"packages": [1]}, "pull.json is of type list, but must be a list of strings"),
        ({"attempts": 0}, "pull.json is 0, but must be a number of 1 or more"),
        ({"attempts": True}, "pull.json is of type bool, but must be a number of 1 or more"),
        ({"interval": "60"}, "pull.json is of type str, but must be a number of 1 or more"),
        ({"ec2_tag": 1}, "pull.json is of type int, but must be true or false"),
    ],
)
def test_damaged_settings_are_an_outcome_that_says_where(host_files, text, reason):
    name = "" if isinstance(text, str) else f"{next(iter(text))} in {host_files}/"
    (host_files / "pull.json").write_text(text if isinstance(text, str) else json.dumps({**SETTINGS, **text}))
    assert pull_program.main() == 1
    outcome = json.loads((host_files / "outcome.json").read_text())
    assert (outcome["state"], outcome["attempts"], outcome["next"]) == ("invalid", 0, None)
    assert f"{name}{reason}" in outcome["reason"]
    assert outcome["reason"].endswith("Correct it.")


def test_missing_settings_are_an_outcome(host_files):
    (host_files / "pull.json").unlink()
    assert pull_program.main() == 1
    reason = json.loads((host_files / "outcome.json").read_text())["reason"]
    assert reason.endswith(
        "pull.json cannot be read: No such file or directory. Launch the instance with new user data."
    )


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
    monkeypatch.setattr(pull_program.subprocess, "run", lambda argv, **_more: commands.append(argv) or Done)
    try:
        problem = pull_program.tag_instance({"state": "changed", "time": "T"}, f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
    assert problem is None
    tag = ["--tags", "Key=gpufleet:outcome,Value=changed T"]
    assert commands == [["aws", "ec2", "create-tags", "--region", "eu-west-1", "--resources", "i-1", *tag]]


class Done:
    """A program that succeeded."""

    returncode, stderr = 0, ""


def test_a_host_without_the_metadata_service_says_so():
    assert "metadata" in str(pull_program.tag_instance({"state": "changed", "time": "T"}, "http://127.0.0.1:1"))


@pytest.mark.parametrize("answer", [http.client.BadStatusLine("x"), "[]"])
def test_a_wrong_answer_of_the_metadata_service_is_said(monkeypatch, answer):
    def fetch(*_arguments):
        if isinstance(answer, str):
            return answer
        raise answer

    monkeypatch.setattr(pull_program, "fetch", fetch)
    found = pull_program.tag_instance({"state": "changed", "time": "T"})
    assert found.startswith("the instance metadata service cannot be read: ")
