# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files are the real output of zypper 1.14.89 and rpm 4.20.1 over small signed repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    zypper_messages,
    zypper_repositories,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile

FILES = Path(__file__).parent / "files/zypper"
FINGERPRINT = openpgp.fingerprints((FILES / "key.asc").read_bytes())[0]
REPO = "/etc/zypp/repos.d/new.repo"


def output(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "conflict.xml",
            "Problem: 1: the to be installed rival-1-1.noarch conflicts with 'app' provided by the installed "
            "app-2-1.noarch",
        ),
        ("package-locked.xml", "Problem: 1: conflicting requests\nPackage app is locked."),
        ("file-conflict.xml", "clash and app both have the file /opt/lab/app.txt."),
        ("failed-post.xml", "nope\nwarning: %post(failing-1-1.noarch) scriptlet failed, exit status 1"),
        (
            "failed-pre.xml",
            "nopre\nerror: %prein(prefail-1-1.noarch) scriptlet failed, exit status 1\n"
            "error: prefail-1-1.noarch: install failed\nInstallation of prefail-1-1.noarch failed:\n"
            "Error: Subprocess failed. Error: RPM failed: Command exited with status 1.",
        ),
        (
            "wrong-key.xml",
            f"The signing key {FINGERPRINT} is not trusted.\nRepository 'new' is invalid.\n"
            "[new|http://127.0.0.1:8765/new] Failed to retrieve new repository metadata.\n"
            "- Signature verification failed for repomd.xml",
        ),
    ],
)
def test_a_failure_is_explained_by_the_useful_lines(name, text):
    assert zypper_messages.problems(output(name), "") == text


def test_an_unreachable_repository_is_named_without_its_login():
    text = zypper_messages.problems(output("unreachable.xml"), "")
    assert "[new|http://...@127.0.0.1:8799/new] Failed to retrieve new repository metadata." in text
    assert "Could not connect to server" in text
    assert "bob" not in text


def test_entries_have_defaults_and_several_keys():
    text = "[a]\nbaseurl=x\ngpgkey=file:///k1.asc\n  file:///k2.asc\n[b]\nenabled=0\nautorefresh = 1\ngpgkey=https://server/k\n"
    assert zypper_repositories.entries(text) == [
        zypper_repositories.ZypperRepository("a", True, False, ("/k1.asc", "/k2.asc")),
        zypper_repositories.ZypperRepository("b", False, True, ()),
    ]


@pytest.mark.parametrize(
    ("path", "affected"),
    [
        ("/etc/zypp/credentials.d/login", True),
        ("/etc/zypp/credentials.d/log", False),
        ("/etc/zypp/credentials.d/other", True),
        ("/usr/share/pki/new.asc", True),
        ("/usr/share/pki/new", False),
        ("/etc/zypp/zypp.conf", False),
    ],
)
def test_a_new_login_or_key_changes_the_repositories_that_use_it(path, affected):
    entry = (
        b"[new]\nbaseurl=http://server/new?credentials=login&x=1\ngpgkey=file:///usr/share/pki/new.asc\n"
        b"[other]\nbaseurl=http://server/log?credentials=%2Fetc%2Fzypp%2Fcredentials.d%2Fother\n"
    )
    found = zypper_repositories.changed({REPO: entry}, [RepositoryFile(path, b"")])
    assert found == ({REPO: entry} if affected else {})


def test_an_unreadable_repository_stays_known_to_zypper():
    """zypper removes its cache of aliases that no entry has."""
    content = b"# c\n[a]\nname=A\nenabled = 1\nbaseurl=http://a\n[ab]\nenabled=1\n[b]\nbaseurl=http://b\n"
    found = zypper_repositories.without({"/x.repo": content}, {"a", "b"})
    assert found == {
        "/x.repo": b"# c\n[a]\nenabled=0\nname=A\nbaseurl=http://a\n[ab]\nenabled=1\n[b]\nenabled=0\nbaseurl=http://b\n"
    }
    assert [entry.enabled for entry in zypper_repositories.all_entries(found)] == [False, True, False]
