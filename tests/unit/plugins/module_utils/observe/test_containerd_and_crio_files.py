# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import toml_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import containerd_and_crio_files

ROOT_FILE = "/etc/containerd/config.toml"


def read(folder: Path, **files: str) -> dict:
    """Observe a host with these files."""
    for path, text in files.items():
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return containerd_and_crio_files.read(str(folder))


def test_imports_are_read_in_the_order_of_containerd(tmp_path: Path) -> None:
    files = {
        ROOT_FILE: 'version = 2\nimports = [\n  "/srv/*.toml", # ours\n  "near.toml"]\n',
        "/srv/b.toml": "",
        "/srv/a.toml": 'imports = ["/srv/b.toml", "/etc/containerd/config.toml"]\n',
        "/etc/containerd/near.toml": "",
        "/etc/containerd/conf.d/x.toml": "",
    }
    found = read(tmp_path, **files)
    assert list(found["containerd"]) == [ROOT_FILE, "/srv/a.toml", "/srv/b.toml", "/etc/containerd/near.toml"]
    assert found["mode"] in ("0644", "0664", "0600")


def test_line_ends_of_windows_stay(tmp_path: Path) -> None:
    text = 'version = 2\r\nimports = [\r\n"/srv/a.toml"]\r\npassword = "s3cret"\r\n'
    files = {ROOT_FILE: text.encode(), "/srv/a.toml": b"a = 1\r\n", "/etc/crio/crio.conf": b"[crio]\r\n"}
    for path, content in files.items():
        (tmp_path / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path.lstrip("/")).write_bytes(content)
    found = containerd_and_crio_files.read(str(tmp_path))
    assert found["containerd"] == {ROOT_FILE: text.replace("s3cret", "********"), "/srv/a.toml": "a = 1\r\n"}
    assert found["crio"] == {"/etc/crio/crio.conf": "[crio]\r\n"}


def test_default_directory_is_read_without_a_root_file(tmp_path: Path) -> None:
    found = read(
        tmp_path, **{"/etc/containerd/conf.d/x.toml": "version = 3\n", "/etc/crio/crio.conf.d/10-crio.conf": "\n"}
    )
    assert found["containerd"] == {"/etc/containerd/conf.d/x.toml": "version = 3\n"}
    assert (found["crio"], found["mode"]) == ({"/etc/crio/crio.conf.d/10-crio.conf": "\n"}, None)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ('password = "s3cret"\n', True),
        ("x.auth = 's3cret' # y\n", True),
        ('auth = { username = "robot", password = "s3cret" }\n', True),
        ('identitytoken="s3cret"\n', True),
        ('Authorization = ["Basic s3cret"]\n', True),
        ('sandbox_image = "s3cret"\n', False),
    ],
)
def test_logins_are_masked(tmp_path: Path, text: str, hidden: bool) -> None:
    found = read(tmp_path, **{ROOT_FILE: f"version = 2\n{text}"})
    assert (found["masked"], "s3cret" in found["containerd"][ROOT_FILE]) == ([ROOT_FILE] if hidden else [], not hidden)


def test_files_of_others_are_named(tmp_path: Path) -> None:
    path = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    assert read(tmp_path, **{path: ""})["others"] == [path]


WITHOUT_TOMLLIB = pytest.mark.parametrize("reader", [None, toml_reader.read_plain])


@WITHOUT_TOMLLIB
@pytest.mark.parametrize(
    "imports",
    [
        'imports = ["/srv/a.toml"] # plain',
        'imports = [ "/srv/other.toml", # see [wiki]\n  "/srv/a.toml" ]',
        'imports = ["/srv/[a-b]*.toml"]',
        '"imports" = ["/srv/a.toml"]',
        "'imports' = ['/srv/a.toml']",
        'imports = ["/s*/a.toml"]',
        # A text on several lines, which the reader of an old Python rejects.
        'x = """\n"""\n"imports" = [ # [\n "/srv/a.toml"]',
    ],
)
def test_imports_of_every_form_are_read(imports: str, reader: t.Any, tmp_path: Path, monkeypatch: t.Any) -> None:
    if reader:
        monkeypatch.setattr(toml_reader, "read", reader)
    found = read(tmp_path, **{ROOT_FILE: f"version = 2\n{imports}\n", "/srv/a.toml": "a = 1\n"})
    assert found["containerd"].get("/srv/a.toml") == "a = 1\n"


def test_only_a_star_makes_a_pattern_which_finds_hidden_files(tmp_path: Path) -> None:
    files = {"/srv/.a.toml": "", "/srv/b.toml": ""}
    found = read(tmp_path, **{ROOT_FILE: 'imports = ["/srv/?.toml", "/srv/*.toml"]\n', **files})
    assert list(found["containerd"]) == [ROOT_FILE, *files]


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "srv/a.toml").mkdir(parents=True)
    assert read(tmp_path, **{ROOT_FILE: 'imports = ["/srv/a.toml", "/srv/none.toml"]\n'})["unread"] == ["/srv/a.toml"]


@pytest.mark.parametrize(
    "text",
    [
        'endpoint = ["https://ci:s3cret@mirror.example"]\n',
        'endpoint = ["https://near.example","https://ci:s3cret@mirror.example"]\n',
        "proxy = 'http://robot:s3cret@proxy.example:3128'\n",
        "# don't use https://ci:s3cret@mirror.example\n",
        'x = """\nhttps://ci:s3cret@mirror.example\n"""\n',
        'password = """s3cret"""\n',
        'password = """\nx"y\ns3cret"""\n',
        "password = '''\ns3cret'''\n",
        'client_key_passphrase = "s3cret"\n',
        'credential = "s3cret"\n',
        'bearer = "s3cret"\n',
        'headers = { Authorization = ["Basic a]b", "s3cret"] }\n',
    ],
)
def test_logins_of_every_form_are_masked_and_the_rest_stays(text: str, tmp_path: Path) -> None:
    found = read(tmp_path, **{ROOT_FILE: f"version = 2\n{text}y = 'near'\n"})
    assert (found["masked"], "s3cret" in found["containerd"][ROOT_FILE]) == ([ROOT_FILE], False)
    shown = toml_reader.read(found["containerd"][ROOT_FILE])
    assert (shown["version"], shown["y"]) == (2, "near")


@pytest.mark.parametrize(("age", "ignored"), [(5, ["/etc/rancher/k3s/config.yaml.d"]), (-5, [])])
def test_setting_that_is_older_than_the_generated_file_is_ignored(age: int, ignored: list[str], tmp_path: Path) -> None:
    path = distribution_paths.SETTINGS["k3s"]
    read(tmp_path, **{path: "default-runtime: nvidia\n", distribution_paths.GENERATED["k3s"]: ""})
    os.utime(tmp_path / path.lstrip("/"), (1000 - age, 1000 - age))
    os.utime(tmp_path / distribution_paths.GENERATED["k3s"].lstrip("/"), (1000, 1000))
    found = containerd_and_crio_files.read(str(tmp_path))["ignored"]
    assert [os.path.dirname(name) for name in found] == ignored


def test_addresses_without_logins_stay(tmp_path: Path) -> None:
    text = 'endpoint = ["https://mirror.example", "x@y"] # https://mirror.example\nimage = "pause@sha256:0"\n'
    found = read(tmp_path, **{ROOT_FILE: text})
    assert (found["masked"], found["containerd"][ROOT_FILE]) == ([], text)
