# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts share a finished repository until its inputs change."""

from __future__ import annotations

import shutil

import pytest

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import kept, make_repository


def writes(text, calls):
    """Return a function that writes a repository and counts its calls."""

    def write(out):
        calls.append(text)
        (out / "content").write_text(text)
        return f"key of {text}"

    return write


def test_a_repository_is_built_once_for_its_inputs(tmp_path):
    calls = []
    for host, (inputs, text) in enumerate([("1", "old"), ("1", "old"), ("2", "new"), ("2", "new")]):
        out = tmp_path / f"host{host}" / "out"
        assert kept.repository(tmp_path, "el-9", inputs, out, writes(text, calls)) == f"key of {text}"
        assert (out / "content").read_text() == text
    assert calls == ["old", "new"]
    # The former version is gone, and other repositories are still there.
    kept.repository(tmp_path, "el-90", "1", tmp_path / "other", writes("other", calls))
    kept.repository(tmp_path, "el-9", "3", tmp_path / "host0/out", writes("newest", calls))
    assert sorted(path.name for path in tmp_path.glob("el-9*-?")) == ["el-9-3", "el-90-1"]
    assert (tmp_path / "host0/out/content").read_text() == "newest"


def test_an_interrupted_build_is_repeated(tmp_path):
    def fails(out):
        (out / "half").write_text("")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        kept.repository(tmp_path, "el-9", "1", tmp_path / "out", fails)
    kept.repository(tmp_path, "el-9", "1", tmp_path / "out", writes("whole", []))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["content", "fingerprint"]


def test_the_digest_depends_on_words_and_files(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("1")
    second.write_text("2")
    known = {kept.digest(words, files) for words in (["a"], ["b"]) for files in ([first], [second], [first, second])}
    assert len(known) == 6
    assert kept.digest(["a"], [second, first]) == kept.digest(["a"], [first, second])
    before = kept.digest(["a"], [first])
    first.write_text("3")
    assert kept.digest(["a"], [first]) != before


@pytest.mark.skipif(not shutil.which("gpg"), reason="needs gpg")
def test_hosts_sign_with_the_same_key(tmp_path):
    place = tmp_path / "kept"
    place.mkdir()
    hosts = [tmp_path / name for name in "ab"]
    keys = [kept.keyring(place, host, make_repository.key)[1] for host in (*hosts, hosts[0])]
    assert len(set(keys)) == 1
    (tmp_path / "text").write_text("text")
    make_repository.run("gpg", "--homedir", str(hosts[1] / "gnupg"), "--batch", "--detach-sign", str(tmp_path / "text"))
    # Without the shared directory there is another key, which each host then takes, without what its old key signed.
    shutil.rmtree(place)
    place.mkdir()
    new = kept.keyring(place, tmp_path / "c", make_repository.key)[1]
    (hosts[0] / "built").mkdir()
    assert new not in keys
    assert kept.keyring(place, hosts[0], make_repository.key)[1] == new
    assert not (hosts[0] / "built").exists()
