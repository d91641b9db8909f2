# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    transaction_versions,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction import (
    Question,
    TransactionError,
    query,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust, openpgp, role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_options import RepositoryError
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.fake_manager import (
    OFFLINE,
    SOURCES,
    Package,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import (
    OTHER_KEY,
    Host,
    new_host,
    request,
)

PINS = "/etc/apt/preferences.d/tools"
ENTRY = "/etc/apt/sources.list.d/tools.sources"
KEYRING = "/usr/share/keyrings/tools.gpg"
ARCHIVE = (
    Package("app", "1.0-1", needs=("lib",)),
    Package("app", "1.0-2", needs=("lib",)),
    Package("app", "2.0-1", needs=("lib>=2.0-1",)),
    Package("lib", "1.0-1"),
    Package("lib", "2.0-1"),
    Package("apple"),
    Package("rival", conflicts=("vim",)),
    Package("vim", "9-1"),
)
VIM = Package("vim", "8-1")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return new_host(tmp_path, *ARCHIVE, installed=(VIM,))


# --- install ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("installed", "install", "changes"),
    [
        ({}, "app", ["install app 2.0-1", "install lib 2.0-1"]),
        ({}, "app=1.0-1", ["install app 1.0-1", "install lib 2.0-1"]),
        ({}, "app=1.0", ["install app 1.0-2", "install lib 2.0-1"]),
        ({}, "app>=1.5", ["install app 2.0-1", "install lib 2.0-1"]),
        ({"lib": "1.0-1"}, "app=1.0", ["install app 1.0-2"]),
        ({"app": "1.0-1", "lib": "1.0-1"}, "app", []),
        ({"app": "1.0-1", "lib": "1.0-1"}, "app=1.0", []),
        ({"app": "1.0-1", "lib": "1.0-1"}, "app>=0.9", []),
        ({"app": "1.0-1", "lib": "1.0-1"}, "app=1.0-2", ["upgrade app from 1.0-1 to 1.0-2"]),
        ({"app": "2.0-1", "lib": "2.0-1"}, "app=1.0", ["downgrade app from 2.0-1 to 1.0-2"]),
        ({"app": "2.0-1", "lib": "2.0-1"}, "lib:amd64", []),
        ({}, "lib:amd64=1.0-1", ["install lib 1.0-1"]),
    ],
)
def test_install(host: Host, installed: dict, install: str, changes: list[str]) -> None:
    host.manager.packages.update(installed)
    simulated = host.present(check_mode=True, install=[install])
    assert [*map(str, simulated.changes)] == changes
    done = host.present(install=[install])
    assert done == simulated
    assert done.changed == bool(changes)
    came = {re.split(r" ", change)[1] for change in changes if change.startswith("install")}
    assert {*host.recorded().get("packages", [])} == came
    before = host.snapshot()
    assert not host.present(install=[install]).changed
    assert host.snapshot() == before
    assert {*host.manager.calls} <= OFFLINE


@pytest.mark.parametrize(
    ("installed", "install", "changes"),
    [
        ({}, "app>=1.0", ["install app 1.0-2", "install lib 2.0-1"]),
        ({}, "app>=1.5", ["install app 2.0-1", "install lib 2.0-1"]),
        ({"app": "1.0-1", "lib": "1.0-1"}, "app>=1.0-2", ["upgrade app from 1.0-1 to 1.0-2"]),
        ({"app": "1.0-2", "lib": "2.0-1"}, "app:amd64>=2", ["upgrade app from 1.0-2 to 2.0-1"]),
    ],
)
def test_a_pinned_version_counts_if_it_is_new_enough(
    host: Host, installed: dict, install: str, changes: list[str]
) -> None:
    host.manager.preferred = {"app": "1.0-2"}
    host.manager.packages.update(installed)
    simulated = host.present(check_mode=True, install=[install])
    assert [*map(str, simulated.changes)] == changes
    assert host.present(install=[install]) == simulated
    assert not host.present(install=[install]).changed


@pytest.mark.parametrize(
    ("installed", "install", "changes"),
    [
        ({}, ["tool"], ["install app 2.0-1", "install lib 2.0-1"]),
        ({}, ["tool", "app=1.0"], ["install app 1.0-2", "install lib 2.0-1"]),
        ({}, ["editor", "vim=9"], ["upgrade vim from 8-1 to 9-1"]),
        ({}, ["editor", "lib"], ["install lib 2.0-1"]),
        ({"app": "1.0-1", "lib": "1.0-1"}, ["tool"], []),
    ],
    ids=["provider", "requested provider", "one of two is requested", "one of two is installed", "installed provider"],
)
def test_a_virtual_name(host: Host, installed: dict, install: list[str], changes: list[str]) -> None:
    host.manager.virtual = {"tool": ["app"], "editor": ["rival", "vim"]}
    host.manager.packages.update(installed)
    simulated = host.present(check_mode=True, install=install)
    assert [*map(str, simulated.changes)] == changes
    assert host.present(install=install) == simulated
    assert {"tool", "editor"}.isdisjoint(host.recorded().get("requested", []))
    assert not host.present(install=install).changed


def test_a_virtual_name_of_several_packages_is_refused(host: Host) -> None:
    host.manager.virtual = {"tool": ["app", "rival"]}
    before = host.snapshot()
    with pytest.raises(
        TransactionError, match=r"No package has the name tool\. Several packages provide it: app, rival"
    ):
        host.present(install=["tool"])
    assert host.snapshot() == before


NATIVE = {"all": {"data": "1 all", "lib": "2 i386", "libc6": "3 amd64, 4 i386"}, "native": "amd64"}
RPM = {"all": {"glibc": "1 x86_64, 2 i686", "dpkg": "3 x86_64", "data": "4 noarch"}}


@pytest.mark.parametrize(
    ("name", "state", "found"),
    [
        ("data", NATIVE, ["1"]),
        ("data:amd64", NATIVE, ["1"]),
        ("data:i386", NATIVE, []),
        ("lib", NATIVE, []),
        ("lib:i386", NATIVE, ["2"]),
        ("lib:any", NATIVE, ["2"]),
        ("libc6", NATIVE, ["3"]),
        ("libc6:i386", NATIVE, ["4"]),
        ("libc6:any", NATIVE, ["3", "4"]),
        ("glibc", RPM, ["1", "2"]),
        ("data", RPM, ["4"]),
    ],
)
def test_installed_versions_by_architecture(name: str, state: dict, found: list[str]) -> None:
    assert transaction_versions.versions(name, state) == found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"install": ["aple"]}, "no package aple. Packages with similar names: apple."),
        ({"install": ["nothing"]}, "no package nothing. Correct the name"),
        ({"install": ["app=3.0"]}, "not contain app=3.0. Available versions of app: 2.0-1, 1.0-2, 1.0-1."),
        ({"install": ["app>=3"]}, "not contain app>=3. Available versions of app: 2.0-1, 1.0-2, 1.0-1."),
        ({"install": ["aple", "app=3.0"]}, "not contain app=3.0"),
        ({"streams": ["nvidia:9"]}, "no stream 9 of module nvidia (streams: 1, 2)"),
        ({"streams": ["other:9"]}, "no stream 9 of module other (streams: none)"),
    ],
)
def test_what_no_repository_offers_changes_nothing(host: Host, options: dict, message: str) -> None:
    host.manager.offered_streams = {"nvidia": ["1", "2"]}
    before = host.snapshot()
    for check_mode in (True, False):
        with pytest.raises(TransactionError, match=re.escape(message)):
            host.present(check_mode=check_mode, **options)
        assert host.snapshot() == before


FILE = "/root/app.deb"


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
@pytest.mark.parametrize("installed", [{}, {"app": "1.0-1"}, {"app": "2.0-1"}])
def test_a_package_file(tmp_path: Path, manager: str, installed: dict) -> None:
    host = new_host(tmp_path, *ARCHIVE, installed=(VIM,), name=manager)
    host.manager.packages.update({"lib": "2.0-1", **installed})
    # The repositories do not have this version.
    host.manager.package_files[FILE] = Package("app", "1.5-1", needs=("lib",))
    options = {"install": [FILE], "hold": ["app"]}
    simulated = host.present(check_mode=True, **options)
    assert [(change.name, change.after) for change in simulated.changes] == [("app", "1.5-1")]
    assert host.present(**options) == simulated
    assert host.manager.state()["held"] == ["app"]
    assert not host.present(**options).changed
    assert {*host.manager.calls} <= OFFLINE
    assert host.recorded().get("requested", []) == ([] if installed else ["app"])
    host.absent()
    assert ("app" in host.manager.packages) == bool(installed)


def test_a_package_file_is_judged_like_other_packages(host: Host) -> None:
    host.manager.package_files[FILE] = Package("app", "1.5-1", needs=("lib>=2.0-1",))
    host.manager.packages.update({"app": "1.0-1", "lib": "1.0-1"})
    with pytest.raises(TransactionError, match=r"for /root/app.deb .*: upgrade lib from 1.0-1 to 2.0-1 \(not in may"):
        host.present(install=[FILE])
    host.manager.hold(["app"])
    with pytest.raises(TransactionError, match=r"upgrade app from 1.0-1 to 1.5-1 \(held\)"):
        host.present(install=[FILE], may_upgrade=True)


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_missing_package_file_changes_nothing(host: Host, check_mode: bool) -> None:
    before = host.snapshot()
    with pytest.raises(PackageManagerError, match=r"/root/none\.deb is missing"):
        host.present(check_mode=check_mode, install=["/root/none.deb"], remove=["vim"])
    assert host.snapshot() == before
    assert not host.changing_calls()


@pytest.mark.parametrize("what", ["package", "version"])
def test_the_host_decides_otherwise_than_the_view(host: Host, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    host.manager.packages["lib"] = "1.0-1"
    before = host.snapshot()
    options = {"install": ["agent"], "repositories": [host.repository(packages=(Package("agent", "3-1"),))]}
    newer = Package("agent", "4-1", needs=("lib>=2.0-1",) if what == "version" else ("apple",))
    apply = host.manager.apply

    def apply_and_publish(files: list[RepositoryFile]) -> None:
        host.manager.repositories[ENTRY].append(newer)
        apply(files)

    monkeypatch.setattr(host.manager, "apply", apply_and_publish)
    if what == "version":
        # The new version needs a change that is not allowed.
        with pytest.raises(TransactionError, match=r"upgrade lib .* No package was changed.*Restored: 2 files\.$"):
            host.present(**options)
        assert "act" not in host.manager.calls
        assert host.snapshot() == before
        return
    assert [*map(str, host.present(**options).changes)] == ["install agent 4-1", "install apple 1-1"]
    assert host.recorded()["packages"] == ["agent", "apple"]
    host.absent()
    assert host.snapshot() == before


def test_a_transaction_without_new_files_is_simulated_once(host: Host) -> None:
    host.present(install=["apple"])
    assert host.manager.calls.count("simulate") == 1


def test_a_package_that_the_manager_ignores_is_an_error(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.manager, "simulate", lambda *_given: [])
    with pytest.raises(TransactionError, match="would not install app, but reported no error"):
        host.present(install=["app"])
    assert not host.changing_calls()


def test_the_simulation_of_a_transaction_with_everything_changes_nothing(tmp_path: Path) -> None:
    host = new_host(tmp_path, *ARCHIVE, installed=(VIM, Package("old")), offered_streams={"nvidia": ["1"]})
    options = {
        "install": ["agent", "app"],
        "remove": ["old"],
        "hold": ["agent", "lib", "vim=8*"],
        "repositories": [host.repository(packages=(Package("agent", "3-1"),))],
        "components": ["contrib"],
        "streams": ["nvidia:1"],
        "files": [RepositoryFile(PINS, b"Package: *\n")],
    }
    before = host.snapshot()
    simulated = host.present(check_mode=True, **options)
    assert host.snapshot() == before
    assert not host.changing_calls()
    assert host.present(**options) == simulated
    assert simulated.held == ["agent", "lib", "vim"]
    assert {item["after_header"] for item in simulated.files} == {SOURCES, PINS, ENTRY, KEYRING}
    assert host.recorded()["requested"] == ["agent", "app"]
    assert host.present(**options).changed is False
    assert {*host.manager.calls} <= OFFLINE
    host.absent()
    files, state, enabled, metadata, locks = before
    del state["all"]["old"]
    assert host.snapshot() == (files, state, enabled, metadata, locks)


def test_a_query_changes_nothing(host: Host) -> None:
    host.manager.offered_streams = {"nvidia": ["1"]}
    before = host.snapshot()
    wanted = request(repositories=[host.repository(packages=(Package("agent", "3-1"),))])
    found = query(wanted, Question(["agent", "app"], ["nvidia"], ["app"]), host.manager, host.journal)
    assert found == {
        "versions": {"agent": ["3-1"], "app": ["2.0-1", "1.0-2", "1.0-1"]},
        "streams": {"nvidia": ["1"]},
        "dependencies": {"app": {"1.0-1": "lib", "1.0-2": "lib", "2.0-1": "lib>=2.0-1"}},
    }
    assert host.snapshot() == before
    assert not host.changing_calls()


def test_a_repair_alone_leaves_no_record(host: Host) -> None:
    host.manager.damage = ["dpkg was interrupted"]
    assert host.present(check_mode=True).repaired == ["dpkg was interrupted"]
    assert host.manager.damage
    assert host.present().repaired == ["dpkg was interrupted"]
    assert not host.manager.damage
    assert not host.recorded()


# --- allowed changes ----------------------------------------------------------------------------------------------

BOTH = {"app": "1.0-1", "lib": "1.0-1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"install": ["rival"]}, "remove vim 8-1 (not in may_change)"),
        ({"install": ["app=2.0"]}, "upgrade lib from 1.0-1 to 2.0-1 (not in may_change)"),
        ({"install": ["lib>=2"], "keep": ["lib"]}, None),
        (
            {"install": ["app=2.0"], "may_change": ["lib"], "keep": ["lib=2.*"]},
            "upgrade lib from 1.0-1 to 2.0-1 (in keep)",
        ),
        ({"install": ["app=2.0"], "may_upgrade": True}, None),
        ({"install": ["app=2.0"], "may_change": ["l?b=2.0"]}, None),
        ({"install": ["app=2.0"], "may_change": ["~^li=~1\\.[0-9]"]}, None),
        ({"install": ["app=2.0"], "may_change": ["lib:amd64"]}, None),
        ({"install": ["app=2.0"], "may_change": ["~^ib"]}, "upgrade lib"),
        ({"install": ["app=2.0"], "may_change": ["lib=3*"]}, "upgrade lib"),
        ({"install": ["rival"], "may_change": ["vim"]}, None),
        ({"install": ["rival"], "may_upgrade": True}, "remove vim"),
        ({"install": ["rival"], "remove": ["vim"]}, None),
        ({"install": ["rival"], "purge": ["vim:amd64"]}, None),
        ({"install": ["app=2.0", "lib:amd64=2.0"]}, None),
        ({"remove": ["lib"]}, "remove app 1.0-1 (not in may_change)"),
        ({"install": ["apple"], "keep": ["ap*"]}, None),
        # The other requested package would get a version other than the requested one.
        ({"install": ["app=2.0", "lib=1.0"], "may_change": ["*"]}, "(requested: lib=1.0)"),
    ],
)
def test_allowed_changes(host: Host, options: dict, message: str | None) -> None:
    host.manager.packages.update(BOTH)
    before = host.snapshot()
    for check_mode in (True, False):
        if message is None:
            assert host.present(check_mode=check_mode, **options).changes
            continue
        with pytest.raises(TransactionError, match=re.escape(message)):
            host.present(check_mode=check_mode, **options)
        assert host.snapshot() == before
        assert not host.changing_calls()


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        (["1.0-1", "2.0-1"], None),
        (["1.0-1", "3.0-1"], "install lib 3.0-1 (requested: lib=1.0-1, lib=2.0-1)"),
    ],
)
def test_two_versions_of_a_package(host: Host, monkeypatch, versions: list[str], message) -> None:
    # dnf installs the headers of each kernel beside the others.
    changes = [SimulatedChange("lib", "install", None, version, "amd64") for version in versions]
    monkeypatch.setattr(host.manager, "simulate", lambda *_given, **_more: changes)
    options = {"install": ["lib=1.0-1", "lib=2.0-1"], "check_mode": True}
    if message is None:
        assert host.present(**options).changes == changes
    else:
        with pytest.raises(TransactionError, match=re.escape(message)):
            host.present(**options)


# --- repositories -------------------------------------------------------------------------------------------------

AGENT = Package("agent", "3-1")


def test_a_repository_with_its_key(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = host.repository(packages=(AGENT,))
    seen: list[set[str]] = []
    act = host.manager.act
    monkeypatch.setattr(host.manager, "act", lambda *given: (seen.append({*host.files()}), act(*given)))
    host.present(install=["agent"], repositories=[repository])
    assert {ENTRY, KEYRING, "/var/lib/gpufleet/tools.json"} <= seen[0]
    assert {file.path for file in host.manager.seen} == {ENTRY, KEYRING}
    # The host has the key, so it is not fetched again for another setting.
    Path(repository.key).unlink()
    changed = dataclasses.replace(repository, priority=700)
    result = host.present(install=["agent"], repositories=[changed])
    assert [item["after_header"] for item in result.files] == [PINS]


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_wrong_key_changes_nothing(host: Host, check_mode: bool) -> None:
    repository = host.repository(packages=(AGENT,), key_file=OTHER_KEY)
    before = host.snapshot()
    with pytest.raises(key_trust.KeyTrustError, match="has the fingerprint"):
        host.present(check_mode=check_mode, install=["agent"], repositories=[repository])
    assert host.snapshot() == before
    assert not host.changing_calls()


@pytest.mark.parametrize("manager", ["dnf", "zypper"])
def test_a_key_file_with_a_further_key_is_replaced(tmp_path: Path, manager: str) -> None:
    host = new_host(tmp_path, *ARCHIVE, name=manager)
    repository = host.repository(packages=(AGENT,))
    host.present(install=["agent"], repositories=[repository])
    key = tmp_path / role_file_paths.repository_key("tools", manager).lstrip("/")
    verified = key.read_bytes()
    further = openpgp.fingerprints(OTHER_KEY)[0]
    package = f"gpg-pubkey-{further[-8:].lower()}"
    # As an earlier version left it: rpm imported both keys of the file.
    key.write_bytes(verified + openpgp.armored(OTHER_KEY))
    host.manager.keys[package] = str(key)
    assert host.present(install=["agent"], repositories=[repository]).changed
    assert key.read_bytes() == verified
    assert host.recorded()["further_keys"] == [further]
    assert not host.present(install=["agent"], repositories=[repository]).changed
    # The user erases the key.
    del host.manager.keys[package]
    host.present(install=["agent", "app"], repositories=[repository])
    assert "further_keys" not in host.recorded()


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
@pytest.mark.parametrize("step", ["apply", "act"])
def test_a_failure_restores_the_files(tmp_path: Path, manager: str, step: str) -> None:
    host = new_host(tmp_path, *ARCHIVE, installed=(VIM,), name=manager, enabled={"nvidia": "1"})
    host.manager.offered_streams = {"nvidia": ["2"]}
    old = tmp_path / "etc/yum.repos.d/old.repo"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"[old]\n")
    old.chmod(0o600)
    before = host.snapshot()
    host.manager.failing = {step: 1}
    with pytest.raises(TransactionError, match=rf"^{step} failed\. Restored: 4 files\.$"):
        host.present(
            install=["agent"],
            hold=["agent", "vim"],
            streams=["nvidia:2"],
            repositories=[host.repository(packages=(AGENT,), replaces=("/etc/yum.repos.d/old.repo",))],
            files=[RepositoryFile(SOURCES, b"changed\n")],
        )
    assert host.snapshot() == before
    assert "forget" in host.manager.calls


def test_records_share_a_repository(host: Host) -> None:
    repository = host.repository(packages=(AGENT, Package("probe")))
    other = Host(host.root, host.manager, "other")
    host.present(install=["agent"], repositories=[repository])
    other.present(install=["probe"], repositories=[repository])
    assert host.absent().files == []
    assert host.files().keys() >= {ENTRY, KEYRING}
    assert [item["after_header"] for item in other.absent().files] == [ENTRY, KEYRING]
    assert not {ENTRY, KEYRING} & host.files().keys()
    assert host.manager.packages == {"vim": "8-1"}
    assert not host.manager.metadata


@pytest.mark.parametrize("holds", [["probe"], []])
def test_the_plugin_stays_while_another_record_has_holds(tmp_path: Path, holds: list[str]) -> None:
    plugin = "python3-dnf-plugin-versionlock"
    host = new_host(tmp_path, Package(plugin), AGENT, Package("probe"), name="dnf")
    other = Host(host.root, host.manager, "other")
    host.present(install=["agent", plugin])
    other.present(install=["probe"], hold=holds)
    assert host.absent().kept == ([plugin] if holds else [])
    assert (plugin in host.manager.packages) is bool(holds)


def test_the_plugin_goes_if_the_packages_that_another_record_holds_are_gone(tmp_path: Path) -> None:
    plugin = "python3-dnf-plugin-versionlock"
    host = new_host(tmp_path, Package(plugin), AGENT, Package("probe"), name="dnf")
    Host(host.root, host.manager, "other").present(install=["probe"], hold=["probe"])
    host.present(install=["agent", plugin])
    # The user removed the package.
    del host.manager.packages["probe"]
    assert host.absent().kept == []
    assert plugin not in host.manager.packages


def test_an_unreadable_file_fails_with_its_path(host: Host) -> None:
    # Root can read everything, so a directory takes the place of the file.
    (host.root / PINS.lstrip("/")).mkdir(parents=True)
    with pytest.raises(RepositoryError, match=re.escape(PINS)):
        host.present(check_mode=True, files=[RepositoryFile(PINS, b"x")])
    assert not host.changing_calls()


def test_dnf_releases_locks_on_versions_that_are_not_installed(tmp_path: Path) -> None:
    host = new_host(tmp_path, *ARCHIVE, installed=(VIM,), name="dnf")
    host.manager.locks = {"vim": {"7-1", "8-1"}, "agent": {"1.0-1"}, "other": {"1.0-1"}}
    wanted = {"hold": ["vim"], "release": ["~^(vim|agent)$"]}
    assert host.present(check_mode=True, **wanted).released == ["agent-1.0-1.*", "vim-7-1.*"]
    assert host.present(**wanted).changed
    assert host.manager.locks == {"vim": {"8-1"}, "agent": set(), "other": {"1.0-1"}}
    assert not host.present(**wanted).changed


def test_a_removal_never_purges_docker_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its purge deletes /var/lib/docker with all volumes."""
    host = new_host(tmp_path, Package("docker.io", "20-1"), Package("app"))
    host.present(install=("docker.io", "app"))
    steps = []
    act = host.manager.act
    monkeypatch.setattr(host.manager, "act", lambda step: (steps.append(step), act(step))[1])
    host.absent()
    assert host.manager.packages == {}
    assert [(sorted(step.remove), sorted(step.purge)) for step in steps] == [(["docker.io"], ["app"])]


def test_configuration_files_of_a_removed_docker_io_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = new_host(tmp_path, Package("docker.io", "20-1"), Package("app"))
    host.present(install=("docker.io", "app"))
    # The user removed both without a purge.
    host.manager.packages.clear()
    state = {**host.manager.state(), "config_files": ["app", "docker.io"]}
    monkeypatch.setattr(host.manager, "state", lambda: state)
    assert [change.name for change in host.absent(check_mode=True).changes] == ["app"]
