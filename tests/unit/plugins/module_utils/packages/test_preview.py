# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import apt_sources, preview
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.preview import Changes, Repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.repository_access import Access

URL, KEY = "https://mirror.example/cuda/x", b"\x99key"
PROXY = "http://proxy.example:3128"
PROXIED = Repository(Access(URL, PROXY, proxy_username="user", proxy_password="w@rd"), KEY)


class Programs:
    """Record the commands and return prepared results."""

    def __init__(self, **answers):
        self.answers = answers
        self.ran = []

    def __call__(self, argv):
        self.ran.append(argv)
        return self.answers.get(argv[0].replace("-", "_"), (0, "", ""))


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Create the host's sources and package lists in a temporary directory."""
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


def prepare(manager, directory, run, **changes):
    place = directory / "preview"
    place.mkdir(mode=0o700)
    return place, preview.prepare(manager, str(place), Changes(**changes), run)


def test_apt_uses_the_hosts_sources_and_the_new_repository_with_separate_lists(host, tmp_path):
    run = Programs()
    place, options = prepare(
        "apt",
        tmp_path,
        run,
        repository=PROXIED,
        without=("/etc/apt/sources.list.d/cuda.list",),
        enable=lambda files: {path: text.replace("main", "main contrib") for path, text in files.items()},
    )
    assert options == [["-c", f"{place}/apt.conf"]]
    assert run.ran == [["apt-get", "-c", f"{place}/apt.conf", "update"]]
    sources = place / "sources"
    assert (sources / "sources.list").read_text() == "deb http://m.example.org/debian bookworm main contrib\n"
    assert sorted(os.listdir(sources / "sources.list.d")) == ["gpufleet-preview.sources"]
    assert (sources / "sources.list.d/gpufleet-preview.sources").read_text() == (
        f"Types: deb\nURIs: {URL}\nSuites: /\nSigned-By: {place}/key.gpg\n"
    )
    assert (place / "key.gpg").read_bytes() == KEY
    assert os.listdir(place / "lists") == ["m.example.org_InRelease"]
    # Files that the user _apt must be able to read, and files that only root may read.
    assert [oct(path.stat().st_mode & 0o777) for path in (place, place / "lists", place / "key.gpg")] == [
        "0o755", "0o755", "0o644"
    ]  # fmt: skip
    assert (place / "logins/gpufleet-preview.conf").read_text() == f"machine {PROXY} login user password w@rd\n"
    for path in (
        place / "apt.conf",
        place / "logins/gpufleet-preview.conf",
        sources / "sources.list",
        sources / "sources.list.d/gpufleet-preview.sources",
    ):
        assert path.stat().st_mode & 0o077 == 0
    assert (place / "logins/gpufleet-preview.conf").stat().st_mode & 0o077 == 0
    settings = (place / "apt.conf").read_text().splitlines()
    for line in (
        f'Dir::State::Lists "{place}/lists";',
        f'Dir::Cache "{place}/cache";',
        f'Dir::Etc::netrcparts "{place}/logins";',
        f'Dir::Etc::SourceList "{place}/sources/sources.list";',
        f'Dir::Etc::SourceParts "{place}/sources/sources.list.d";',
        f'Acquire::https::Proxy::mirror.example "{PROXY}";',
        "#clear APT::Update::Post-Invoke-Success;",
    ):
        assert line in settings
    assert [line for line in settings if line.startswith("Dir::") and line.count(str(place)) != 1] == []


def test_apt_uses_the_new_login_and_the_hosts_logins_for_other_servers(host, tmp_path, monkeypatch):
    logins = tmp_path / "host" / "logins"
    logins.mkdir()
    for name in ("other", "gpufleet-nvidia-cuda"):
        (logins / f"{name}.conf").write_text(f"machine {name}.example login a password b\n")
    monkeypatch.setattr(preview, "_APT_LOGINS", str(logins))
    monkeypatch.setattr(preview.nvidia_repository, "APT_LOGIN_FILE", str(logins / "gpufleet-nvidia-cuda.conf"))
    repository = Repository(Access(URL, username="robot", password="s3cret"), KEY)
    place, _options = prepare("apt", tmp_path, Programs(), repository=repository)
    assert sorted(os.listdir(place / "logins")) == ["gpufleet-preview.conf", "other.conf"]
    assert (place / "logins/gpufleet-preview.conf").read_text() == f"machine {URL} login robot password s3cret\n"


def test_zypper_reads_the_login_from_a_file(host, tmp_path):
    repository = Repository(Access(URL, username="robot", password="s3cret"), KEY)
    place, _options = prepare("zypper", tmp_path, Programs(), repository=repository)
    login = place / "gpufleet-preview.login"
    assert (login.read_text(), login.stat().st_mode & 0o777) == ("username = robot\npassword = s3cret\n", 0o600)
    text = (place / "root/etc/zypp/repos.d/gpufleet-preview.repo").read_text()
    assert f"?credentials={str(login).replace('/', '%2F')}\n" in text


def test_a_mirror_on_the_host_uses_no_proxy(host, tmp_path):
    place, _options = prepare(
        "apt", tmp_path, Programs(), repository=Repository(Access("file:///srv/cuda", PROXY), KEY)
    )
    assert "Proxy" not in (place / "apt.conf").read_text()


def test_apt_starts_with_empty_lists_if_the_host_has_none(host, tmp_path, monkeypatch):
    monkeypatch.setattr(preview, "_APT_LISTS", str(tmp_path / "nonesuch"))
    place, _options = prepare("apt", tmp_path, Programs())
    assert os.listdir(place / "lists") == []
    assert not (place / "key.gpg").exists()


def test_dnf_queries_the_new_repository_with_a_separate_cache(host, tmp_path):
    run = Programs()
    place, options = prepare("dnf", tmp_path, run, repository=PROXIED, without=(str(host / "cuda.repo"),))
    others = f"--setopt=reposdir={place}/others"
    assert options == [[others], [f"--setopt=reposdir={place}/own", f"--setopt=cachedir={place}/cache"]]
    assert run.ran == [["dnf", others, "--quiet", "makecache", "--refresh"]]
    assert sorted(os.listdir(place / "others")) == ["base.repo", "gpufleet-nvidia-cuda.repo"]
    text = (place / "own/gpufleet-preview.repo").read_text()
    for line in (
        f"baseurl={URL}",
        "gpgcheck=1",
        f"gpgkey=file://{place}/key.asc",
        f"proxy={PROXY}",
        "proxy_password=w@rd",
    ):
        assert f"\n{line}\n" in text
    assert (place / "key.asc").read_text().startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")


def test_zypper_trusts_the_key_only_in_a_separate_root(host, tmp_path):
    run = Programs()
    place, options = prepare("zypper", tmp_path, run, repository=PROXIED)
    root = f"{place}/root"
    assert options == [[], [f"--root={root}"]]
    assert run.ran == [
        ["zypper", "--non-interactive", "--quiet", "refresh"],
        ["rpm", "--root", root, "--import", f"{place}/key.asc"],
        ["zypper", f"--root={root}", "--non-interactive", "--quiet", "refresh"],
    ]
    text = (place / "root/etc/zypp/repos.d/gpufleet-preview.repo").read_text()
    assert f"baseurl={URL}?proxy=http%3A%2F%2Fproxy.example%3A3128&proxyuser=user&proxypass=w%2540rd\n" in text
    assert "gpgcheck=1" in text


@pytest.mark.parametrize("manager", ["dnf", "zypper"])
def test_without_changes_the_hosts_repositories_are_queried(host, tmp_path, manager):
    _place, options = prepare(manager, tmp_path, Programs(), without=("/etc/yum.repos.d/nonesuch.repo",))
    assert options == [[]]


def test_zypper_without_repositories_is_no_error(host, tmp_path):
    _place, options = prepare("zypper", tmp_path, Programs(zypper=(6, "", "Warning: No repositories defined.")))
    assert options == [[]]


FAILURES = [
    (
        "apt",
        {"apt_get": (100, "Err:1", "E: The repository 'file:/x  Release' is not signed.\nN: See apt-secure(8)")},
        [
            "apt-get failed with exit status 100",
            "E: The repository 'file:/x Release' is not signed. N: See apt-secure(8)",
        ],
    ),
    (
        "dnf",
        {"dnf": (1, "", "Error: Failed to download metadata for repo 'base'")},
        ["dnf failed with exit status 1", "repo 'base'"],
    ),
    (
        "zypper",
        {"zypper": (4, "Repository 'x' is invalid.", "")},
        ["zypper failed with exit status 4", "Repository 'x' is invalid."],
    ),
    ("zypper", {"rpm": (1, "", "error: import failed")}, ["rpm failed with exit status 1", "import failed"]),
]


@pytest.mark.parametrize(("manager", "answers", "words"), FAILURES)
def test_the_error_has_the_output_and_a_remedy(host, tmp_path, manager, answers, words):
    with pytest.raises(preview.PreviewError) as raised:
        prepare(manager, tmp_path, Programs(**answers), repository=Repository(Access(URL), KEY))
    for word in (*words, "Check the URLs, the proxy and the network, or set a mirror."):
        assert word in str(raised.value)
