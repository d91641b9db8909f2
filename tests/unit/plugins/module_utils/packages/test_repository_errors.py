# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories that cannot be read: the role's plan in module package_transaction, with real output of the programs."""

from __future__ import annotations

import typing as t
from pathlib import Path
from urllib.error import URLError

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.apt import Apt
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.dnf import Dnf
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.zypper import Zypper
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import download_retries, key_download, openpgp
from ansible_collections.gpufleet.hosts.plugins.modules import package_transaction
from ansible_collections.gpufleet.hosts.tests.unit.plugins.engine_samples import host, plan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import (
    KEY,
    OTHER_KEY,
)

RECORDED = Path(__file__).parents[1] / "package_managers/files"
BACKENDS: dict[str, t.Any] = {"apt": Apt, "dnf": Dnf, "zypper": Zypper}
UPDATES = {"apt": " update", "dnf": "makecache", "zypper": " refresh"}
MIRROR = "https://mirror.example/docker"
DPKG = "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.22\nDescription: x\n\n"
TRUSTED, OTHER = openpgp.fingerprints(KEY)[0], openpgp.fingerprints(OTHER_KEY)[0]
ROBOT = {"repository_username": "robot", "repository_password": "s3cret"}
# The URLs in the recorded outputs.
RECORDED_URLS = ("http://127.0.0.1:18999/repo", "http://user:secret@127.0.0.1:9/x")


class Machine:
    """A bare host without network, whose files are in a directory."""

    def __init__(self, root: Path, key: str) -> None:
        self.root, self.key, self.commands = root, key, []  # type: ignore[var-annotated]
        self.manager = host(key)["os"]["package_manager"]
        self.url = ""
        for folder in ("var/lib/dpkg", "var/cache/dnf", "etc/apt", "etc/yum.repos.d", "etc/zypp/repos.d", "run"):
            (root / folder).mkdir(parents=True)
        (root / "var/lib/dpkg/status").write_text(DPKG)
        (root / "etc/zypp/repos.d/base.repo").write_text("[base]\nenabled=1\nautorefresh=1\nbaseurl=http://s/base\n")

    def run(self, argv: list[str], environment: t.Any = None, stdin: t.Any = None) -> tuple[int, str, str]:
        """Answer like a package manager that cannot reach the repository."""
        self.commands.append(" ".join(argv))
        if UPDATES[self.manager] not in self.commands[-1]:
            return 0, "4.23.0\n" if "--version" in argv else "", ""
        out, err = (self._recorded(end) for end in (("out", "err") if self.manager != "zypper" else ("xml", "err")))
        return (4 if self.manager == "zypper" else 100), out, err

    def _recorded(self, end: str) -> str:
        path = RECORDED / self.manager / f"unreachable.{end}"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for url in RECORDED_URLS:
            text = text.replace(url, self.url)
        return text

    def error(self, step: str, **variables: t.Any) -> str:
        """Return the error of the role's question for the versions, or of its installation."""
        done = plan(host(self.key), None if step == "query" else _Any(), **variables)
        assert done.problems == []
        assert done.transaction is not None
        repositories = done.query["repositories"] if done.query else done.transaction.repositories
        self.url = repositories[0]["url"] if repositories else "http://distribution.example/x"
        options: dict[str, t.Any] = {
            name: []
            for name in (*package_transaction.LISTS, "query_streams", "query_dependencies", "repositories", "files")
        }
        options |= {"repositories": repositories, "may_upgrade": True, "lock_timeout": 0}
        options["install"] = [] if step == "query" else done.transaction.install
        request = package_transaction.request(options, self.manager)
        backend = BACKENDS[self.manager](self.run, str(self.root), lock_timeout=0)
        journal = Journal("container_engine", str(self.root))
        before = self.files()
        with pytest.raises(package_transaction.ERRORS) as caught:
            if step == "query":
                assert done.query is not None
                transaction.query(request, transaction.Question(done.query["query"]), backend, journal)
            else:
                transaction.present(request, backend, journal, check_mode=step == "check mode")
        assert self.files() == before
        assert not [text for text in self.commands if " install" in text or " remove" in text or "--import" in text]
        return str(caught.value)

    def files(self) -> dict[str, bytes]:
        """Return all files of the host except lock files, which are empty."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and path.stat().st_size
        }


class _Any(dict):  # type: ignore[type-arg]
    """Every package has one version."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> list[str]:
        return ["5:28.5.1-1"]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> t.Callable[[t.Any], list[str]]:
    """Let every URL return a key file or raise an error. Return the requested URLs."""

    def replace(answer: t.Any) -> list[str]:
        asked: list[str] = []

        def open_url(url: str, **_options: t.Any) -> t.Any:
            asked.append(url)
            if isinstance(answer, Exception):
                raise answer
            return type("Response", (), {"read": lambda *_size: answer})()

        monkeypatch.setattr(key_download, "open_url", open_url)
        monkeypatch.setattr(download_retries, "_PAUSES", (0, 0))
        return asked

    return replace


STEPS = ["query", "check mode", "present"]
# The platform, and the path of the repository in the mirror.
systems = pytest.mark.parametrize(
    ("key", "folder"), [("debian-13", "/debian"), ("el-9", "/rhel/9/x86_64/stable")], ids=["apt", "dnf"]
)
KEY_FILES = {"debian-13": f"{MIRROR}/debian/gpg", "el-9": f"{MIRROR}/rhel/gpg"}
platforms = pytest.mark.parametrize("key", KEY_FILES)
steps = pytest.mark.parametrize("step", STEPS)


@systems
@steps
def test_unreachable_repository(
    tmp_path: Path, serve: t.Callable[[t.Any], list[str]], key: str, folder: str, step: str
) -> None:
    asked = serve(KEY)
    text = Machine(tmp_path, key).error(step, source="docker", mirror=MIRROR, key_fingerprint=TRUSTED, **ROBOT)
    assert asked == [KEY_FILES[key]]
    assert MIRROR + folder in text
    assert "Nothing was changed. Check the URLs, the logins, the proxy and the network, or set another URL." in text
    assert "s3cret" not in text


@platforms
@steps
def test_unreachable_key(tmp_path: Path, serve: t.Callable[[t.Any], list[str]], key: str, step: str) -> None:
    serve(URLError("[Errno 111] Connection refused"))
    text = Machine(tmp_path, key).error(step, source="docker", mirror=MIRROR, **ROBOT)
    assert text.startswith(f"The key of the repository could not be downloaded from {KEY_FILES[key]}: ")
    assert "Connection refused" in text
    assert text.endswith("Nothing was changed. Check the URL, the proxy and the network, or set another URL.")
    assert "s3cret" not in text


@platforms
@steps
def test_another_key_than_the_trusted_one(
    tmp_path: Path, serve: t.Callable[[t.Any], list[str]], key: str, step: str
) -> None:
    serve(OTHER_KEY)
    text = Machine(tmp_path, key).error(step, source="docker", mirror=MIRROR, key_fingerprint=TRUSTED)
    assert text == (
        f"The key at {KEY_FILES[key]} has the fingerprint {OTHER} instead of {TRUSTED}. The key was not written. Find "
        "out why it has changed before you change the expected fingerprint."
    )


@pytest.mark.parametrize(
    ("key", "fingerprint"),
    [
        ("debian-13", "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"),
        ("el-9", "060A61C51B558A7F742B77AAC52FEB6B621E9F35"),
    ],
)
def test_default_trust_is_dockers_own_key(
    tmp_path: Path, serve: t.Callable[[t.Any], list[str]], key: str, fingerprint: str
) -> None:
    serve(KEY)
    text = Machine(tmp_path, key).error("present", source="docker")
    file = KEY_FILES[key].replace(MIRROR, "https://download.docker.com/linux")
    assert f"The key at {file} has the fingerprint {TRUSTED} instead of {fingerprint}. " in text


@pytest.mark.parametrize("step", ["check mode", "present"])
@pytest.mark.parametrize("key", ["debian-13", "amazon-2023", "sles-15"])
def test_unreachable_repository_of_the_distribution(tmp_path: Path, key: str, step: str) -> None:
    text = Machine(tmp_path, key).error(step)
    assert "Nothing was changed." in text
    assert "Check the URL" in text
    assert not (tmp_path / owned.ENGINE_RECORD.lstrip("/")).exists()
