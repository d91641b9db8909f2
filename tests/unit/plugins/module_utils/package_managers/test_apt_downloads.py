# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often the real apt downloads the lists of each repository in one run."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.package_managers.real_apt import RealApt
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import request

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is not installed")
SUITE = "dists/stable"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files, also with 304 for unchanged ones, and counts those that it sent."""

    sent: Counter[str]

    def send_response(self, code: int, message: str | None = None) -> None:
        self.sent.update([self.path] if code == 200 else [])
        super().send_response(code, message)

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


class Server:
    """Two archives."""

    def __init__(self, root: Path, arch: str) -> None:
        self.sent: Counter[str] = Counter()
        self.root, self.arch = root, arch
        self.publish("base", "tool", "1.0")
        self.publish("added", "driver", "1.0")
        handler = type("Counting", (Handler,), {"sent": self.sent})
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(root)))
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def publish(self, name: str, package: str, version: str) -> None:
        """Replace the content of an archive."""
        place = self.root / name / SUITE
        packages = place / f"main/binary-{self.arch}/Packages"
        packages.parent.mkdir(parents=True, exist_ok=True)
        packages.write_text(
            f"Package: {package}\nVersion: {version}\nArchitecture: {self.arch}\nFilename: p.deb\nSize: 1\n"
            f"SHA256: {'0' * 64}\nDescription: x\n"
        )
        release = place / "Release"
        digest = hashlib.sha256(packages.read_bytes()).hexdigest()
        later = int(release.stat().st_mtime) + 60 if release.exists() else 1764000000
        release.write_text(
            f"Suite: stable\nCodename: stable\nArchitectures: {self.arch}\nComponents: main\n"
            "Date: Sat, 28 Nov 2026 10:00:00 UTC\nSHA256:\n"
            f" {digest} {packages.stat().st_size} main/binary-{self.arch}/Packages\n"
        )
        os.utime(release, (later, later))

    def entry(self, name: str) -> str:
        return f"deb [trusted=yes] http://127.0.0.1:{self.http.server_port}/{name} stable main\n"

    def lists(self, name: str) -> dict[str, int]:
        """Return how often the files of an archive were sent."""
        paths = {"Release": f"/{name}/{SUITE}/Release", "Packages": f"/{name}/{SUITE}/main/binary-{self.arch}/Packages"}
        return {kind: self.sent[path] for kind, path in paths.items()}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealApt:
    return RealApt(tmp_path / "host", monkeypatch)


@pytest.fixture
def server(host: RealApt, tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path / "www", host.arch)
    yield found
    found.http.shutdown()


def transactions(host: RealApt, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that carries out a transaction, in which no package is really installed."""
    plain = host.apt._run

    def run(argv: list[str], **more: Any) -> tuple[int, str, str]:
        changes = "install" in argv and "--simulate" not in argv
        return (0, "", "") if changes else plain(argv, **more)

    monkeypatch.setattr(host.apt, "_run", run)
    monkeypatch.setattr(host.apt._command, "_run", run)
    return lambda name, **options: transaction.present(
        request(**options), host.apt, Journal(name, str(host.root)), check_mode=options.pop("check_mode", False)
    )


def test_each_list_is_downloaded_once_in_a_run(host: RealApt, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    host.sources(server.entry("base"))
    present = transactions(host, monkeypatch)
    added = (RepositoryFile("/etc/apt/sources.list.d/added.list", server.entry("added").encode()),)
    # The plan of the run, the transaction that adds a repository, and one of another role.
    wanted = request(files=added)
    question = transaction.Question(["driver", "tool"])
    found = transaction.query(wanted, question, host.apt, Journal("first", str(host.root)), is_real=True)
    assert found["versions"] == {"driver": ["1.0"], "tool": ["1.0"]}
    present("first", install=["driver"], files=list(added))
    present("second", install=["tool"])
    assert server.lists("base") == {"Release": 1, "Packages": 1}
    assert server.lists("added") == {"Release": 1, "Packages": 1}


def test_a_new_version_is_found_at_once(host: RealApt, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    host.sources(server.entry("base"))
    present = transactions(host, monkeypatch)
    present("first", install=["tool=1.0"])
    server.publish("base", "tool", "2.0")
    assert [change.after for change in present("second", install=["tool"]).changes] == ["2.0"]
    assert server.lists("base") == {"Release": 2, "Packages": 2}


def test_a_plan_keeps_no_list(host: RealApt, server: Server) -> None:
    host.sources(server.entry("base"))
    lists = host.root / "var/lib/apt/lists"
    before = sorted(path.name for path in lists.iterdir())
    journal = Journal("first", str(host.root))
    transaction.query(request(), transaction.Question(["tool"]), host.apt, journal)
    transaction.present(request(install=["tool"]), host.apt, journal, check_mode=True)
    assert sorted(path.name for path in lists.iterdir()) == before
