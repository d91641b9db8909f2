# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of repositories on a host: which are outdated, how they are written, and what a diff shows."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import file_writing, openpgp
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_options import RepositoryError

ENTRY = "/etc/yum.repos.d/x.repo"
BODY = b"\x04" + b"k" * 60
KEY = b"\x99" + len(BODY).to_bytes(2, "big") + BODY
FINGERPRINT = openpgp.fingerprints(KEY)[0]


@pytest.fixture(name="root")
def _root(tmp_path):
    """Create a host with one file."""
    (tmp_path / "etc/yum.repos.d").mkdir(parents=True)
    (tmp_path / "etc/yum.repos.d/x.repo").write_bytes(b"one\n")
    (tmp_path / "etc/yum.repos.d/x.repo").chmod(0o644)
    return tmp_path


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize(
    ("file", "differs"),
    [
        (RepositoryFile(ENTRY, b"one\n"), False),
        (RepositoryFile(ENTRY, b"two\n"), True),
        (RepositoryFile(ENTRY, b"one\n", 0o600), True),
        (RepositoryFile(ENTRY, None), True),
        (RepositoryFile("/etc/yum.repos.d/y.repo", None), False),
        (RepositoryFile("/etc/yum.repos.d/y.repo", b""), True),
        (RepositoryFile("/missing/y.repo", None), False),
    ],
)
def test_outdated_files(root, file, differs):
    assert file_writing.outdated([file], str(root)) == ([file] if differs else [])
    before = file_writing.current(file.path, str(root))
    assert file_writing.write(file, str(root)) == before.content
    assert file_writing.outdated([file], str(root)) == []
    # The previous state can be restored.
    file_writing.write(before, str(root))
    assert file_writing.current(file.path, str(root)) == before
    assert names(root / "etc/yum.repos.d") == ["x.repo"]


def test_a_path_that_two_repositories_replace_is_removed_once(root):
    assert file_writing.outdated([RepositoryFile(ENTRY, None), RepositoryFile(ENTRY, None)], str(root)) == [
        RepositoryFile(ENTRY, None)
    ]


def test_a_new_file_gets_its_directory_and_mode(root):
    path = "/etc/zypp/credentials.d/x"
    mask = os.umask(0o077)
    try:
        assert file_writing.write(RepositoryFile(path, b"one"), str(root)) is None
    finally:
        os.umask(mask)
    assert file_writing.current(path, str(root)) == RepositoryFile(path, b"one", 0o644)
    assert file_writing.write(RepositoryFile(path, b"two", 0o600), str(root)) == b"one"
    assert file_writing.current(path, str(root)) == RepositoryFile(path, b"two", 0o600)
    assert names(root / "etc/zypp/credentials.d") == ["x"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_symlink_is_kept_when_its_target_is_written(root, exists):
    (root / "house").mkdir()
    target = root / "house/real.repo"
    if exists:
        target.write_bytes(b"old")
    link = root / "etc/yum.repos.d/x.repo"
    link.unlink()
    link.symlink_to("../../house/real.repo")
    assert file_writing.write(RepositoryFile(ENTRY, b"new"), str(root)) == (b"old" if exists else None)
    assert os.readlink(link) == "../../house/real.repo"
    assert target.read_bytes() == b"new"
    assert file_writing.outdated([RepositoryFile(ENTRY, b"new")], str(root)) == []


def test_removal_removes_a_symlink_but_not_its_target(root):
    link = root / "etc/yum.repos.d/y.repo"
    link.symlink_to("x.repo")
    assert file_writing.write(RepositoryFile("/etc/yum.repos.d/y.repo", None), str(root)) == b"one\n"
    assert names(root / "etc/yum.repos.d") == ["x.repo"]
    link.symlink_to("nowhere")
    assert file_writing.outdated([RepositoryFile("/etc/yum.repos.d/y.repo", None)], str(root))
    assert file_writing.write(RepositoryFile("/etc/yum.repos.d/y.repo", None), str(root)) is None
    assert names(root / "etc/yum.repos.d") == ["x.repo"]


def test_a_failed_write_keeps_the_file_and_leaves_no_other(root, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RepositoryError) as raised:
        file_writing.write(RepositoryFile(ENTRY, b"two"), str(root))
    assert f"{ENTRY} could not be written: No space left on device." in str(raised.value)
    assert names(root / "etc/yum.repos.d") == ["x.repo"]
    assert file_writing.current(ENTRY, str(root)).content == b"one\n"


def test_a_directory_in_place_of_a_file_is_named(root):
    (root / "etc/yum.repos.d/y.repo").mkdir()
    with pytest.raises(RepositoryError) as raised:
        file_writing.write(RepositoryFile("/etc/yum.repos.d/y.repo", b"x"), str(root))
    assert "/etc/yum.repos.d/y.repo could not be read: Is a directory. Remove the directory." in str(raised.value)


SOURCES, KEYRING = "/etc/apt/sources.list.d/x.sources", "/usr/share/keyrings/x.gpg"
TEXTS = [
    (SOURCES, None, ""),
    (SOURCES, b"URIs: https://m.example/x\n", "URIs: https://m.example/x\n"),
    (KEYRING, KEY, f"fingerprint: {FINGERPRINT}\n"),
    ("/etc/pki/rpm-gpg/RPM-GPG-KEY-x", openpgp.armored(KEY), f"fingerprint: {FINGERPRINT}\n"),
    (f"{KEYRING}.sha256", b"sha256:0 sha256:1\n", "sha256:0 sha256:1\n"),
    ("/etc/apt/sources.list.d/old.list", "# h\u00e9\n".encode(), "# h\u00e9\n"),
]


@pytest.mark.parametrize(("path", "content", "text"), TEXTS)
def test_a_diff_shows_texts_and_fingerprints(path, content, text):
    shown = {"before_header": path, "after_header": path}
    assert file_writing.diff(RepositoryFile(path, None), RepositoryFile(path, content)) == {
        **shown,
        "before": "",
        "after": text,
    }
    assert file_writing.diff(RepositoryFile(path, content), RepositoryFile(path, None)) == {
        **shown,
        "before": text,
        "after": "",
    }


SECRETS = [
    ("/etc/apt/auth.conf.d/x.conf", "machine https://m.example/x login robot password {}\n"),
    ("/etc/zypp/credentials.d/x", "username = robot\npassword = {}\n"),
    (ENTRY, "[x]\nbaseurl=https://m.example/x\nusername=robot\npassword={}\n"),
    ("/etc/zypp/repos.d/x.repo", "baseurl=https://m.example/x?proxy=http%3A%2F%2Fp&proxyuser=robot&proxypass={}\n"),
    ("/etc/apt/sources.list.d/old.list", "deb https://robot:{}@m.example/x /\n"),
    ("/etc/apt/apt.conf.d/53x", 'Acquire::http::Proxy::m.example "http://robot:{}@p.example";\n'),
    ("/etc/apt/sources.list.d/old.list", "deb https://robot:{}@m.example/x / # \xff\n"),
]


@pytest.mark.parametrize(("path", "text"), SECRETS)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_diff_shows_that_a_login_changes_but_not_the_login(path, text, encoding):
    before, after = (text.format(password).encode(encoding) for password in ("s3cret", "0ther"))
    shown = file_writing.diff(RepositoryFile(path, before, 0o600), RepositoryFile(path, after, 0o600))
    assert shown["before"] != shown["after"]
    assert not [word for word in ("s3cret", "0ther", "robot") if word in str(shown)]
    same = file_writing.diff(RepositoryFile(path, before, 0o600), RepositoryFile(path, before))
    assert same["before"] == same["after"]


@pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o600, 0o644), (0o600, None), (0o644, 0o600)])
def test_a_diff_does_not_show_secret_files_of_other_formats(before, after):
    path, text = "/etc/apt/auth.conf", b"machine m.example login robot password s3cret\n"
    wanted = RepositoryFile(path, None) if after is None else RepositoryFile(path, b"# empty\n", after)
    shown = file_writing.diff(RepositoryFile(path, text, before), wanted)
    assert "s3cret" not in str(shown)
    assert shown["before"] != shown["after"]


@pytest.mark.parametrize("content", [b"two\n", None])
def test_the_remains_of_a_killed_run_are_removed(root, content):
    for name in (".x.repo.k3h_1.tmp", ".y.repo.k3h_1.tmp", "x.repo.tmp"):
        (root / "etc/yum.repos.d" / name).touch()
    file_writing.write(RepositoryFile(ENTRY, content), str(root))
    written = [] if content is None else ["x.repo"]
    assert names(root / "etc/yum.repos.d") == [".y.repo.k3h_1.tmp", *written, "x.repo.tmp"]
