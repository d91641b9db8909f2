# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stalled downloads end with the URL and the variable, and no program that changes packages is ended."""

from __future__ import annotations

import http.server
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    stalled_download_urls,
    stalled_downloads,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.apt import Apt
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    Steps,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.dnf import Dnf
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.zypper import Zypper
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.download_retries import Retries


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("apt-get -c /view/apt.conf update", True),
        ("apt-get --option=APT::Update::Error-Mode=any update", True),
        ("apt-get --download-only --assume-yes install update", True),
        ("apt-get --assume-yes install update", False),
        ("apt-get --assume-yes --fix-broken install", False),
        ("dpkg --configure -a", False),
        ("dnf --setopt=reposdir=/view --assumeyes makecache --refresh", True),
        ("dnf --assumeyes --downloadonly install makecache", True),
        ("dnf --assumeno install app", True),
        ("dnf --assumeyes install makecache repoquery", False),
        ("dnf --assumeyes shell", False),
        ("dnf --assumeyes --quiet module enable a:1", False),
        ("zypper --root=/view --xmlout --non-interactive refresh base", True),
        ("zypper --xmlout --non-interactive install --dry-run app", True),
        ("zypper --xmlout --non-interactive install --download-only app", True),
        ("zypper --xmlout --non-interactive install --download in-advance refresh", False),
        ("rpm --erase refresh", False),
    ],
)
def test_only_downloads(command, expected):
    assert stalled_downloads.only_downloads(command.split()) is expected


class Programs:
    """Programs that succeed and change nothing."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def __call__(self, argv: list[str], **_more: Any) -> tuple[int, str, str]:
        self.commands.append(argv)
        return 0, "4.14.0" if "--version" in argv else "", ""


@pytest.mark.parametrize("backend", [Apt, Dnf, Zypper])
def test_packages_are_downloaded_before_they_are_installed(backend, tmp_path):
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text("Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n")
    programs = Programs()
    backend(programs, str(tmp_path), lock_timeout=0).act(Steps(install=[Item("app", version="1-1")]))
    acts = [argv for argv in programs.commands if "install" in argv]
    assert [stalled_downloads.only_downloads(argv) for argv in acts] == [True, False]


PRINTED = """\
'http://a.example/debian/dists/trixie/InRelease' a.example_debian_dists_trixie_InRelease 0
'http://b.example/debian/dists/trixie/InRelease' b.example_debian_dists_trixie_InRelease 0
'https://c.example/cuda/InRelease' c.example_cuda_InRelease 0
"""


@pytest.mark.parametrize(
    ("out", "paths", "expected"),
    [
        (
            "Hit:1 http://a.example/debian trixie InRelease\nGet:2 https://c.example/cuda  InRelease\n",
            [],
            ["http://b.example/debian/dists/trixie/InRelease"],
        ),
        (
            "",
            ["/var/lib/apt/lists/partial/a.example_debian_dists_trixie_main_binary-amd64_Packages.xz"],
            ["http://a.example/debian/dists/trixie/InRelease"],
        ),
    ],
)
def test_the_url_of_apt(out, paths, expected):
    assert stalled_download_urls.apt(PRINTED, out, paths) == expected


def test_the_url_of_a_repository(tmp_path):
    (tmp_path / "a.repo").write_text(
        "[base]\nbaseurl=http://u:secret@a.example/el9\n[off]\nenabled=0\nbaseurl=http://off.example\n"
        "[cuda]\nmetalink=http://b.example/metalink\n"
    )
    known = stalled_download_urls.entries(["dnf", f"--setopt=reposdir={tmp_path}", "makecache"], "/")
    assert {*known} == {"base", "cuda"}
    path = "/var/cache/dnf/base-0123456789abcdef/tmpdir.x/repodata/primary.xml.gz"
    assert [("secret" in url, "a.example" in url) for url in stalled_download_urls.rpm(known, "", [path])] == [
        (False, True)
    ]
    assert stalled_download_urls.rpm(known, '<download url="http://b.example/x.rpm"/>', []) == [
        "http://b.example/x.rpm"
    ]


@pytest.mark.parametrize(
    ("record", "name"),
    [("nvidia_driver", "nvidia_driver_download_timeout"), ("monitoring", "download_timeout")],
)
def test_the_message_names_the_variable(record, name):
    text = stalled_downloads.message(
        ["apt-get", "update"], ["http://a.example"], stalled_downloads.DownloadLimits(120, 0, record)
    )
    assert text.startswith("apt-get update received no data from http://a.example for 120 seconds")
    assert text.endswith(f" or increase {name}.")


@pytest.fixture(name="stalled_server")
def fixture_stalled_server() -> Iterator[str]:
    """Accept connections, answer with the beginning of a file, and then send nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    kept = []

    def serve() -> None:
        while True:
            try:
                connection, _address = listener.accept()
            except OSError:
                return
            kept.append(connection)
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 3000)

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/debian"
    listener.close()
    for connection in kept:
        connection.close()


class Module:
    """The part of a module that runs programs."""

    def get_bin_path(self, name: str) -> str | None:
        return shutil.which(name)

    def run_command(self, argv: list[str], environ_update: dict[str, str], data: str | None) -> tuple[int, str, str]:
        done = subprocess.run(
            argv, check=False, env={**os.environ, **environ_update}, input=data, capture_output=True, text=True
        )
        return done.returncode, done.stdout, done.stderr


def test_a_timeout_must_be_positive():
    with pytest.raises(
        stalled_downloads.PackageManagerError, match=r"^download_timeout is 0, but must be 1 or more\.$"
    ):
        stalled_downloads.runner(Module(), "apt", stalled_downloads.DownloadLimits(0, 0, "monitoring"))


def test_apt_against_a_server_that_stalls(tmp_path, stalled_server):
    if not shutil.which("apt-get"):
        pytest.skip("apt is not installed")
    for name in ("lists/partial", "cache/archives/partial", "etc/sources.list.d", "etc/preferences.d", "parts"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "etc/sources.list").write_text(f"deb [trusted=yes] {stalled_server} stable main\n")
    options = [f"Dir::Etc={tmp_path}/etc", f"Dir::State::Lists={tmp_path}/lists", f"Dir::Cache={tmp_path}/cache"]
    options += ["APT::Sandbox::User=", "Acquire::http::Proxy=DIRECT", "Acquire::Languages=none"]
    limits = stalled_downloads.DownloadLimits(1, 0, "container_engine")
    run = stalled_downloads.runner(Module(), "apt", limits, str(tmp_path))
    start = time.monotonic()
    with pytest.raises(stalled_downloads.StalledError) as caught:
        run(["apt-get", *(f"--option={option}" for option in options), "update"])
    assert time.monotonic() - start < 60
    assert f"from {stalled_server}/dists/stable/InRelease for 1 seconds, twice" in str(caught.value)
    assert "container_engine_download_timeout" in str(caught.value)
    used = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _bytes(path)]
    assert used == []


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class Answers(http.server.BaseHTTPRequestHandler):
    """An empty repository. At each try, its lists have the next one of `statuses`, and in the end they exist."""

    statuses: list[int]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        number = self.asked.count("/repo/./InRelease") - 1
        status = 200 if self.path.endswith("/Packages") else 404
        if "/Packages" in self.path and number < len(self.statuses):
            status = self.statuses[number]
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize(
    ("statuses", "rc", "tries"),
    [([503], 0, 2), ([503, 429], 0, 3), ([503] * 99, 100, 3), ([403], 100, 1), ([], 0, 1)],
)
def test_apt_tries_again_what_can_pass(tmp_path, statuses, rc, tries):
    if not shutil.which("apt-get"):
        pytest.skip("apt is not installed")
    handler = type("Handler", (Answers,), {"statuses": [*statuses], "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("lists/partial", "cache/archives/partial", "etc/sources.list.d", "etc/preferences.d", "parts"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "etc/sources.list").write_text(f"deb [trusted=yes] http://127.0.0.1:{server.server_port}/repo ./\n")
    options = [f"Dir::Etc={tmp_path}/etc", f"Dir::State::Lists={tmp_path}/lists", f"Dir::Cache={tmp_path}/cache"]
    options += ["APT::Sandbox::User=", "Acquire::http::Proxy=DIRECT", "Acquire::Languages=none", "Acquire::Retries=0"]
    options += ["APT::Update::Error-Mode=any", "Acquire::CompressionTypes::Order=uncompressed"]
    pauses: list[float] = []
    run = stalled_downloads.runner(
        Module(), "apt", stalled_downloads.DownloadLimits(20, 0, "x"), str(tmp_path), Retries(sleep=pauses.append)
    )
    found, _out, err = run(["apt-get", *(f"--option={option}" for option in options), "update"])
    server.shutdown()
    assert (found, len(pauses) + 1) == (rc, tries)
    assert ("E: Tried 3 times." in err) == (rc != 0 and tries == 3)
    assert handler.asked.count("/repo/./InRelease") == tries


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["apt-get", "update"], "downloading package lists\n"),
        (["apt-get", "--download-only", "install", "x"], "downloading packages\n"),
        (["dnf", "makecache"], "downloading package lists\n"),
    ],
)
@pytest.mark.parametrize("reports", [True, False])
def test_a_download_is_in_the_progress_file_while_it_runs(tmp_path, monkeypatch, argv, text, reports):
    (tmp_path / "run").mkdir()
    seen = []

    def watched(*_arguments, **_options):
        seen.extend(path.read_text() for path in (tmp_path / "run").rglob("progress"))
        return stalled_downloads.WatchedResult(0, "", "")

    monkeypatch.setattr(stalled_downloads, "run_watched", watched)
    monkeypatch.setattr(stalled_downloads.pinned_environment, "find", lambda name: f"/bin/{name}")
    limits = stalled_downloads.DownloadLimits(1, 0, "monitoring")
    stalled_downloads.runner(Module(), "apt", limits, str(tmp_path), reports=reports)(argv)
    assert seen == ([text] if reports else [])
    assert list((tmp_path / "run").iterdir()) == []
