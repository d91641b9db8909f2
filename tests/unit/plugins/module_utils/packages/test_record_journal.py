# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import (
    login_digests,
    owned,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal, JournalError
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile

TOOLS = "/etc/apt/sources.list.d/tools.sources"
SOURCES = "/etc/apt/sources.list"
LEGACY = "/etc/apt/sources.list.d/legacy.list"


def state(*names: str, held: tuple[str, ...] = ()) -> dict:
    return {"all": dict.fromkeys(names, "1 all"), "held": [*held], "config_files": []}


def put(root: Path, path: str, text: str, mode: int = 0o644) -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    return file


def directory(root: Path) -> Path:
    return root / "var/lib/gpufleet"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    (tmp_path / "var/lib").mkdir(parents=True)
    return Journal("tools", str(tmp_path))


def test_a_transaction_from_begin_to_removal(tmp_path: Path, journal: Journal) -> None:
    put(tmp_path, SOURCES, "deb http://me:secret@archive.example/ main\n")
    put(tmp_path, LEGACY, "old", 0o600)
    files = [
        RepositoryFile(TOOLS, b"new"),
        RepositoryFile(SOURCES, b"deb http://me:secret@archive.example/ main contrib\n"),
        RepositoryFile(LEGACY, None),
    ]
    planned = [SimulatedChange("app", "install", None, "1.0-1", "amd64"), SimulatedChange("vim", "upgrade", "1", "2")]
    assert not journal.exists()
    journal.begin(
        state("vim"),
        enabled={},
        requested=["app"],
        planned=planned,
        files=files,
        repositories=["tools"],
        holds=["app"],
        released=["vim"],
    )
    begun = Journal("tools", str(tmp_path))
    assert begun.is_unfinished()
    assert begun.planned() == planned
    assert begun.previous() == [
        RepositoryFile(SOURCES, b"deb http://me:secret@archive.example/ main\n"),
        RepositoryFile(LEGACY, b"old", 0o600),
        RepositoryFile(TOOLS, None),
    ]
    for file in files:
        if file.content is not None:
            put(tmp_path, file.path, file.content.decode())
    now = state("vim", "app", "dependency", held=("app", "vim"))
    journal.finish(now, enabled={})
    text = (directory(tmp_path) / "tools.json").read_text()
    assert "secret" not in text
    assert json.loads(text).keys() == {"files", "holds", "packages", "repositories", "requested", "written"}
    assert not journal.is_unfinished()
    found = journal.removal(now, enabled={})
    assert (found.requested, found.dependencies, found.holds) == (["app"], ["dependency"], ["app"])
    assert (found.repositories, found.files) == (["tools"], [TOOLS])
    main = login_digests.sealed("deb http://me:secret@archive.example/ main")
    assert found.restore == [{"path": SOURCES, "before": f"{main}\n", "after": f"{main} contrib\n"}]
    journal.forget()
    assert not directory(tmp_path).exists()


def test_a_failed_transaction_leaves_no_trace(tmp_path: Path, journal: Journal) -> None:
    put(tmp_path, SOURCES, "main")
    files = [RepositoryFile(TOOLS, b"new"), RepositoryFile(SOURCES, b"main contrib")]
    journal.begin(state("vim"), enabled={}, requested=["app"], files=files, repositories=["tools"], keys=["E" * 40])
    journal.finish(state("vim"), enabled={})
    assert not directory(tmp_path).exists()


def test_packages_between_an_interrupted_run_and_the_next_are_uncertain(tmp_path: Path, journal: Journal) -> None:
    journal.begin(state("vim"), enabled={}, requested=["app"])
    again = Journal("tools", str(tmp_path))
    again.begin(state("vim", "app", "other"), enabled={}, requested=["more"])
    again.finish(state("vim", "app", "other", "more", "dependency"), enabled={})
    known = again.read()
    assert (known["packages"], known["uncertain"]) == (["app", "dependency", "more"], ["other"])
    assert known["requested"] == ["app", "more"]


def test_a_run_without_a_transaction_completes_an_interrupted_run(tmp_path: Path, journal: Journal) -> None:
    journal.begin(state("vim"), enabled={}, requested=["app"])
    Journal("tools", str(tmp_path)).finish(state("vim", "app", "other"), enabled={})
    known = journal.read()
    assert (known["packages"], known["uncertain"], known["pending"]) == (["app"], ["other"], [])


def test_a_file_of_another_record_is_not_restored(tmp_path: Path, journal: Journal) -> None:
    put(tmp_path, TOOLS, "old")
    put(tmp_path, role_file_paths.repository_entry(owned.REPOSITORY_ID, "apt"), "old")
    put(tmp_path, "/var/lib/gpufleet/first.json", json.dumps({"packages": [], "written": [TOOLS]}))
    files = [
        RepositoryFile(TOOLS, b"new"),
        RepositoryFile(role_file_paths.repository_entry(owned.REPOSITORY_ID, "apt"), b"new"),
    ]
    journal.begin(state("vim"), enabled={}, files=files, repositories=["tools", owned.REPOSITORY_ID])
    found = journal.removal(state("vim"), enabled={})
    assert (found.restore, found.files) == ([], [role_file_paths.repository_entry(owned.REPOSITORY_ID, "apt")])
    (directory(tmp_path) / "first.json").unlink()
    assert journal.removal(state("vim"), enabled={}).files == sorted(
        [TOOLS, role_file_paths.repository_entry(owned.REPOSITORY_ID, "apt")]
    )


def test_the_former_streams_are_known_while_the_transaction_runs(journal: Journal) -> None:
    journal.begin(state("vim"), enabled={"nvidia-driver": "570"}, streams=["nvidia-driver:580-open", "php:8"])
    assert journal.former_streams({"nvidia-driver": "570"}) == ["nvidia-driver:570"]
    journal.finish(state("vim"), enabled={"nvidia-driver": "580-open"})
    now = state("vim")
    assert journal.removal(now, enabled={"nvidia-driver": "580-open"}).streams == [
        {"module": "nvidia-driver", "before": "nvidia-driver:570"}
    ]


@pytest.mark.parametrize(
    ("enabled", "former"),
    [
        ({"nvidia-driver": "580"}, ["nvidia-driver:580"]),
        # The user enabled another one since.
        ({"nvidia-driver": "575"}, ["nvidia-driver:575"]),
        # An interrupted run reset the stream, or enabled the new one.
        ({}, ["nvidia-driver:580"]),
        ({"nvidia-driver": "590"}, ["nvidia-driver:580"]),
    ],
)
def test_a_failed_switch_restores_the_stream_of_the_last_transaction(
    journal: Journal, enabled: dict[str, str], former: list[str]
) -> None:
    journal.begin(state("vim"), enabled={}, streams=["nvidia-driver:580"])
    journal.finish(state("vim", "app"), enabled={"nvidia-driver": "580"})
    journal.begin(state("vim", "app"), enabled={"nvidia-driver": "580"}, streams=["nvidia-driver:590"])
    assert journal.former_streams(enabled) == former


def test_only_records_of_packages_count(tmp_path: Path, journal: Journal) -> None:
    put(tmp_path, owned.DRIVER_REBOOT_MARKER, '{"reaso')
    put(tmp_path, "/var/lib/gpufleet/docker_daemon_config/%2Fetc.json", '{"packages": ["vim"]}')
    put(tmp_path, "/var/lib/gpufleet/later.json", '["packages"]')
    put(tmp_path, "/var/lib/gpufleet/nvidia_driver_initramfs", "")
    put(tmp_path, owned.DRIVER_RECORD, '{"packages": ["dkms"], "files": {}}')
    assert [other["packages"] for other in journal.others()] == [["dkms"]]


@pytest.mark.parametrize(
    "text", ["", '{"packages": ["vim"', "[]", '{"packages": "vim"}', '{"packages": [], "planned": [["vim"]]}']
)
def test_a_damaged_record_is_an_error(tmp_path: Path, journal: Journal, text: str) -> None:
    put(tmp_path, "/var/lib/gpufleet/tools.json", text)
    with pytest.raises(JournalError, match=r"/var/lib/gpufleet/tools\.json is damaged: .*remove the file"):
        journal.read()
    with pytest.raises(JournalError, match=r"tools\.json is damaged"):
        journal.begin(state("vim"), enabled={})
    assert (directory(tmp_path) / "tools.json").read_text() == text


def test_a_damaged_other_record_is_an_error(tmp_path: Path, journal: Journal) -> None:
    put(tmp_path, owned.DRIVER_RECORD, '{"packages": ["dk')
    with pytest.raises(JournalError, match=r"nvidia_driver\.json is damaged"):
        journal.removal(state("vim"), enabled={})


def test_permissions_do_not_depend_on_the_umask(tmp_path: Path, journal: Journal) -> None:
    former = os.umask(0o077)
    try:
        journal.begin(state("vim"), enabled={})
    finally:
        os.umask(former)
    assert directory(tmp_path).stat().st_mode & 0o777 == 0o755
    assert (directory(tmp_path) / "tools.json").stat().st_mode & 0o777 == 0o600


def test_an_interrupted_write_leaves_the_former_record(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.begin(state("vim"), enabled={}, requested=["app"])
    former = (directory(tmp_path) / "tools.json").read_text()
    calls: list[str] = []

    def killed(*_arguments: object) -> None:
        calls.append("replace")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            journal.begin_removal(["vim"])
    assert calls == ["replace"]
    assert (directory(tmp_path) / "tools.json").read_text() == former
    assert len(list(directory(tmp_path).iterdir())) == 2
    journal.begin_removal(["vim"])
    assert [path.name for path in directory(tmp_path).iterdir()] == ["tools.json"]


def test_the_data_is_on_the_disk_before_the_record_has_its_name(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.begin(state("vim"), enabled={})
    calls = []
    fsync, replace = os.fsync, os.replace
    kinds = {True: "directory", False: "file"}

    def synced(handle: int) -> None:
        calls.append(kinds[os.path.isdir(f"/proc/self/fd/{handle}")])
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("replace"), replace(*names)))
    journal.begin_removal(["vim"])
    assert calls == ["file", "replace", "directory"]


def test_forget_keeps_other_files(tmp_path: Path, journal: Journal) -> None:
    journal.forget()
    journal.begin(state("vim"), enabled={})
    other = put(tmp_path, "/var/lib/gpufleet/volumes/list", "")
    journal.forget()
    assert not journal.exists()
    assert other.exists()


@pytest.mark.parametrize(
    "name",
    [
        *("", "../x", "Tools", "a.json"),
        *("nvidia_driver_reboot", "nvidia_driver_runfile", "container_engine_users"),
        *("nvidia_container_toolkit_config", "containerd_config"),
    ],
)
def test_names_of_records_are_checked(name: str) -> None:
    with pytest.raises(JournalError, match="name"):
        Journal(name)
