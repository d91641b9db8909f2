# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lists that the real apt downloads from directories and through mirror lists."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import repositories
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import apt_sources
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.package_managers.real_apt import RealApt

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is not installed")
LIST = "/etc/apt/sources.list.d/removed.list"
KINDS = ["file:{0}", "file://{0}", "copy:{0}", "mirror+file:{1}"]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealApt:
    return RealApt(tmp_path, monkeypatch)


def archive(host: RealApt, name: str, origin: str = "Debian") -> tuple[str, str]:
    """Create an archive with the suite trixie. Return its directory, and the path of a mirror list."""
    place = host.root / f"repo/{name}/dists/trixie"
    packages = place / f"main/binary-{host.arch}/Packages"
    packages.parent.mkdir(parents=True)
    packages.write_text(f"Package: a\nVersion: 1\nArchitecture: {host.arch}\nFilename: a.deb\nSize: 1\n")
    digest = hashlib.sha256(packages.read_bytes()).hexdigest()
    (place / "Release").write_text(
        f"Origin: {origin}\nSuite: trixie\nCodename: trixie\nArchitectures: {host.arch}\nComponents: main\n"
        f"Date: Sat, 28 Nov 2026 10:00:00 UTC\nSHA256:\n"
        f" {digest} {packages.stat().st_size} main/binary-{host.arch}/Packages\n"
    )
    mirrors = host.root / f"etc/apt/{name}_mirrors.txt"
    mirrors.write_text(f"file:{host.root}/repo/{name}/\n")
    return f"{host.root}/repo/{name}", str(mirrors)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("origin", "expected"), [("Debian", True), ("Other", False)])
def test_the_archive_is_recognized(host: RealApt, kind: str, origin: str, expected: bool) -> None:
    uri = kind.format(*archive(host, "local_x", origin))
    host.sources(f"deb [trusted=yes] {uri} trixie main\n")
    host.apt.apply([])
    system = {"family": "debian", "arch": os.uname().machine, "codename": "trixie"}
    found = repositories.apt(str(host.root), system, host.run)
    assert [entry["distribution"] for entry in found["sources"]] == [expected]


@pytest.mark.parametrize("kind", KINDS)
def test_the_lists_of_a_removed_entry_are_removed(host: RealApt, kind: str) -> None:
    kept, gone = (kind.format(*archive(host, name)) for name in ("kept_x", "gone_x"))
    host.sources(f"deb [trusted=yes] {kept} trixie main\n")
    entry = f"deb [trusted=yes] {gone} trixie main\n"
    host.sources(entry, path=LIST)
    host.apt.apply([])
    os.unlink(host.root / LIST.lstrip("/"))
    lists = host.root / "var/lib/apt/lists"
    before = {path.name for path in lists.glob("*_dists_*")}
    host.apt.forget([RepositoryFile(LIST, entry.encode())], [])
    after = {path.name for path in lists.glob("*_dists_*")}
    assert len(before) == 4
    assert after == {name for name in before if "kept" in name}


def test_a_mirror_list_counts_before_the_first_download(tmp_path: Path) -> None:
    (tmp_path / "etc/apt").mkdir(parents=True)
    path = tmp_path / "etc/apt/apt-mirrors.txt"
    origin = apt_sources.recorded_origin(str(tmp_path))
    for text, expected in (
        ("http://azure.archive.ubuntu.com/ubuntu/\tpriority:1\nhttps://archive.ubuntu.com/ubuntu/\n", "Ubuntu"),
        ("https://ftp.debian.org/debian\n", "Debian"),
        ("https://ftp.debian.org/debian\nhttps://other.example/tools\n", None),
        ("# nothing\n", None),
    ):
        path.write_text(text)
        assert origin("mirror+file:/etc/apt/apt-mirrors.txt", "noble") == expected
