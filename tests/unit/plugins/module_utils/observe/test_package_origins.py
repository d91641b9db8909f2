# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where driver packages came from, by the files of each package manager."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import observation, package_origins
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared

K = "6.8.0-88-generic"
UTILS, LIBRARY = "nvidia-utils-580-server", "libnvidia-compute-580"
VERSION = "580.95.05-0ubuntu0.24.04.1"
ARCHIVE = "archive.example.com_ubuntu_dists_noble"
CUDA = "developer.download.nvidia.com_compute_cuda_repos_ubuntu2404_x86%5f64"
UBUNTU = {"vendor": "Ubuntu", "repository": "archive.example.com/ubuntu", "key": None}
NVIDIA = {
    "vendor": "NVIDIA",
    "repository": "developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64",
    "key": None,
}


def packages(*entries: tuple[str, str]) -> str:
    """Return the list of a repository."""
    stanza = "Package: {}\nArchitecture: amd64\nVersion: {}\nDescription: mentions nvidia-utils-580-server\n\n"
    return "".join(stanza.format(*entry) for entry in entries)


@pytest.fixture
def lists(tmp_path):
    directory = tmp_path / "var/lib/apt/lists"
    directory.mkdir(parents=True)

    def write(prefix: str, origin: str | None, component: str | None, *entries: tuple[str, str]) -> None:
        release = "Suite: x\n" + (f"Origin: {origin}\nLabel: x\n" if origin else "") + "SHA256:\n 0 0 main/x\n"
        (directory / f"{prefix}_InRelease").write_text(f"-----BEGIN PGP SIGNED MESSAGE-----\n\n{release}")
        middle = f"_{component}_binary-amd64" if component else ""
        (directory / f"{prefix}{middle}_Packages").write_text(packages(*entries))

    return write


def read(root: Path, versions: dict[str, str], manager: str = "apt", signed=None, run=None) -> dict:
    details = {name: {"version": version} for name, version in versions.items()}
    refuse = run or (lambda argv: pytest.fail(f"ran {argv}"))
    return package_origins.read(str(root), manager, details, signed or {}, refuse)


def test_every_list_with_the_installed_version_counts(tmp_path, lists):
    lists(ARCHIVE, "Ubuntu", "restricted", ("aaa", "1"), (UTILS, "580.65.06-0ubuntu2"), ("zzz", "1"))
    lists(f"{ARCHIVE}-updates", "Ubuntu", "restricted", (UTILS, VERSION), (LIBRARY, VERSION))
    lists(f"{ARCHIVE}-security", "Ubuntu", "restricted", (UTILS, VERSION))
    lists(CUDA, "NVIDIA", None, (LIBRARY, "580.95.05-1ubuntu1"), ("other", VERSION))
    found = read(tmp_path, {UTILS: VERSION, LIBRARY: VERSION, "nvidia-settings": "510.47.03-0ubuntu1", "bash": "5"})
    assert found == {UTILS: [UBUNTU], LIBRARY: [UBUNTU]}
    assert read(tmp_path, {LIBRARY: "580.95.05-1ubuntu1"}) == {LIBRARY: [NVIDIA]}


def test_two_repositories_may_have_one_version(tmp_path, lists):
    lists(f"{ARCHIVE}-updates", "Ubuntu", "restricted", (LIBRARY, VERSION))
    lists(CUDA, "NVIDIA", None, (LIBRARY, VERSION))
    assert read(tmp_path, {LIBRARY: VERSION}) == {LIBRARY: [UBUNTU, NVIDIA]}


def test_mirror_without_a_release_file_is_known_by_its_url(tmp_path, lists):
    lists("mirror.example.com_cuda_debian12_x86%5f64", None, None, (LIBRARY, VERSION))
    origin = {"vendor": None, "repository": "mirror.example.com/cuda/debian12/x86_64", "key": None}
    assert read(tmp_path, {LIBRARY: VERSION}) == {LIBRARY: [origin]}


def test_lists_of_free_software_are_not_read(tmp_path, lists):
    lists(ARCHIVE, "Ubuntu", "universe", (LIBRARY, VERSION))
    lists("ppa.example.com_graphics_ubuntu_dists_noble", "LP-PPA-graphics-drivers", "main", (LIBRARY, VERSION))
    (origin,) = read(tmp_path, {LIBRARY: VERSION})[LIBRARY]
    assert origin["vendor"] == "LP-PPA-graphics-drivers"


def test_compressed_lists_are_read_with_apt(tmp_path, lists, monkeypatch):
    lists(CUDA, "NVIDIA", None, (LIBRARY, VERSION))
    plain = tmp_path / f"var/lib/apt/lists/{CUDA}_Packages"
    packed = Path(f"{plain}.gz")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    monkeypatch.setattr(package_origins, "_APT_HELPER", "/bin/sh")

    def run(argv: list[str]) -> tuple[int, str, str]:
        assert argv[1:] == ["cat-file", str(packed)]
        return 0, gzip.decompress(packed.read_bytes()).decode(), ""

    assert read(tmp_path, {LIBRARY: VERSION}, run=run) == {LIBRARY: [NVIDIA]}


@pytest.mark.parametrize("present", [True, False])
def test_without_lists_the_origin_is_unknown(tmp_path, lists, present):
    if present:
        lists(CUDA, "NVIDIA", None)
    assert read(tmp_path, {LIBRARY: VERSION}) == {}


# --- rpm ----------------------------------------------------------------------------------------------------------

RPM = {"nvidia-driver-cuda": "3:580.95.05-1.el9", "kmod-nvidia-open": "580.95.05-2.el9_6", "bash": "5.1.8-9.el9"}
SIGNED = {
    "nvidia-driver-cuda": ("(none)", "RSA/SHA512, Mon Nov 23 12:19:53 2026, Key ID 9cd0a493d42d0685"),
    "kmod-nvidia-open": ("AlmaLinux", "RSA/SHA256, Mon Nov 23 12:19:53 2026, Key ID d36cb86cb86b3716"),
}


def history(root: Path, *rows: tuple[str, int, str, str, str]) -> None:
    """Write the history of dnf 4 with the tables that libdnf creates."""
    path = root / "var/lib/dnf/history.sqlite"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE repo (id INTEGER PRIMARY KEY, repoid TEXT NOT NULL);"
            "CREATE TABLE trans_item (id INTEGER PRIMARY KEY AUTOINCREMENT, item_id INTEGER, repo_id INTEGER);"
            "CREATE TABLE rpm (item_id INTEGER UNIQUE NOT NULL, name TEXT NOT NULL, epoch INTEGER NOT NULL,"
            " version TEXT NOT NULL, release TEXT NOT NULL, arch TEXT NOT NULL);"
        )
        for number, (name, epoch, version, release, repository) in enumerate(rows, 1):
            connection.execute("INSERT INTO repo VALUES (?, ?)", (number, repository))
            values = (number, name, epoch, version, release, "x86_64")
            connection.execute("INSERT INTO rpm VALUES (?, ?, ?, ?, ?, ?)", values)
            connection.execute("INSERT INTO trans_item (item_id, repo_id) VALUES (?, ?)", (number, number))


def test_vendor_key_and_repository_of_rpm_packages(tmp_path):
    history(
        tmp_path,
        ("nvidia-driver-cuda", 3, "570.86.15", "1.el9", "old"),
        ("nvidia-driver-cuda", 3, "580.95.05", "1.el9", "cuda-rhel9-x86_64"),
        ("kmod-nvidia-open", 0, "580.95.05", "2.el9_6", "@commandline"),
    )
    files = sorted(path.name for path in tmp_path.rglob("*"))
    assert read(tmp_path, RPM, "dnf", SIGNED) == {
        "nvidia-driver-cuda": [{"vendor": None, "key": "9cd0a493d42d0685", "repository": "cuda-rhel9-x86_64"}],
        "kmod-nvidia-open": [{"vendor": "AlmaLinux", "key": "d36cb86cb86b3716", "repository": None}],
    }
    assert sorted(path.name for path in tmp_path.rglob("*")) == files


@pytest.mark.parametrize("content", [None, b"", b"no database"])
def test_damaged_history_does_not_matter(tmp_path, content):
    if content is not None:
        path = tmp_path / "var/lib/dnf/history.sqlite"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    assert read(tmp_path, RPM, "dnf") == {}
    assert read(tmp_path, RPM, "dnf", SIGNED)["kmod-nvidia-open"][0]["vendor"] == "AlmaLinux"


def test_repository_of_zypper(tmp_path):
    path = tmp_path / "var/log/zypp/history"
    path.parent.mkdir(parents=True)
    lines = (
        "# comment",
        "2026-01-02 03:04:05|command|root@host|'zypper' 'install'|",
        "2026-01-02 03:04:05|install|nvidia-compute-G06|570.86.15-0|x86_64|root@host|old|abc|",
        "2026-01-02 03:04:06|install|nvidia-compute-G06|580.95.05-0|x86_64|root@host|cuda-sles15|abc|",
    )
    path.write_text("\n".join(lines))
    (origin,) = read(tmp_path, {"nvidia-compute-G06": "580.95.05-0"}, "zypper")["nvidia-compute-G06"]
    assert origin["repository"] == "cuda-sles15"


# --- the observation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", [False, True])
def test_origins_are_read_even_if_the_role_recorded_the_repository(tmp_path, lists, recorded):
    lists(CUDA, "NVIDIA", None, (LIBRARY, VERSION))
    status = f"Package: {LIBRARY}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {VERSION}\n"
    files = {"var/lib/dpkg/status": status, "etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\n'}
    if recorded:
        files[owned.DRIVER_RECORD.lstrip("/")] = json.dumps({"repositories": [owned.REPOSITORY_ID], "packages": []})
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    host = observation.observe(
        str(tmp_path), declared=declared.PLACES, machine="x86_64", kernel=K, run=lambda _argv: (127, "", "")
    )
    assert host["package_origins"] == {LIBRARY: [NVIDIA]}
