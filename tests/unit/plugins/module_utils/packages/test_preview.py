# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import apt_sources, preview
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.preview import Repository, Wish

URL, KEY = "https://mirror.example/cuda/x", b"\x99key"
PROXY = "http://user:word@proxy.example:3128"


class Programs:
    """Stand in for the programs that are run: note what they were, and answer."""

    def __init__(self, **answers):
        self.answers = answers
        self.ran = []

    def __call__(self, argv):
        self.ran.append(argv)
        return self.answers.get(argv[0].replace("-", "_"), (0, "", ""))


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Give the host source entries and lists in a directory of the test's own."""
    sources = {
        "/etc/apt/sources.list": "deb http://m.example.org/debian bookworm main\n",
        "/etc/apt/sources.list.d/cuda.list": "deb https://old.example /\n",
    }
    monkeypatch.setattr(apt_sources, "read_files", lambda root="/": sources)
    lists = tmp_path / "host" / "lists"
    (lists / "partial").mkdir(parents=True)
    (lists / "m.example.org_InRelease").write_text("Origin: Debian\n")
    (lists / "lock").write_text("")
    monkeypatch.setattr(preview, "_APT_LISTS", str(lists))
    entries = tmp_path / "host" / "repos"
    entries.mkdir()
    for name in ("base", "cuda", "gpufleet-nvidia-cuda"):
        (entries / f"{name}.repo").write_text(f"[{name}]\n")
    monkeypatch.setattr(preview, "_REPO_DIRECTORIES", {"dnf": (str(entries),), "zypper": (str(entries),)})
    return entries


def view(manager, directory, run, **wish):
    place = directory / "view"
    place.mkdir(mode=0o700)
    return place, preview.questions(manager, str(place), Wish(**wish), run)


def test_apt_sees_the_hosts_entries_and_the_new_one_in_lists_of_its_own(host, tmp_path):
    run = Programs()
    place, questions = view(
        "apt",
        tmp_path,
        run,
        repository=Repository(URL, KEY, PROXY),
        without=("/etc/apt/sources.list.d/cuda.list",),
        enable=lambda files: {path: text.replace("main", "main contrib") for path, text in files.items()},
    )
    assert questions == [["-c", f"{place}/apt.conf"]]
    assert run.ran == [["apt-get", "-c", f"{place}/apt.conf", "update"]]
    sources = place / "sources"
    assert (sources / "sources.list").read_text() == "deb http://m.example.org/debian bookworm main contrib\n"
    assert sorted(os.listdir(sources / "sources.list.d")) == ["gpufleet-view.sources"]
    assert (sources / "sources.list.d/gpufleet-view.sources").read_text() == (
        f"Types: deb\nURIs: {URL}\nSuites: /\nSigned-By: {place}/key.gpg\n"
    )
    assert (place / "key.gpg").read_bytes() == KEY
    assert os.listdir(place / "lists") == ["m.example.org_InRelease"]
    # What apt's own user has to read, and what nobody else may.
    assert [oct(path.stat().st_mode & 0o777) for path in (place, place / "lists", place / "key.gpg")] == [
        "0o755", "0o755", "0o644"
    ]  # fmt: skip
    for path in (place / "apt.conf", sources / "sources.list", sources / "sources.list.d/gpufleet-view.sources"):
        assert path.stat().st_mode & 0o077 == 0
    settings = (place / "apt.conf").read_text().splitlines()
    for line in (
        f'Dir::State::Lists "{place}/lists";',
        f'Dir::Cache "{place}/cache";',
        f'Dir::Etc::SourceList "{place}/sources/sources.list";',
        f'Dir::Etc::SourceParts "{place}/sources/sources.list.d";',
        f'Acquire::https::Proxy::mirror.example "{PROXY}";',
        "#clear APT::Update::Post-Invoke-Success;",
    ):
        assert line in settings
    assert all(line.count(str(place)) == 1 for line in settings if line.startswith("Dir::"))


def test_a_mirror_on_the_host_itself_is_reached_through_nothing(host, tmp_path):
    place, _questions = view("apt", tmp_path, Programs(), repository=Repository("file:///srv/cuda", KEY, PROXY))
    assert "Proxy" not in (place / "apt.conf").read_text()


def test_apt_without_lists_fetches_all(host, tmp_path, monkeypatch):
    monkeypatch.setattr(preview, "_APT_LISTS", str(tmp_path / "nonesuch"))
    place, _questions = view("apt", tmp_path, Programs())
    assert os.listdir(place / "lists") == []
    assert not (place / "key.gpg").exists()


def test_dnf_is_asked_for_the_hosts_repositories_and_for_the_new_one_with_a_cache_of_its_own(host, tmp_path):
    run = Programs()
    place, questions = view(
        "dnf", tmp_path, run, repository=Repository(URL, KEY, PROXY), without=(str(host / "cuda.repo"),)
    )
    others = f"--setopt=reposdir={place}/others"
    assert questions == [[others], [f"--setopt=reposdir={place}/own", f"--setopt=cachedir={place}/cache"]]
    assert run.ran == [["dnf", others, "--quiet", "makecache", "--refresh"]]
    assert sorted(os.listdir(place / "others")) == ["base.repo", "gpufleet-nvidia-cuda.repo"]
    text = (place / "own/gpufleet-view.repo").read_text()
    for line in (f"baseurl={URL}", "gpgcheck=1", f"gpgkey=file://{place}/key.asc", f"proxy={PROXY}"):
        assert f"\n{line}\n" in text
    assert (place / "key.asc").read_text().startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")


def test_zypper_trusts_the_key_in_a_root_of_its_own_alone(host, tmp_path):
    run = Programs()
    place, questions = view("zypper", tmp_path, run, repository=Repository(URL, KEY, PROXY))
    root = f"{place}/root"
    assert questions == [[], [f"--root={root}"]]
    assert run.ran == [
        ["zypper", "--non-interactive", "--quiet", "refresh"],
        ["rpm", "--root", root, "--import", f"{place}/key.asc"],
        ["zypper", f"--root={root}", "--non-interactive", "--quiet", "refresh"],
    ]
    text = (place / "root/etc/zypp/repos.d/gpufleet-view.repo").read_text()
    assert f"baseurl={URL}?proxy=http%3A%2F%2Fuser%3Aword%40proxy.example%3A3128\n" in text
    assert "gpgcheck=1" in text


@pytest.mark.parametrize("manager", ["dnf", "zypper"])
def test_with_nothing_to_add_or_to_leave_out_the_host_is_asked_as_it_is(host, tmp_path, manager):
    _place, questions = view(manager, tmp_path, Programs(), without=("/etc/yum.repos.d/nonesuch.repo",))
    assert questions == [[]]


def test_a_host_whose_zypper_knows_no_repository_is_no_error(host, tmp_path):
    _place, questions = view("zypper", tmp_path, Programs(zypper=(6, "", "Warning: No repositories defined.")))
    assert questions == [[]]


FAILURES = [
    ("apt", {"apt_get": (100, "Err:1", "E: The repository 'file:/x  Release' is not signed.\nN: See apt-secure(8)")},
     ["apt-get answered 100", "E: The repository 'file:/x Release' is not signed. N: See apt-secure(8)"]),
    ("dnf", {"dnf": (1, "", "Error: Failed to download metadata for repo 'base'")}, ["dnf answered 1", "repo 'base'"]),
    ("zypper", {"zypper": (4, "Repository 'x' is invalid.", "")}, ["zypper answered 4", "Repository 'x' is invalid."]),
    ("zypper", {"rpm": (1, "", "error: import failed")}, ["rpm answered 1", "import failed"]),
]  # fmt: skip


@pytest.mark.parametrize(("manager", "answers", "words"), FAILURES)
def test_what_cannot_be_looked_into_is_said_with_a_way_out(host, tmp_path, manager, answers, words):
    with pytest.raises(preview.ViewError) as raised:
        view(manager, tmp_path, Programs(**answers), repository=Repository(URL, KEY))
    for word in (*words, "Check the addresses, the proxy and the network, or name a mirror"):
        assert word in str(raised.value)
