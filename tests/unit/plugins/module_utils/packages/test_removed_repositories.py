# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A removed repository leaves no cached metadata and no imported key. Only the programs of the host are fake."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.apt import Apt
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.dnf import Dnf
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.zypper import Zypper
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import removal_transaction, transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp, role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_options import Repository

KEY = Path(__file__).parents[1] / "package_managers/files/zypper/key.asc"
FINGERPRINT = openpgp.fingerprints(KEY.read_bytes())[0]
KEY_PACKAGE = f"gpg-pubkey-{FINGERPRINT[-8:].lower()}"
TOOLS = Repository("tools", "http://server.example/tools", str(KEY), FINGERPRINT)
BACKENDS = {"apt": Apt, "dnf": Dnf, "zypper": Zypper}
METADATA = {
    "apt": [f"/var/lib/apt/lists/server.example_tools_{name}" for name in ("InRelease", "Packages")],
    "dnf": ["/var/cache/dnf/tools-0123456789abcdef/repodata/repomd.xml", "/var/cache/dnf/tools.solv"],
    "zypper": ["/var/cache/zypp/raw/tools/repodata/repomd.xml", "/var/cache/zypp/solv/tools/solv"],
}
OF_OTHERS = {
    "apt": "/var/lib/apt/lists/server.example_tools_more_Packages",
    "dnf": "/var/cache/dnf/tools-more-0123456789abcdef/repodata/repomd.xml",
    "zypper": "/var/cache/zypp/raw/tools-more/repodata/repomd.xml",
}
DPKG = "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.22\n"


class Host:
    """A host with one package. Its package manager stores metadata of the repository in its cache."""

    def __init__(self, root: Path, manager: str) -> None:
        self.root = root
        self.manager = manager
        self.is_unreachable = False
        self.keys: list[str] = []
        self.backend = BACKENDS[manager](self.run, str(root))
        self.journal = Journal("tools", str(root))
        self.write("/var/lib/dpkg/status", DPKG)
        self.write(OF_OTHERS[manager], "")

    def write(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def run(self, argv: list[str], environment: dict | None = None, stdin: str | None = None) -> tuple[int, str, str]:
        on_host = not any(word in ("-c", "--refresh") or word.startswith("--root=") for word in argv)
        if argv == ["dnf", "--version"]:
            return 0, "4.23.0\n", ""
        if argv[0] == "rpm" and "--import" in argv and "--root" not in argv:
            self.keys.append(KEY_PACKAGE)
        if argv[0] == "rpm" and "--erase" in argv:
            self.keys.remove(argv[-1])
        if {"-qa", "--all"} & {*argv}:
            names = [("base", "1-1"), *(key.rsplit("-", 1) for key in self.keys)]
            rows = [[name, f"{version}-1", "noarch", "1"] for name, version in names]
            end = "\t1\n" if "DBINSTANCE" in argv[-1] else "\n"
            return 0, "".join("\t".join(row) + end for row in rows), ""
        if on_host and {"update", "makecache", "refresh"} & {*argv}:
            for path in METADATA[self.manager]:
                self.write(path, "")
            return (1, "", "E: Some index files failed to download.\n") if self.is_unreachable else (0, "", "")
        return 0, "", ""

    def cached(self) -> list[str]:
        files = (path for path in (self.root / "var").rglob("*") if path.is_file())
        paths = {f"/{path.relative_to(self.root)}" for path in files}
        return sorted(paths & {*METADATA[self.manager], OF_OTHERS[self.manager]})

    def has(self, path: str) -> bool:
        return (self.root / path.lstrip("/")).exists()


@pytest.fixture(name="host", params=["apt", "dnf", "zypper"])
def fixture_host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(tmp_path, request.param)


def test_the_removal_of_a_repository_removes_its_metadata(host: Host) -> None:
    entry = role_file_paths.repository_entry(TOOLS.name, host.manager)
    transaction.present(transaction.TransactionRequest(repositories=(TOOLS,)), host.backend, host.journal)
    assert host.has(entry)
    assert host.cached() == sorted([*METADATA[host.manager], OF_OTHERS[host.manager]])
    assert host.keys == ([KEY_PACKAGE] if host.manager == "zypper" else [])
    assert removal_transaction.absent(
        transaction.TransactionRequest(), host.backend, host.journal, check_mode=True
    ).changed
    assert len(host.cached()) == 3
    result = removal_transaction.absent(transaction.TransactionRequest(), host.backend, host.journal)
    assert entry in [file["before_header"] for file in result.files]
    assert not host.has(entry)
    assert not host.journal.exists()
    assert host.cached() == [OF_OTHERS[host.manager]]
    assert host.keys == []


def test_a_failed_transaction_removes_the_metadata_of_its_repository(host: Host) -> None:
    host.is_unreachable = True
    with pytest.raises(transaction.TransactionError) as failure:
        transaction.present(transaction.TransactionRequest(repositories=(TOOLS,)), host.backend, host.journal)
    assert "Not restored" not in str(failure.value)
    assert not host.has(role_file_paths.repository_entry(TOOLS.name, host.manager))
    assert host.cached() == [OF_OTHERS[host.manager]]
    assert host.keys == []
