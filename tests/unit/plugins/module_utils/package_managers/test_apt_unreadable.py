# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories that cannot be read, with the real apt and repositories in directories and on refused ports."""

from __future__ import annotations

import contextlib
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import apt_unreadable, stalled_downloads
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.apt import Apt
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    PackageManagerError,
    Steps,
    View,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction_versions import (
    TransactionError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.package_managers.real_apt import RealApt
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import request

DEAD = "http://127.0.0.1:9/dead"
ENTRY = "/etc/apt/sources.list.d/tools.list"
pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is not installed")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealApt:
    return RealApt(tmp_path, monkeypatch)


def test_a_dead_third_party_repository_is_only_a_warning(host: RealApt) -> None:
    good = host.repository("good", "driver=1.0")
    host.sources(good, f"deb [arch={host.arch}] {DEAD.replace('//', '//me:secret@')} stable main\n")
    assert [change.name for change in host.plan("driver").changes] == ["driver"]
    (warning,) = host.apt.failures.warnings
    assert f"{DEAD} stable" in warning
    assert "Connection refused" in warning
    assert "secret" not in warning
    # The host's own lists, and the installation.
    host.apt.apply([])
    changes = host.apt.simulate(Steps([item("driver=1.0")]), View())
    assert [str(change) for change in changes] == ["install driver 1.0"]
    assert len(host.apt.failures.warnings) == 1


def test_a_repository_of_the_transaction_is_necessary(host: RealApt) -> None:
    host.sources(host.repository("good", "driver=1.0"))
    files = (RepositoryFile(ENTRY, f"deb {DEAD} stable main\n".encode()),)
    with pytest.raises(PackageManagerError) as error:
        host.plan("driver", files=files)
    assert f"The package repository {DEAD} stable: Could not connect" in str(error.value)
    assert "Nothing was changed. Check the URLs, the logins, the proxy and the network, or set another URL." in str(
        error.value
    )
    # It was written before, and the host's lists are missing.
    host.sources(f"deb {DEAD} stable main\n", path=ENTRY)
    with pytest.raises(PackageManagerError, match="This transaction needs it"):
        host.plan("driver", files=files)


def test_the_only_known_source_of_a_planned_package_is_necessary(host: RealApt) -> None:
    good, other = host.repository("good", "tool=1.0"), host.repository("other", "driver=2.0")
    host.sources(good, other)
    host.apt.apply([])
    shutil.rmtree(host.root / "repo/other")
    with pytest.raises(TransactionError) as error:
        host.plan("driver")
    assert f"copy:{host.root}/repo/other" in str(error.value)
    assert "no other repository offers driver. Nothing was changed." in str(error.value)


def test_an_unreadable_repository_may_have_what_nobody_knows(host: RealApt) -> None:
    host.sources(host.repository("good", "tool=1.0"), f"deb {DEAD} stable main\n")
    with pytest.raises(TransactionError) as error:
        host.plan("driver")
    assert "The repositories have no package driver." in str(error.value)
    assert f"could not be read may have what is missing: {DEAD} stable" in str(error.value)


def test_the_version_of_an_unreadable_repository_is_not_planned(host: RealApt) -> None:
    good, other = host.repository("good", "driver=1.0"), host.repository("other", "driver=2.0")
    host.sources(good, other)
    host.apt.apply([])
    shutil.rmtree(host.root / "repo/other")
    assert [str(change) for change in host.plan("driver").changes] == ["install driver 1.0"]
    host.apt.apply([])
    assert [str(change) for change in host.apt.simulate(Steps([item("driver")]), View())] == ["install driver 1.0"]


def test_only_unreadable_repositories_are_an_error(host: RealApt) -> None:
    host.sources(f"deb {DEAD} stable main\n")
    with pytest.raises(PackageManagerError, match=r"Connection refused|Unable to connect|Failed to fetch"):
        host.plan("driver")


def test_missing_security_updates_are_a_warning_of_their_own(host: RealApt) -> None:
    host.sources(host.repository("good", "driver=1.0"), f"deb {DEAD} trixie-security main\n")
    host.plan("driver")
    (warning,) = host.apt.failures.warnings
    assert warning.startswith(f"The security updates of the distribution could not be read from {DEAD} trixie-security")


def test_a_repository_that_sends_no_data_is_only_a_warning(host: RealApt) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/stalls"
        host.sources(host.repository("good", "driver=1.0"), f"deb {url} stable main\n")
        limits = stalled_downloads.DownloadLimits(5, 0, "tools")
        # apt also prints the URLs without the network.
        module = SimpleNamespace(run_command=lambda argv, **more: host.run(argv, more["environ_update"]))
        run = stalled_downloads.runner(module, "apt", limits, str(host.root))
        host.apt = Apt(lambda argv, **more: run([argv[0], "-c", str(host.config), *argv[1:]], **more), str(host.root))
        assert [str(change) for change in host.plan("driver").changes] == ["install driver 1.0"]
        (warning,) = host.apt.failures.warnings
        assert f"{url} stable: no data for 5 seconds, twice." in warning
        # The server is not asked again.
        server.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                server.accept()[0].close()
        host.apt.apply([])
        with pytest.raises(BlockingIOError):
            server.accept()
        # It is necessary.
        files = (RepositoryFile(ENTRY, f"deb {url} stable main\n".encode()),)
        host.sources(host.repository("other", "tool=1.0"))
        host.apt.failures.found.clear()
        with pytest.raises(PackageManagerError, match="This transaction needs it"):
            host.plan("driver", files=files)


def test_a_query_is_answered_by_the_others(host: RealApt) -> None:
    good, other = host.repository("good", "driver=1.0"), host.repository("other", "driver=2.0", "rare=1")
    host.sources(good, other)
    host.apt.apply([])
    shutil.rmtree(host.root / "repo/other")
    question = transaction.Question(["driver", "rare"])
    found = transaction.query(request(), question, host.apt, Journal("tools", str(host.root)))
    assert found["versions"] == {"driver": ["1.0"], "rare": []}
    (warning,) = host.apt.failures.warnings
    assert warning.endswith("As far as known, no other repository offers rare.")


SOURCES = {
    "/etc/apt/sources.list": "deb http://m/debian trixie main contrib # c\ndeb [arch=amd64] http://me:pw@t/x/ ./\n",
    "/etc/apt/sources.list.d/a.sources": (
        "# the archive\nTypes: deb\nURIs: http://m/debian\n  http://n/debian/\nSuites: trixie trixie-security\n"
        "Components: main\nSigned-By:\n -----BEGIN\n .\n\nTypes: deb\nURIs: http://flat/$(ARCH)\nSuites: /\n"
    ),
    "/etc/apt/sources.list.d/b.list": "deb mirror+file:/etc/apt/mirrors/m.list noble main\n",
}


@pytest.mark.parametrize(
    ("out", "err", "expected"),
    [
        ("Err:1 http://t/x ./ InRelease\n  Could not resolve 't'\n", "", ["http://t/x ."]),
        ("Err:1 http://t/x ./ Packages\n  404  Not Found\n", "", ["http://t/x ."]),
        ("Err:1 http://flat/amd64  InRelease\n  refused\n", "", ["http://flat/amd64"]),
        ("Err:9 http://m/debian trixie/main amd64 Packages\n  404\n", "", ["http://m/debian trixie"]),
        ("Err:1 http://n/debian trixie-security InRelease\n  503\n", "", ["http://n/debian trixie-security"]),
        ("Err:1 http://one/ubuntu noble InRelease\n  x\n", "", ["mirror+file:/etc/apt/mirrors/m.list noble"]),
        (
            "",
            "E: Release file for http://m/debian/dists/trixie/InRelease is expired (invalid since 2d).\n",
            ["http://m/debian trixie"],
        ),
        (
            "",
            "E: Repository 'http://m/debian trixie InRelease' changed its 'Suite' value from 'a' to 'b'\n",
            ["http://m/debian trixie"],
        ),
        ("", "W: GPG error: http://m/debian trixie InRelease: NO_PUBKEY 1\n", ["http://m/debian trixie"]),
        # Another target than those in the sources, and problems without one.
        ("Err:1 http://elsewhere trixie InRelease\n  x\n", "", []),
        ("", "E: The list of sources could not be read.\n", []),
    ],
)
def test_failed_targets(tmp_path: Path, out: str, err: str, expected: list[str]) -> None:
    (tmp_path / "etc/apt/mirrors").mkdir(parents=True)
    (tmp_path / "etc/apt/mirrors/m.list").write_text("# c\nhttp://one/ubuntu/\tpriority:1\nhttp://two/ubuntu\n")
    found = apt_unreadable.failures(out, err, SOURCES, "amd64", str(tmp_path))
    assert [one.name for one in found] == expected


def test_sources_without_failed_targets(tmp_path: Path) -> None:
    out = "".join(
        f"Err:1 {text}\n  x\n"
        for text in (
            "http://t/x ./ InRelease",
            "http://m/debian trixie InRelease",
            "http://n/debian trixie InRelease",
            "http://n/debian trixie-security InRelease",
        )
    )
    failed = apt_unreadable.failures(out, "", SOURCES, "amd64")
    options = apt_unreadable.excluding(SOURCES, failed, "amd64", str(tmp_path / "parts"))
    assert options[-1] == f"--option=Dir::Etc::SourceParts={tmp_path}/parts"
    written = {path.name: path.read_text() for path in (tmp_path / "parts").iterdir()}
    assert written == {
        "sources.list": "",
        "a.sources": (
            "# the archive\nTypes: deb\nURIs: http://m/debian\nSuites: trixie-security\nComponents: main\nSigned-By:\n"
            " -----BEGIN\n .\n\nTypes: deb\nURIs: http://flat/$(ARCH)\nSuites: /\n"
        ),
        "b.list": SOURCES["/etc/apt/sources.list.d/b.list"],
    }
