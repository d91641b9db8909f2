# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories that dnf and zypper cannot read. The messages are those of dnf 4.23 and zypper 1.14."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.dnf import Dnf
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.stalled_downloads import StalledError
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.zypper import Zypper
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction_versions import (
    TransactionError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import request

DIRECTORIES = {"dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}
REFUSED = "Failed to connect to s port 80: Connection refused"
Answer = tuple[int, str, str]


class Machine:
    """A host whose repositories offer one package each. Those in `dead` do not answer."""

    def __init__(self, root: Path, manager: str, **offers: str) -> None:
        self.root, self.manager, self.offers = root, manager, offers
        self.dead: set[str] = set()
        # Those that never send data.
        self.stalling: set[str] = set()
        # The repositories whose metadata is in the cache.
        self.cached: set[str] = {*offers}
        self.commands: list[str] = []
        self.directory = root / DIRECTORIES[manager].lstrip("/")
        for folder in (self.directory, root / "var/cache/dnf", root / "var/tmp", root / "run"):
            folder.mkdir(parents=True)
        for name in offers:
            (self.directory / f"{name}.repo").write_text(self.entry(name))
        self.backend = {"dnf": Dnf, "zypper": Zypper}[manager](self.run, str(root), lock_timeout=0)

    def entry(self, name: str, extra: str = "") -> str:
        return f"[{name}]\nname=The {name}\nenabled=1\nautorefresh=1\nbaseurl=http://me:secret@s/{name}\n{extra}"

    def run(self, argv: list[str], environment: Any = None, stdin: Any = None) -> Answer:
        self.commands.append(" ".join(argv))
        asked = self._asked(argv) & self.stalling
        if asked and ("makecache" in argv or "refresh" in argv):
            raise self._stalled(sorted(asked)[0])
        return {"dnf": self._dnf, "zypper": self._zypper, "rpm": self._rpm}[argv[0]](argv)

    def _stalled(self, name: str) -> StalledError:
        """Only the output of zypper says which repository it reads. The last open file is that of another one."""
        done = [one for one in self.offers if one != name]
        shown = "".join(
            f'<progress id="raw-refresh" name="Retrieving repository &apos;The {one}&apos; metadata" value="0"/>\n'
            for one in [*done, name]
        )
        url = f"http://s/{name}/x" if self.manager == "dnf" else f"http://s/{done[0]}/x"
        return StalledError("It received no data.", [url], 120, shown)

    def _asked(self, argv: list[str]) -> set[str]:
        if "refresh" in argv:
            return {*argv}
        return self._visible(r"--setopt=reposdir=(\S+)", " ".join(argv)) - {
            word.partition("=")[2] for word in argv if word.startswith("--disablerepo=")
        }

    def _rpm(self, argv: list[str]) -> Answer:
        return 0, "", ""

    # --- dnf: a dead repository ends the command unless it may be skipped ---------------------------------------

    def _dnf(self, argv: list[str]) -> Answer:
        words = " ".join(argv)
        if "--version" in words:
            return 0, "4.23.0\n", ""
        ids = self._visible(r"--setopt=reposdir=(\S+)", words) - {*re.findall(r"--disablerepo=(\S+)", words)}
        if "makecache" in words:
            return self._makecache(sorted(ids), skips="*.skip_if_unavailable=1" in words)
        usable = ids & self.cached if "--cacheonly" in words else ids - self.dead
        if "repoquery" in words:
            rows = [(self.offers[one], one) for one in sorted(usable) if self.offers.get(one) in argv]
            form = "{0}\t{1}\n" if "%{repoid}" in words else "{0}\t0:1.0-1\n"
            return 0, "".join(form.format(*row) for row in rows), ""
        if " install" not in words:
            return 0, "", ""
        assert not ids & self.dead
        if "--assumeyes" in words:
            return 0, "Complete!\n", ""
        line = "=" * 40
        table = [line, " Package Arch Version Repo Size", line, "Installing:", f" {argv[-1]} x86_64 1.0-1 base 1 k"]
        end = ["", "Transaction Summary", line, "Install  1 Package", ""]
        return 1, "\n".join(["Dependencies resolved.", *table, *end]), "Operation aborted.\n"

    def _makecache(self, ids: list[str], skips: bool) -> Answer:
        text, ignored = "", []
        for name in (one for one in ids if one in self.dead):
            skipped = skips or "skip_if_unavailable=1" in (self.directory / f"{name}.repo").read_text()
            text += (
                f"Errors during downloading metadata for repository '{name}':\n"
                f"  - Curl error (7): Couldn't connect to server for http://me:secret@s/{name}/repodata/repomd.xml "
                f"[{REFUSED}]\nError: Failed to download metadata for repo '{name}': Cannot download repomd.xml: "
                "Cannot download repodata/repomd.xml: All mirrors were tried\n"
            )
            if not skipped:
                return 1, "", text
            ignored.append(name)
        return (
            0,
            "Metadata cache created.\n",
            text + "".join(f"Ignoring repositories: {', '.join(ignored)}\n" for _first in ignored[:1]),
        )

    # --- zypper: it refreshes the others, and its exit status is 4 ----------------------------------------------

    def _zypper(self, argv: list[str]) -> Answer:
        words = " ".join(argv)
        if " refresh" in words:
            names = argv[argv.index("refresh") + 1 :]
            return self._refresh([one for one in names if one in self.dead], len(names))
        ids = self._visible(r"--reposd-dir=(\S+)", words)
        if " search" in words:
            rows = [
                f"  | {self.offers[i]} | package | 1.0-1 | x86_64 | The {i}" for i in ids if self.offers.get(i) in argv
            ]
            return (0, "\n".join(rows), "") if rows else (104, "", "")
        assert not ids & self.dead
        package = f'<solvable type="package" name="{argv[-1]}" edition="1.0-1" arch="x86_64"/>'
        return 0, f"<stream><install-summary><to-install>{package}</to-install></install-summary></stream>", ""

    def _refresh(self, dead: list[str], number: int) -> Answer:
        texts = [
            f'<message type="error">Repository &apos;The {name}&apos; is invalid.\n[{name}|http://s/{name}] Failed to '
            f"retrieve new repository metadata.\nHistory:\n - Download (curl) error for &apos;http://s/{name}&apos;:\n"
            f"   Error code: Connection failed\n   Error message: {REFUSED}\n</message>\n"
            f'<message type="error">Skipping repository &apos;The {name}&apos; because of the above error.</message>\n'
            for name in dead
        ]
        end = "Could not refresh the repositories because of errors."
        if len(dead) < number:
            end = "Some of the repositories have not been refreshed because of an error."
        texts += [f'<message type="error">{end}</message>' for _first in dead[:1]]
        return 4 if dead else 0, f"<stream>{''.join(texts)}</stream>", ""

    def _visible(self, pattern: str, words: str) -> set[str]:
        found = re.search(pattern, words)
        place = Path(found[1]) if found else self.directory
        texts = [path.read_text() for path in place.glob("*.repo")]
        sections = re.findall(r"^\[(.+)\]\n((?:(?!\[).*\n?)*)", "".join(texts), re.MULTILINE)
        return {name for name, text in sections if "enabled=1" in text}

    def plan(self, *names: str, **options: Any) -> list[str]:
        journal = Journal("tools", str(self.root))
        done = transaction.present(request(install=list(names), **options), self.backend, journal, check_mode=True)
        return [str(change) for change in done.changes]


Make = Callable[..., Machine]


@pytest.fixture(params=["dnf", "zypper"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    return lambda **offers: Machine(tmp_path, request.param, **offers)


def test_a_dead_third_party_repository_is_only_a_warning(make: Make) -> None:
    machine = make(base="driver", other="tool", third="rare")
    machine.dead = {"other", "third"}
    assert machine.plan("driver") == ["install driver 1.0-1"]
    warnings = machine.backend.failures.warnings
    assert len(warnings) == 2
    assert all("Connection refused" in text and "secret" not in text for text in warnings)
    assert "@s/other" in warnings[0]
    # The host's own configuration.
    before = len(machine.commands)
    machine.backend.apply([])
    machine.backend.act(transaction.Steps(install=[transaction.Item("driver")]))
    assert machine.commands[before:]


def test_the_repository_of_the_transaction_is_necessary(make: Make) -> None:
    machine = make(base="driver")
    path = f"{DIRECTORIES[machine.manager]}/tools.repo"
    machine.dead = {"tools"}
    machine.root.joinpath(path.lstrip("/")).write_text(machine.entry("tools", "skip_if_unavailable=1\n"))
    with pytest.raises(PackageManagerError) as error:
        machine.plan(
            "driver", files=(RepositoryFile(path, machine.entry("tools", "skip_if_unavailable=1\n").encode()),)
        )
    assert "@s/tools" in str(error.value)
    assert "This transaction needs it." in str(error.value)
    assert "Nothing was changed." in str(error.value)
    assert "secret" not in str(error.value)


def test_the_only_known_source_of_a_planned_package_is_necessary(make: Make) -> None:
    machine = make(base="driver", other="tool")
    machine.dead = {"other"}
    with pytest.raises(TransactionError) as error:
        machine.plan("tool")
    assert "@s/other" in str(error.value)
    assert "no other repository offers tool. Nothing was changed." in str(error.value)


def test_only_unreadable_repositories_are_an_error(make: Make) -> None:
    machine = make(base="driver")
    machine.dead = {"base"}
    with pytest.raises(PackageManagerError, match="Nothing was changed"):
        machine.plan("driver")


def test_missing_security_updates_are_a_warning_of_their_own(make: Make) -> None:
    machine = make(base="driver", **{"sle-security": "x"})
    machine.dead = {"sle-security"}
    assert machine.plan("driver") == ["install driver 1.0-1"]
    (warning,) = machine.backend.failures.warnings
    assert warning.startswith("The security updates of the distribution could not be read from http://")


def test_a_repository_that_sends_no_data_is_only_a_warning(make: Make) -> None:
    machine = make(base="driver", other="tool", third="rare")
    machine.stalling, machine.dead = {"other"}, {"third"}
    assert machine.plan("driver") == ["install driver 1.0-1"]
    assert ["no data for 120 seconds, twice" in text for text in machine.backend.failures.warnings] == [True, False]
    machine.stalling = {"base"}
    machine.backend.failures.found.clear()
    machine.backend.failures.needed = frozenset()
    with pytest.raises((PackageManagerError, TransactionError)):
        machine.plan("driver")


def test_dnf_repository_that_may_be_skipped_is_a_warning(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "dnf", base="driver", other="tool")
    (machine.directory / "other.repo").write_text(machine.entry("other", "skip_if_unavailable=1\n"))
    machine.dead = {"other"}
    assert machine.plan("driver") == ["install driver 1.0-1"]
    assert len(machine.backend.failures.warnings) == 1
    assert sum("makecache" in command for command in machine.commands) == 1
