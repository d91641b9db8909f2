# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single steps of the migration: what they change in a file, and their errors."""

from __future__ import annotations

import http.client
import json
import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.unix_http import UnixConnection
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import (
    observed_leftovers,
    steps_on_host,
    volume_plugin_stub,
)

UNIT = "/etc/systemd/system/docker.service.d/x.conf"
LINES = "# Docker\nExecStart=/usr/bin/dockerd -H fd://{} --debug\n"


class Docker:
    """Docker with one container, whose volumes cannot be removed."""

    def __init__(self, *, running: bool = False) -> None:
        self.running, self.removed = running, list[str]()

    def inspect(self, identifier: str) -> dict[str, t.Any] | None:
        return {"Id": identifier, "State": {"Running": self.running}} if identifier == "a" else None

    def remove_container(self, identifier: str) -> None:
        self.removed.append(identifier)

    def remove(self, name: str) -> None:
        raise EngineError(f"Docker rejected DELETE /volumes/{name} with status 409: volume is in use.")


def carry_out(root: Path, *steps: dict[str, t.Any], docker: Docker | None = None, rc: int = 0) -> list[str]:
    return steps_on_host.Migrator(str(root), docker or Docker(), lambda argv: (rc, "", "no")).apply([*steps])


@pytest.mark.parametrize(
    "flag",
    [
        " --add-runtime=nvidia=/usr/bin/nvidia-container-runtime",
        " --add-runtime nvidia=/usr/bin/nvidia-container-runtime",
        ' --add-runtime="nvidia=/usr/bin/nvidia-container-runtime"',
    ],
)
def test_only_the_flag_of_the_runtime_is_dropped(tmp_path: Path, flag: str) -> None:
    file = tmp_path / UNIT[1:]
    file.parent.mkdir(parents=True)
    file.write_text(LINES.format(f" --add-runtime=kata=/x{flag}"))
    assert carry_out(tmp_path, {"do": "drop_flag", "path": UNIT}) == [f"drop flag {UNIT}"]
    assert file.read_text() == LINES.format(" --add-runtime=kata=/x")
    assert carry_out(tmp_path, {"do": "drop_flag", "path": UNIT}) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"runtimes": {"nvidia": {"path": "x"}}}', None),
        ('{\n\t"debug": true,\n\t"runtimes": {"nvidia": {"path": "x"}}\n}', '{\n\t"debug": true\n}\n'),
        (
            '{\r\n  "runtimes": {"kata": {"path": "k"}, "nvidia": {}}, "x": 1\r\n}',
            '{\r\n  "runtimes": {\r\n    "kata": {\r\n      "path": "k"\r\n    }\r\n  },\r\n  "x": 1\r\n}\r\n',
        ),
        ('{"debug": true}', '{"debug": true}'),
    ],
)
def test_runtime_is_released_and_other_keys_stay(tmp_path: Path, before: str, after: str | None) -> None:
    file = tmp_path / "d.json"
    file.write_bytes(before.encode())
    carry_out(tmp_path, {"do": "release_runtime", "path": "/d.json"})
    assert (file.read_bytes().decode() if file.exists() else None) == after


@pytest.mark.parametrize(
    ("name", "before", "places", "after"),
    [
        ("a.list", "# x\ndeb old /\ndeb mine /\r\n#deb old /\n", [2], "# x\ndeb mine /\r\n#deb old /\n"),
        (
            "a.sources",
            "Types: deb\nURIs: old\nSuites: /\n\n# Mine.\nTypes: deb\nURIs: mine\n",
            [1],
            "# Mine.\nTypes: deb\nURIs: mine\n",
        ),
        ("a.sources", "URIs: mine\n\nURIs: old\nSuites: /\n", [3], "URIs: mine\n\n"),
        ("a.repo", "[old]\nbaseurl=x\n[mine]\nbaseurl=y\n", ["old"], "[mine]\nbaseurl=y\n"),
        ("a.repo", "[mine]\nbaseurl=y\n\n[old]\nbaseurl=x\nenabled=0\n", ["old"], "[mine]\nbaseurl=y\n\n"),
    ],
)
def test_only_old_entries_are_removed_from_a_file(
    tmp_path: Path, name: str, before: str, places: list[t.Any], after: str
) -> None:
    (tmp_path / name).write_bytes(before.encode())
    carry_out(tmp_path, {"do": "remove_entries", "path": f"/{name}", "places": places})
    assert (tmp_path / name).read_bytes().decode() == after


def test_running_container_is_never_removed(tmp_path: Path) -> None:
    docker = Docker(running=True)
    with pytest.raises(steps_on_host.MigrationError, match="Container train runs now, so it was not removed"):
        carry_out(tmp_path, {"do": "remove_container", "id": "a", "name": "train"}, docker=docker)
    assert docker.removed == []
    assert carry_out(tmp_path, {"do": "remove_container", "id": "gone", "name": "x"}, docker=docker) == []


def test_description_is_written_before_the_container_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = Docker()
    monkeypatch.setattr(
        steps_on_host.os,
        "replace",
        lambda *_names: (nothing for nothing in ()).throw(OSError("No space left on device")),
    )
    with pytest.raises(steps_on_host.MigrationError, match=r"Step 'remove container train' .* failed: No space left"):
        carry_out(tmp_path, {"do": "remove_container", "id": "a", "name": "train"}, docker=docker)
    assert docker.removed == []


def test_error_names_the_step_and_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(observed_leftovers, "SOCKETS", ())
    with pytest.raises(steps_on_host.MigrationError) as caught:
        carry_out(tmp_path, {"do": "remove_volume", "name": "nvidia_driver_1"})
    assert "Step 'remove volume nvidia_driver_1' of the migration from nvidia-docker failed: Docker" in str(
        caught.value
    )
    assert "volume is in use. Fix the cause and run the playbook again" in str(caught.value)
    with pytest.raises(steps_on_host.MigrationError, match="systemctl disable --now x failed with status 1: no"):
        carry_out(tmp_path, {"do": "stop_unit", "unit": "x"}, rc=1)


def test_stub_answers_what_the_removal_of_a_volume_needs_and_refuses_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def ask(path: str, name: str = "v") -> tuple[int, dict[str, t.Any]]:
        connection = UnixConnection("new/s", 5)
        connection.request("POST", path, json.dumps({"Name": name}), {"Accept": "x"})
        response: http.client.HTTPResponse = connection.getresponse()
        return response.status, json.loads(response.read())

    with volume_plugin_stub.answering(["new/s"], ["v"]):
        assert ask("/Plugin.Activate") == (200, {"Err": "", "Implements": ["VolumeDriver"]})
        assert ask("/VolumeDriver.Get")[1]["Volume"]["Name"] == "v"
        assert ask("/VolumeDriver.Remove") == (200, {"Err": ""})
        # A volume that somebody creates meanwhile is not one of the plugin.
        assert ask("/VolumeDriver.Get", "other") == (200, {"Err": "no such volume: other"})
        assert ask("/VolumeDriver.Create")[0] == 404
        assert ask("/VolumeDriver.Mount")[0] == 404
    assert os.listdir(tmp_path) == []


def test_socket_of_the_stub_is_only_for_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with volume_plugin_stub.answering(["new/s"], ["v"]):
        assert os.stat("new/s").st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("place", "reason"),
    [("etc/important", "it is no socket"), ("x" * 200, "path too long"), ("etc/important/s", "exists|directory")],
)
def test_a_wrong_specification_deletes_no_file(tmp_path: Path, place: str, reason: str) -> None:
    (tmp_path / "etc/docker/plugins").mkdir(parents=True)
    (tmp_path / "etc/important").write_text("kept")
    (tmp_path / "etc/docker/plugins/nvidia-docker.spec").write_text(f"unix:///{place}")
    with pytest.raises(steps_on_host.MigrationError, match=reason) as caught:
        carry_out(tmp_path, {"do": "remove_volume", "name": "v"})
    assert "/etc/docker/plugins/nvidia-docker.spec" in str(caught.value)
    assert (tmp_path / "etc/important").read_text() == "kept"


@pytest.mark.parametrize(
    ("entry", "mode"), [({"mode": 0o644, "uid": 0, "gid": 0}, 0o644), ({"mode": "rw", "x": 1}, 0o600), ({}, 0o600)]
)
def test_file_is_restored_also_with_a_damaged_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: dict[str, t.Any], mode: int
) -> None:
    owners = list[tuple[int, int]]()
    monkeypatch.setattr(steps_on_host.os, "chown", lambda _path, uid, gid: owners.append((uid, gid)))
    for path, text in (
        (owned.MIGRATION_DAEMON_JSON, "{}\n"),
        (observed_leftovers.RECORD, json.dumps({owned.DAEMON_JSON: entry})),
    ):
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path[1:]).write_text(text)
    assert carry_out(tmp_path, {"do": "restore", "path": owned.DAEMON_JSON}) == [f"restore {owned.DAEMON_JSON}"]
    restored = tmp_path / owned.DAEMON_JSON[1:]
    assert (restored.read_text(), restored.stat().st_mode & 0o777, owners) == ("{}\n", mode, [(0, 0)])


def test_key_keeps_its_owner_and_its_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_on_host.expired_copies_of_apt_key, "without", lambda _data: b"rest")
    (tmp_path / "real.gpg").write_bytes(b"both")
    owners = list[tuple[int, int]]()
    monkeypatch.setattr(steps_on_host.os, "chown", lambda _path, uid, gid: owners.append((uid, gid)))
    (tmp_path / "key.gpg").symlink_to(tmp_path / "real.gpg")
    carry_out(tmp_path, {"do": "remove_key", "path": "/key.gpg"})
    real = tmp_path / "real.gpg"
    assert ((tmp_path / "key.gpg").is_symlink(), real.read_bytes()) == (True, b"rest")
    assert owners == [(os.getuid(), os.getgid())]


def test_copies_are_deleted_and_descriptions_stay(tmp_path: Path) -> None:
    folder = tmp_path / owned.MIGRATION[1:]
    for name in ("daemon.json", "config.toml", "files.json", "containers/a.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    assert carry_out(tmp_path, {"do": "forget"}) == ["forget"]
    assert [path.name for path in folder.rglob("*.json")] == ["a.json"]
