# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction import TransactionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.fake_manager import SOURCES, Package
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import (
    new_host,
    packets,
)

APP1, APP2 = Package("app", "1-1"), Package("app", "2-1", needs=("lib>=2-1",))
LIB1, LIB2 = Package("lib", "1-1"), Package("lib", "2-1")
OLD, VIM = Package("old"), Package("vim")
AGENT = Package("agent", needs=("agent-lib",), conflicts=("old",))
AGENT_LIB = Package("agent-lib")


# --- holds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
def test_own_holds_follow_the_versions(tmp_path: Path, manager: str) -> None:
    host = new_host(tmp_path, APP1, APP2, LIB1, LIB2, name=manager)
    host.manager.packages["base"] = "1"
    first = host.present(install=["app=1", "lib=1"], hold=["~^(app|lib)$"])
    assert first.held == ["app", "lib"]
    second = host.present(install=["app=2"], hold=["app"], may_upgrade=True)
    # The hold on app is set again. Nobody requests the one on lib any more.
    assert (second.held, second.released) == ([], ["lib"])
    assert host.manager.state()["held"] == ["app"]
    assert host.recorded()["holds"] == ["app"]
    assert host.absent().released == ["app"]
    assert not host.manager.locks


def test_dnf_locks_a_version_before_its_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = new_host(tmp_path, APP1, APP2, LIB2, installed=(VIM,), name="dnf")
    host.present(install=["app=1"], hold=["app"])
    seen = []
    act = host.manager.act
    monkeypatch.setattr(host.manager, "act", lambda *a: (seen.append({**host.manager.locks}), act(*a)))
    host.present(install=["app=2"], hold=["app", "lib=2"])
    assert seen == [{"app": {"2-1"}, "lib": {"2-1"}}]


def test_packages_that_cannot_be_held_change_nothing(tmp_path: Path) -> None:
    host = new_host(tmp_path, APP2, LIB2, installed=(APP1, VIM), name="dnf")
    host.manager.failing = {"locks_versions": 0}
    before = host.snapshot()
    for check_mode in (True, False):
        for options in ({"install": ["app=2"], "hold": ["lib"]}, {"hold": ["vim"]}):
            with pytest.raises(PackageManagerError, match="locks_versions failed"):
                host.present(check_mode=check_mode, **options)
            assert host.snapshot() == before
    assert host.present(install=["lib"]).changed


def test_a_transaction_can_install_the_plugin_that_locks_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = new_host(tmp_path, Package("plugin"), LIB2, name="dnf")
    monkeypatch.setattr(host.manager, "locks_versions", lambda _changes: "plugin" in host.manager.packages)
    seen = []
    act = host.manager.act
    monkeypatch.setattr(host.manager, "act", lambda *a: (seen.append({**host.manager.locks}), act(*a)))
    assert host.present(install=["lib", "plugin"], hold=["lib"]).held == ["lib"]
    assert seen == [{}]
    assert host.manager.state()["held"] == ["lib"]


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
def test_a_hold_of_the_user_stays(tmp_path: Path, manager: str) -> None:
    host = new_host(tmp_path, APP2, LIB2, installed=(APP1, VIM), name=manager)
    host.manager.hold(["app", "vim"])
    before = host.snapshot()
    for check_mode in (True, False):
        with pytest.raises(TransactionError, match=re.escape("upgrade app from 1-1 to 2-1 (held)")):
            host.present(check_mode=check_mode, install=["app=2"], may_change=["*"], hold=["app"])
        assert host.snapshot() == before
    result = host.present(install=["app=2"], release=["app"], hold=["app", "vim"])
    assert (result.held, result.released) == ([], [])
    assert host.manager.state()["held"] == ["app", "vim"]
    host.absent()
    assert host.manager.state()["held"] == ["app", "vim"]


def test_a_hold_can_be_released_alone(tmp_path: Path) -> None:
    host = new_host(tmp_path, installed=(APP1, VIM))
    host.manager.hold(["app", "vim"])
    assert host.present(check_mode=True, release=["app"]).released == ["app"]
    assert host.present(release=["app"]).released == ["app"]
    assert host.manager.state()["held"] == ["vim"]
    assert not host.present(release=["app"]).changed


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
@pytest.mark.parametrize("after", range(5))
def test_a_failure_at_each_package(tmp_path: Path, manager: str, after: int) -> None:
    """Five packages change: old goes, lib and app are upgraded, agent-lib and agent come."""
    host = new_host(tmp_path, APP2, LIB2, installed=(APP1, LIB1, OLD, VIM), name=manager)
    host.manager.hold(["app", "old"])
    host.manager.act_fails_after = after
    repository = host.repository(packages=(AGENT, AGENT_LIB))
    before = host.snapshot()
    act = host.manager.act

    def act_once(*given: Any) -> None:
        host.manager.act = act  # type: ignore[method-assign]
        try:
            act(*given)
        finally:
            host.manager.act_fails_after = None

    host.manager.act = act_once  # type: ignore[method-assign]
    with pytest.raises(TransactionError, match=r"^The script of \S+ failed\.( Restored: .+\.)?$"):
        host.present(
            install=["app=2", "agent"],
            remove=["old"],
            may_change=["lib"],
            release=["app", "old"],
            hold=["agent*"],
            repositories=[repository],
        )
    state = host.manager.state()
    came = {*state["all"]} - {*before[1]["all"]} - {*host.manager.keys}
    assert {name: state["all"].get(name) for name in before[1]["all"]} == before[1]["all"]
    assert {*state["held"]} - came == {"app", "old"}
    assert {*host.manager.locks} <= {"app", "old", *came}
    recorded = {name for name in host.recorded().get("packages", []) if not name.startswith("gpg-pubkey-")}
    assert recorded == came
    if not came:
        assert host.snapshot() == before
    host.absent()
    assert host.snapshot() == before


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
def test_the_message_names_what_was_restored(tmp_path: Path, manager: str) -> None:
    host = new_host(tmp_path, APP2, LIB1, LIB2, installed=(APP1, OLD, VIM), name=manager)
    host.manager.packages["lib"] = "1-1"
    host.present(install=["lib=1-1"], hold=["app"])
    host.manager.act_fails_after = 2
    act = host.manager.act

    def act_once(*given: Any) -> None:
        host.manager.act = act  # type: ignore[method-assign]
        try:
            act(*given)
        finally:
            host.manager.act_fails_after = None

    host.manager.act = act_once  # type: ignore[method-assign]
    pins = RepositoryFile("/etc/apt/preferences.d/pins", b"pins")
    # With dnf, the lock on the new version of app hides the former version.
    with pytest.raises(TransactionError, match=r"failed\. Restored: package lib, package old, 1 file\.$"):
        host.present(install=["app=2"], remove=["old"], may_change=["lib"], hold=["app", "lib"], files=[pins])
    assert host.manager.packages == {"app": "1-1", "lib": "1-1", "old": "1-1", "vim": "1-1"}
    assert host.manager.state()["held"] == ["app"]


def test_a_restored_stream_offers_the_removed_packages_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = new_host(tmp_path, AGENT, AGENT_LIB, installed=(OLD, VIM), name="dnf", enabled={"nvidia": "1"})
    host.manager.offered_streams = {"nvidia": ["1", "2"]}
    host.manager.act_fails_after = 1
    available = host.manager._available

    def offered(entries: Any) -> list[Package]:
        """Hide a package if the new stream is enabled."""
        return [package for package in available(entries) if package != OLD or host.manager.enabled == {"nvidia": "1"}]

    monkeypatch.setattr(host.manager, "_available", offered)
    with pytest.raises(TransactionError, match=r"^The script of agent-lib failed. Restored: package old\.$"):
        host.present(install=["agent"], remove=["old"], streams=["nvidia:2"])
    assert host.manager.packages == {"old": "1-1", "vim": "1-1"}
    assert host.manager.enabled == {"nvidia": "1"}


def test_the_message_names_what_could_not_be_put_back(tmp_path: Path) -> None:
    host = new_host(tmp_path, installed=(OLD, VIM))
    host.manager.archive = [VIM]
    host.manager.hold(["old"])
    host.manager.act_fails_after = 1
    message = "The script of agent-lib failed. Restored: 2 files. Not restored: package old 1-1 (There is no old=1-1.)."
    with pytest.raises(TransactionError, match=f"^{re.escape(message)}$"):
        host.present(
            install=["agent"],
            remove=["old"],
            release=["old"],
            repositories=[host.repository(packages=(AGENT, AGENT_LIB))],
        )
    assert host.manager.packages == {"vim": "1-1"}
    assert not host.recorded()


def test_a_failure_to_hold_leaves_the_new_packages(tmp_path: Path) -> None:
    host = new_host(tmp_path, APP2, LIB2, installed=(VIM,))
    host.manager.failing = {"hold": 1}
    with pytest.raises(
        TransactionError, match=r"hold failed. All packages changed as planned, .* Run the task again to complete it.$"
    ):
        host.present(install=["app"], hold=["app"])
    assert host.recorded()["packages"] == ["app", "lib"]
    host.manager.failing = {}
    assert host.present(install=["app"], hold=["app"]).held == ["app"]
    host.absent()
    assert host.manager.packages == {"vim": "1-1"}


def test_a_state_that_cannot_be_read_leaves_the_record_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = new_host(tmp_path, APP2, LIB2, installed=(VIM,))
    installed = host.manager.installed

    def fail() -> dict:
        raise PackageManagerError("The database is damaged.")

    def act(*_given: Any) -> None:
        host.manager.packages["lib"] = "2-1"
        monkeypatch.setattr(host.manager, "installed", fail)
        raise PackageManagerError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(host.manager, "act", act)
        with pytest.raises(
            TransactionError, match=r"^The disk is full. The host may be only partly restored, .*database is damaged"
        ):
            host.present(install=["app"])
    monkeypatch.setattr(host.manager, "installed", installed)
    assert host.journal.is_unfinished()
    assert host.present(install=["app"]).repaired == ["an interrupted transaction"]
    assert host.manager.repaired
    host.absent()
    assert host.manager.packages == {"vim": "1-1"}


# --- absent -------------------------------------------------------------------------------------------------------


def test_absent_keeps_what_others_need(tmp_path: Path) -> None:
    host = new_host(tmp_path, APP2, LIB2, Package("tool"), installed=(VIM,))
    host.present(install=["app", "tool"], hold=["app"])
    user = Package("user", needs=("lib>=2-1",))
    host.manager.packages["user"] = "1-1"
    host.manager.known["user", "1-1"] = user
    simulated = host.absent(check_mode=True, keep=["to*"])
    done = host.absent(keep=["to*"])
    assert done == simulated
    assert (done.kept, done.released, [*map(str, done.changes)]) == (["lib", "tool"], ["app"], ["remove app 2-1"])
    assert {*host.manager.packages} == {"vim", "user", "lib", "tool"}
    assert not (tmp_path / "var/lib/gpufleet").exists()
    assert not host.absent().changed


@pytest.mark.parametrize("options", [{}, {"keep": ["app"]}])
def test_absent_refuses_to_remove_what_others_need(tmp_path: Path, options: dict) -> None:
    host = new_host(tmp_path, APP2, LIB2, installed=(VIM,))
    host.present(install=["app"])
    if not options:
        host.manager.known["user", "1-1"] = Package("user", needs=("lib",))
        host.manager.packages["user"] = "1-1"
    before = host.snapshot()
    with pytest.raises(
        TransactionError, match=r"^Removing lib would break other installed packages: (user|app)\. Remove these"
    ):
        host.absent(remove=["lib"], **options)
    assert host.snapshot() == before


def test_absent_keeps_packages_that_the_user_holds(tmp_path: Path) -> None:
    host = new_host(tmp_path, APP2, LIB2, installed=(VIM,))
    host.present(install=["app"])
    host.manager.hold(["lib"])
    assert host.absent().kept == ["lib"]
    assert host.manager.state()["held"] == ["lib"]


@pytest.mark.parametrize("changed_since", [True, False])
def test_absent_restores_files_of_others(tmp_path: Path, changed_since: bool) -> None:
    host = new_host(tmp_path, APP2, LIB2, installed=(VIM,))
    sources = tmp_path / SOURCES.lstrip("/")
    sources.write_text("deb http://me:secret@deb.example/debian stable main\n")
    sources.chmod(0o600)
    host.present(
        install=["app"], components=["contrib"], files=[RepositoryFile("/etc/apt/preferences.d/pins", b"pins")]
    )
    if changed_since:
        sources.write_text("mine\n")
    before = sources.read_text()
    host.absent()
    assert sources.read_text() == (before if changed_since else "deb http://me:secret@deb.example/debian stable main\n")
    assert not (tmp_path / "etc/apt/preferences.d/pins").exists()


def test_absent_removes_the_repository_that_a_role_wrote_without_recording_its_files(tmp_path: Path) -> None:
    host = new_host(tmp_path, installed=(VIM,))
    record = tmp_path / "var/lib/gpufleet/tools.json"
    record.parent.mkdir()
    record.write_text(f'{{"packages": [], "files": {{}}, "key": "{"A" * 40}"}}')
    for path in (
        role_file_paths.repository_entry(owned.REPOSITORY_ID, "apt"),
        role_file_paths.repository_key(owned.REPOSITORY_ID, "apt"),
    ):
        (tmp_path / path.lstrip("/")).parent.mkdir(parents=True)
        (tmp_path / path.lstrip("/")).write_bytes(packets(b"k"))
    result = host.absent()
    assert [item["after_header"] for item in result.files] == [
        role_file_paths.repository_entry(owned.REPOSITORY_ID, "apt"),
        role_file_paths.repository_key(owned.REPOSITORY_ID, "apt"),
    ]
    assert {*host.files()} == {SOURCES}


def test_a_failed_removal_sets_the_holds_again(tmp_path: Path) -> None:
    host = new_host(tmp_path, APP2, LIB2, installed=(VIM,))
    host.present(install=["app"], hold=["app"])
    host.manager.failing = {"act": 1}
    with pytest.raises(PackageManagerError):
        host.absent()
    assert host.manager.state()["held"] == ["app"]
    host.manager.failing = {}
    assert {change.name for change in host.absent().changes} == {"app", "lib"}
    assert host.manager.packages == {"vim": "1-1"}
