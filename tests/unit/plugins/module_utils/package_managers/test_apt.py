# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files in `files/apt` are real output of apt 3.0.4 and dpkg 1.22.22. The tests of locks use real locks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import dpkg_state, simulation
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.apt import Apt
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.apt_command import reason
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    BusyError,
    PackageManagerError,
    Steps,
    View,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
    item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import apt_list_names
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile

FILES = Path(__file__).parent / "files"
HOST = View()
STATUS = (FILES / "apt/status").read_text(encoding="utf-8")
DPKG = STATUS.partition("\n\n")[0] + "\n\n"


def output(name: str) -> tuple[str, str]:
    """Return stdout and stderr of a program."""
    paths = [FILES / f"apt/{name}.{kind}" for kind in ("out", "err")]
    out, err = (path.read_text(encoding="utf-8") if path.exists() else "" for path in paths)
    return out, err


def simulated(name: str) -> tuple[int, str, str]:
    return 0, (FILES / f"simulations/apt-{name}.txt").read_text(encoding="utf-8"), ""


def entry(name: str, state: str = "install ok installed", version: str = "1.0-1", arch: str = "amd64") -> str:
    return f"Package: {name}\nStatus: {state}\nArchitecture: {arch}\nVersion: {version}\nDescription: x\n\n"


class Host:
    """A host whose programs return prepared results. A key is a part of a command, and the first match counts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answers: dict[str, Any] = {}
        self.ran: list[str] = []
        self.environments: list[dict[str, str]] = []
        self.apt = Apt(self.run, str(root), lock_timeout=0)
        self.write("/var/lib/dpkg/status", DPKG)

    def run(self, argv: list[str], environment: dict[str, str] | None = None, stdin: str | None = None) -> Any:
        command = " ".join(argv)
        self.ran.append(command)
        self.environments.append(environment or {})
        answer = next((answer for part, answer in self.answers.items() if part in command), (0, "", ""))
        return answer() if callable(answer) else answer

    def write(self, path: str, text: str) -> Path:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target

    def packages(self, *entries: str) -> None:
        self.write("/var/lib/dpkg/status", DPKG + "".join(entries))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = tmp_path / "view"
    path.mkdir(mode=0o700)
    return str(path)


# --- the state of dpkg ------------------------------------------------------------------------------------------------


@pytest.fixture
def locked(host: Host) -> Iterator[subprocess.Popen]:
    """Lock the package lists with another process until its input ends."""
    path = host.write("/var/lib/apt/lists/lock", "")
    code = f"import fcntl;f=open({str(path)!r},'r+');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=True);input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdin
        process.stdout.readline()
        yield process
        process.communicate("\n" if process.poll() is None else None)


def test_wait_names_the_process_that_holds_a_lock(host: Host, locked: subprocess.Popen) -> None:
    with pytest.raises(BusyError) as error:
        host.apt.wait()
    assert f"process {locked.pid} (python" in str(error.value)
    assert "still busy after 0 seconds: process" in str(error.value)


def test_wait_ends_when_the_lock_is_released(host: Host, locked: subprocess.Popen) -> None:
    locked.communicate("\n")
    host.apt.wait()


@pytest.mark.parametrize("name", ["locked-apt", "locked-dpkg"])
def test_a_lock_that_is_taken_between_two_commands_is_awaited(host: Host, name: str) -> None:
    results = [(100, *output(name)), (0, "", "")]
    host.answers = {"apt-mark hold": lambda: results.pop(0)}
    host.apt = Apt(host.run, str(host.root), lock_timeout=5)
    host.apt.hold(["a"])
    assert host.ran == ["apt-mark hold a"] * 2


def test_a_lock_that_stays_is_an_error(host: Host) -> None:
    host.apt.wait()
    host.answers = {"apt-mark hold": (100, *output("locked-apt"))}
    with pytest.raises(BusyError, match="is held by process 2514"):
        host.apt.hold(["a"])


def test_a_killed_program_is_named(host: Host) -> None:
    host.answers = {"apt-mark hold": (-9, "Reading package lists...\n", "")}
    with pytest.raises(PackageManagerError, match=r"failed to hold a: apt-mark was killed by signal 9\.$"):
        host.apt.hold(["a"])


def test_configuration_files_of_any_removed_package_are_known(host: Host) -> None:
    host.packages(entry("agent", "deinstall ok config-files"), entry("libcuda1", "purge ok config-files"), entry("app"))
    assert host.apt.installed()["config_files"] == ["agent", "libcuda1"]


def test_a_complete_installation_is_not_broken(host: Host) -> None:
    host.packages(entry("a"), entry("b", "deinstall ok config-files"), entry("c", "hold ok installed"))
    assert host.apt.broken() == []


def test_broken_names_each_incomplete_package(host: Host) -> None:
    host.write(
        "/var/lib/dpkg/status",
        STATUS
        + entry("bad", "install reinstreq half-installed")
        + entry("lib", "install ok unpacked", arch="i386")
        + entry("waiting", "install ok triggers-pending"),
    )
    host.write("/var/lib/dpkg/updates/0001", "")
    assert host.apt.broken() == [
        "dpkg was interrupted",
        "txfail is half-configured",
        "bad is half-installed and must be reinstalled",
        "lib:i386 is unpacked",
        "waiting is triggers-pending",
    ]
    assert host.ran == []


def test_broken_finds_dependencies_that_are_not_met(host: Host) -> None:
    host.answers = {"check": (100, *output("check-unmet"))}
    assert "txunmet : Depends: txmissing (>= 5) but it is not installable" in host.apt.broken()[0]


def test_the_check_of_the_installed_packages_reads_no_package_lists(host: Host) -> None:
    host.apt.broken()
    (check,) = [command for command in host.ran if command.endswith("check")]
    assert "Dir::Etc::sourcelist=/dev/null" in check
    assert "Dir::Etc::sourceparts=/dev/null" in check


def test_a_damaged_source_is_not_broken(host: Host) -> None:
    host.answers = {"check": (100, "", "E: Type 'dep' is not known on line 1 in source list /etc/apt/sources.list\n")}
    assert host.apt.broken() == []


def test_a_missing_permission_is_not_a_lock(host: Host) -> None:
    host.answers = {
        "hold": (
            100,
            "",
            "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)\n"
            "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?\n",
        )
    }
    with pytest.raises(PackageManagerError, match="Permission denied"):
        host.apt.hold(["a"])
    assert len(host.ran) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file is empty"),
        (DPKG[:-50], "the end of the file is missing"),
        (DPKG + "\0" * 512, "null bytes"),
        (entry("a"), "the entry of dpkg is missing"),
        (DPKG + "Package: a\nVersion: 1\n\n", "the entry 'a' has no name or no status"),
    ],
    ids=["empty", "cut off", "null bytes", "without dpkg", "without a status"],
)
def test_a_damaged_database_is_an_error(host: Host, text: str, problem: str) -> None:
    host.write("/var/lib/dpkg/status", text)
    for method in (host.apt.broken, lambda: host.apt.repair([])):
        with pytest.raises(PackageManagerError, match=problem):
            method()
    assert host.ran == []


def test_a_missing_database_is_an_error(host: Host) -> None:
    (host.root / "var/lib/dpkg/status").unlink()
    with pytest.raises(PackageManagerError, match=r"missing.*Restore it from /var/lib/dpkg/status-old"):
        host.apt.broken()


def finishing(host: Host, *entries: str) -> Any:
    """Return an answer of a program that leaves these packages."""

    def answer() -> tuple[int, str, str]:
        host.packages(*entries)
        return 0, "", ""

    return answer


def test_repair_configures_and_keeps_configuration_files(host: Host) -> None:
    host.packages(entry("a", "install ok half-configured"))
    host.answers = {"dpkg --configure": finishing(host, entry("a"))}
    host.apt.repair([])
    assert host.ran[0] == "dpkg --configure -a --force-confdef --force-confold"
    assert host.environments[0]["DEBIAN_FRONTEND"] == "noninteractive"
    assert not any("install" in command for command in host.ran)


def test_repair_completes_a_removal_and_reinstalls_a_damaged_package(host: Host) -> None:
    host.packages(entry("gone", "deinstall reinstreq half-installed"), entry("bad", "install reinstreq half-installed"))
    host.answers = {
        "--remove": finishing(host, entry("bad", "install reinstreq half-installed")),
        "--simulate": (0, "", ""),
        "--reinstall": finishing(host, entry("bad")),
    }
    host.apt.repair([])
    assert any(command.endswith("--remove gone:amd64") for command in host.ran)
    assert any(command.endswith("install bad=1.0-1") for command in host.ran)


def test_repair_says_what_to_do_with_a_version_that_no_repository_has(host: Host) -> None:
    host.packages(entry("big", "install reinstreq half-installed"))
    host.answers = {"--simulate": (100, *output("reinstall-unavailable"))}
    expected = (
        r"installation of big=1\.0-1 was interrupted.*Can't find a source to download version.*dpkg --install FILE"
    )
    with pytest.raises(PackageManagerError, match=expected):
        host.apt.repair([])
    assert not any("--assume-yes" in command for command in host.ran)


def test_repair_reinstalls_no_package_if_this_changes_others(host: Host) -> None:
    host.packages(entry("big", "install reinstreq half-installed"), entry("job"))
    host.answers = {"--simulate": simulated("upgrade")}
    with pytest.raises(PackageManagerError, match=r"apt would also upgrade app .*; remove job 1\. Install"):
        host.apt.repair([])
    assert not any("--assume-yes" in command for command in host.ran)


def test_repair_completes_the_planned_upgrade(host: Host) -> None:
    host.packages(entry("app", "install reinstreq half-installed"))
    host.answers = {
        "--simulate": simulated("upgrade"),
        "--reinstall": finishing(host, entry("app", version="2.0-1")),
    }
    planned = simulation.apt(simulated("upgrade")[1])
    host.apt.repair(planned)
    assert any("--assume-yes" in command and command.endswith("install app=2.0-1") for command in host.ran)


# dpkg's journal after dpkg was killed while it unpacked a new package.
JOURNAL = (FILES / "apt/journal-0000").read_text(encoding="utf-8")


def test_the_prediction_of_a_repair_has_no_unfinished_packages(host: Host) -> None:
    host.packages(
        entry("half", "hold ok half-configured"),
        entry("gone", "deinstall reinstreq half-installed"),
        entry("lib", "install ok unpacked", arch="i386"),
    )
    host.write("/var/lib/dpkg/updates/0000", JOURNAL)
    before = {path: path.read_bytes() for path in host.root.rglob("*") if path.is_file()}
    copies = []

    def simulate() -> tuple[int, str, str]:
        (path,) = re.findall(r"Dir::State::status=(\S+)", host.ran[-1])
        copies.append(Path(path))
        assert re.findall(r"Package: (big|half|gone)\nStatus: (.*)", copies[-1].read_text()) == [
            ("half", "hold ok installed"),
            ("gone", "deinstall ok config-files"),
            ("big", "install ok installed"),
        ]
        return simulated("install")

    host.answers = {"--simulate": simulate}
    with host.apt.as_repaired() as repaired:
        state = repaired.installed()
        assert [str(change) for change in repaired.simulate(Steps([item("app")]), HOST)]
        assert repaired.broken() == []
    assert {"half": "1.0-1 amd64", "lib": "1.0-1 i386", "big": "1.0-1 amd64"}.items() <= state["all"].items()
    assert (state["held"], state["config_files"]) == (["half"], ["gone"])
    assert len(copies) == 1
    assert not copies[0].exists()
    assert before == {path: path.read_bytes() for path in host.root.rglob("*") if path.is_file()}


def test_the_prediction_of_a_repair_installs_missing_dependencies(host: Host) -> None:
    host.answers = {
        "check": (100, *output("check-unmet")),
        "--fix-broken": (0, *output("fix-broken-installs")),
        "--simulate": simulated("install"),
    }
    missing = [f"{change.name}+" for change in simulation.apt(output("fix-broken-installs")[0])]
    with host.apt.as_repaired() as repaired:
        repaired.simulate(Steps([item("app")]), HOST)
    assert last_words(host, "install app") == missing
    assert missing


def test_the_journal_of_dpkg_replaces_entries_of_the_database(host: Host) -> None:
    host.packages(entry("big"))
    host.write("/var/lib/dpkg/updates/0000", JOURNAL)
    assert host.apt.broken() == ["dpkg was interrupted", "big is half-installed and must be reinstalled"]
    assert "big" not in host.apt.installed()["all"]


def test_repair_installs_missing_dependencies(host: Host) -> None:
    results = [(100, *output("check-unmet")), (0, "", "")]
    host.answers = {
        "check": lambda: results.pop(0),
        "--simulate": (0, *output("fix-broken-installs")),
    }
    host.apt.repair([])
    (fixed,) = [command for command in host.ran if "--assume-yes" in command]
    assert fixed.endswith("--no-remove --fix-broken install")


def test_repair_never_removes_a_package(host: Host) -> None:
    host.answers = {"check": (100, *output("check-unmet")), "--simulate": (0, *output("fix-broken-removes"))}
    with pytest.raises(PackageManagerError, match=r"only if it removes txunmet\. No package was removed"):
        host.apt.repair([])
    assert not any("--assume-yes" in command for command in host.ran)


def test_repair_reports_a_script_that_fails_again(host: Host) -> None:
    host.write("/var/lib/dpkg/status", STATUS)
    host.answers = {"--configure": (1, *output("configure-failed"))}
    with pytest.raises(PackageManagerError, match=r"txfail is half-configured.*make: error: cannot build module"):
        host.apt.repair([])


# --- the repositories -------------------------------------------------------------------------------------------------

SOURCE, KEY = "/etc/apt/sources.list.d/new.sources", "/usr/share/keyrings/new.gpg"
NEW = f"Types: deb\nURIs: https://new.example/repo\nSuites: /\nSigned-By: {KEY}\n"


def test_the_view_has_the_new_files_and_leaves_the_host_alone(host: Host, place: str) -> None:
    host.write("/etc/apt/sources.list", "deb http://m.example/debian trixie main\n")
    host.write("/etc/apt/sources.list.d/old.list", "deb http://old.example /\n")
    host.write("/etc/apt/preferences.d/pin", "old pin\n")
    host.write("/var/lib/apt/lists/m.example_InRelease", "Origin: Debian\n")
    host.write("/var/lib/apt/lists/lock", "")
    before = {path: path.read_bytes() for path in host.root.rglob("*") if path.is_file()}
    files = [
        RepositoryFile(SOURCE, NEW.encode()),
        RepositoryFile(KEY, b"\x99key"),
        RepositoryFile("/etc/apt/sources.list.d/old.list", None),
        RepositoryFile("/etc/apt/preferences.d/pin", b"new pin\n"),
        RepositoryFile("/etc/apt/auth.conf.d/new.conf", b"machine new.example login me password secret\n", 0o600),
        RepositoryFile("/etc/apt/apt.conf.d/90new", b'Acquire::http::Proxy::new.example "http://proxy.example";\n'),
        RepositoryFile("/etc/apt/preferences.d/absent", None),
    ]
    view = host.apt.view(place, files)
    etc = Path(place, "root/etc/apt")
    assert f"Signed-By: {place}/root{KEY}" in (etc / "sources.list.d/new.sources").read_text()
    assert Path(f"{place}/root{KEY}").read_bytes() == b"\x99key"
    assert sorted(path.name for path in (etc / "sources.list.d").iterdir()) == ["new.sources"]
    assert (etc / "sources.list").read_text() == "deb http://m.example/debian trixie main\n"
    assert (etc / "preferences.d/pin").read_text() == "new pin\n"
    assert (etc / "apt.conf.d/90new").exists()
    assert (etc / "auth.conf.d/new.conf").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(f"{place}/lists")) == ["m.example_InRelease"]
    assert view.options == ("-c", f"{place}/apt.conf")
    assert host.ran == [f"apt-get -c {place}/apt.conf update"]
    assert before == {path: path.read_bytes() for path in host.root.rglob("*") if path.is_file()}


def test_apt_reads_only_the_configuration_of_the_view(host: Host, place: str) -> None:
    view = host.apt.view(place, [])
    first = Path(host.environments[0]["APT_CONFIG"]).read_text()
    assert f'Dir::Etc::Parts "{place}/root/etc/apt/apt.conf.d";' in first
    last = Path(view.options[1]).read_text()
    assert f'Dir::Etc "{place}/root/etc/apt";' in last
    assert "#clear APT::Update::Post-Invoke-Success;" in last
    host.apt.offers(["a"], view)
    host.apt.simulate(Steps([item("a")]), view)
    assert host.environments == [host.environments[0]] * 3


def test_apt_can_read_the_view_as_its_own_user(host: Host, place: str) -> None:
    host.apt.view(place, [RepositoryFile(KEY, b"key")])
    for path in (place, f"{place}/lists", f"{place}/root/usr/share/keyrings"):
        assert os.stat(path).st_mode & 0o005 == 0o005
    assert os.stat(f"{place}/root{KEY}").st_mode & 0o004


def test_a_similar_path_is_no_new_key(host: Host, place: str) -> None:
    host.write("/etc/apt/sources.list", f"deb [signed-by={KEY}.old] http://a /\ndeb [signed-by={KEY}] http://b /\n")
    host.apt.view(place, [RepositoryFile(KEY, b"key")])
    text = Path(place, "root/etc/apt/sources.list").read_text()
    assert text == f"deb [signed-by={KEY}.old] http://a /\ndeb [signed-by={place}/root{KEY}] http://b /\n"


def test_components_change_only_the_entries_of_the_archive(host: Host, place: str) -> None:
    host.write("/etc/os-release", "ID=debian\nVERSION_ID=13\nVERSION_CODENAME=trixie\n")
    sources = host.write("/etc/apt/sources.list", "deb http://m.example/debian trixie main\n")
    sources.chmod(0o640)
    host.write("/etc/apt/sources.list.d/other.list", "deb http://other.example trixie main\n")
    files = host.apt.component_files(["contrib"])
    changed = "deb http://m.example/debian trixie main contrib\n"
    assert files == [RepositoryFile("/etc/apt/sources.list", changed.encode(), 0o640)]
    assert host.apt.component_files(["main"]) == []
    host.apt.view(place, files)
    assert Path(place, "root/etc/apt/sources.list").read_text() == changed
    assert sources.read_text() == "deb http://m.example/debian trixie main\n"


def test_components_without_an_archive_are_an_error(host: Host) -> None:
    with pytest.raises(PackageManagerError, match="no enabled entry of the Debian archive"):
        host.apt.component_files(["contrib"])
    assert host.apt.component_files([]) == []


@pytest.mark.parametrize("status", [100, 0])
def test_an_unreachable_repository_is_an_error_without_its_login(host: Host, place: str, status: int) -> None:
    out, err = output("unreachable")
    # apt before version 2.3 prints a warning and succeeds.
    err = err.replace("http://", "http://me:secret@") if status else err.replace("E: ", "W: ")
    host.answers = {"update": (status, out, err)}
    for method in (lambda: host.apt.view(place, []), lambda: host.apt.apply([])):
        with pytest.raises(PackageManagerError) as error:
            method()
        assert "Failed to fetch http://" in str(error.value)
        assert "127.0.0.1:18999/repo/InRelease" in str(error.value)
        assert "secret" not in str(error.value)


def test_offers_are_sorted_as_dpkg_does(host: Host) -> None:
    rows = "".join(f" app | {version} | http://m /\n" for version in ("1.0~rc1", "1:0.5", "1.0"))
    host.answers = {"pkgnames": (0, "app\nother\n", ""), "madison": (0, rows, "")}
    assert host.apt.offers(["ap*"], HOST) == {"app": ["1:0.5", "1.0", "1.0~rc1"]}


def test_offers_of_real_output(host: Host) -> None:
    host.answers = {"madison": (0, *output("madison"))}
    found = host.apt.offers(["txapp", "txepoch", "nosuch"], HOST)
    assert found == {"txapp": ["2.0-1", "1.0-1"], "txepoch": ["5:27.0.3-1~debian.13"], "nosuch": []}


def test_dependencies_of_each_version(host: Host) -> None:
    stanza = "Package: app\nVersion: {}\nDescription: an app\n Depends: not this\n{}\n"
    shown = stanza.format("2.0-1", "Depends: libapp (>= 2.0), libc6\n") + stanza.format("1.0-1", "")
    host.answers = {"show": (100, shown, "E: No packages found\n")}
    found = host.apt.dependencies(["app", "nosuch"], HOST)
    assert found == {"app": {"2.0-1": "libapp (>= 2.0), libc6", "1.0-1": ""}, "nosuch": {}}
    host.answers = {"show": (100, "", "E: Type 'dep' is not known on line 1 in source list /etc/apt/sources.list\n")}
    with pytest.raises(PackageManagerError, match="Type 'dep' is not known"):
        host.apt.dependencies(["app"], HOST)


def test_offers_of_an_architecture(host: Host) -> None:
    host.answers = {
        "madison libc6:i386": (0, "libc6:i386 | 2.40-1 | http://m trixie/main i386 Packages\n", ""),
        "madison libc6": (0, "     libc6 | 2.41-12 | http://m trixie/main amd64 Packages\n", ""),
    }
    assert host.apt.offers(["libc6", "libc6:i386"], HOST) == {"libc6": ["2.41-12"], "libc6:i386": ["2.40-1"]}


def test_an_unknown_name_is_not_offered_but_other_errors_are_reported(host: Host) -> None:
    host.answers = {"madison": (100, "", "E: Unable to locate package a\nE: No packages found\n")}
    assert host.apt.offers(["a"], HOST) == {"a": []}
    host.answers = {"madison": (100, "", "E: Type 'dep' is not known on line 1 in source list /etc/apt/sources.list\n")}
    with pytest.raises(PackageManagerError, match="Type 'dep' is not known"):
        host.apt.offers(["a"], HOST)


@pytest.mark.parametrize(
    ("uri", "suite", "stem"),
    [
        ("http://m.example/debian/", "trixie-updates", "m.example_debian_dists_trixie-updates_"),
        ("https://user:pw@h.example:8443/a_b", "x/updates", "h.example:8443_a%5fb_dists_x_updates_"),
        ("http://127.0.0.1:18917/repo", "/", "127.0.0.1:18917_repo_"),
        ("http://127.0.0.1:18917/repo", "./", "127.0.0.1:18917_repo_._"),
        ("http://127.0.0.1:18917/", "repo/", "127.0.0.1:18917_repo_"),
    ],
)
def test_names_of_package_lists(uri: str, suite: str, stem: str) -> None:
    assert apt_list_names.list_stem(uri, suite) == stem


def test_forget_removes_only_the_lists_of_the_removed_entry(host: Host) -> None:
    host.write("/etc/apt/sources.list", "deb http://m.example/debian trixie main\ndeb http://shared.example /\n")
    lists = ["new.example_repo_InRelease", "new.example_repo_Packages", "shared.example_Packages"]
    others = ["m.example_debian_dists_trixie_InRelease", "new.example_repo_sub_Packages", "lock"]
    for name in (*lists, *others):
        host.write(f"/var/lib/apt/lists/{name}", "")
    host.apt.forget(
        [RepositoryFile(SOURCE, NEW.encode() + b"\nTypes: deb\nURIs: http://shared.example\nSuites: /\n")], []
    )
    assert sorted(os.listdir(host.root / "var/lib/apt/lists")) == sorted(["shared.example_Packages", *others])
    assert host.ran == []


# --- the packages -----------------------------------------------------------------------------------------------------


def last_words(host: Host, command: str) -> list[str]:
    return next(ran for ran in host.ran if command in ran).partition(f" {command} ")[2].split()


def test_simulation_of_all_kinds_of_steps(host: Host) -> None:
    host.packages(
        entry("job"),
        entry("lib", arch="i386"),
        entry("conf", "deinstall ok config-files", "3.0"),
        entry("old"),
        entry("g++"),
    )
    host.answers = {"--simulate": simulated("upgrade")}
    steps = Steps(
        [item("app=2.0-1"), item("base"), item("/srv/x.deb")],
        remove=["job", "lib", "absent", "g++"],
        purge=["conf", "old"],
    )
    changes = host.apt.simulate(steps, HOST)
    assert last_words(host, "install") == ["app=2.0-1", "base", "/srv/x.deb", "job-", "lib:i386-", "g++-", "old-"]
    assert [str(change) for change in changes] == [
        "upgrade app from 1.0-1 to 2.0-1",
        "upgrade base from 1.0-1 to 2.0-1",
        "remove conf 3.0",
        "remove job 1",
    ]
    assert "--ignore-hold" in host.ran[0]
    assert "--allow-downgrades" in host.ran[0]


def test_nothing_to_do_runs_no_program(host: Host) -> None:
    steps = Steps(remove=["absent"], purge=["absent"])
    assert host.apt.simulate(steps, HOST) == []
    host.apt.act(steps)
    assert host.ran == []


def test_a_conflict_is_explained(host: Host) -> None:
    host.answers = {"--simulate": (100, *output("conflict"))}
    with pytest.raises(PackageManagerError) as error:
        host.apt.simulate(Steps([item("txrival"), item("txapp")]), HOST)
    text = str(error.value)
    assert text.startswith(
        "apt cannot install or remove txrival txapp: The following packages have unmet dependencies: "
    )
    assert "txapp : Depends: txbase (= 2.0-1) but it is not installable" in text
    assert text.endswith("No package was changed.")


@pytest.mark.parametrize(
    ("options", "present", "absent"),
    [
        ({}, ["--no-remove"], []),
        ({"may_erase": True}, [], ["--no-remove"]),
        ({"remove": ["job"]}, [], ["--no-remove"]),
    ],
)
def test_act_may_do_only_what_is_allowed(host: Host, options: Any, present: list[str], absent: list[str]) -> None:
    host.packages(entry("job"))
    host.apt = Apt(host.run, str(host.root), lock_timeout=7)
    host.apt.act(Steps([item("app=2.0-1")], **options))
    words = host.ran[0].split()
    assert {*present, "--allow-downgrades", "--assume-yes", "--option=DPkg::Lock::Timeout=7"} <= set(words)
    assert not set(absent) & set(words)
    assert "--option=DPkg::Options::=--force-confold" in words
    assert host.environments[0]["NEEDRESTART_MODE"] == "l"


def test_only_the_first_simulation_ignores_holds(host: Host) -> None:
    host.apt.simulate(Steps([item("app")]), HOST)
    host.apt.simulate(Steps([item("app")]), HOST, with_holds=True)
    assert ["--ignore-hold" in command for command in host.ran] == [True, False]


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [("app\t2:1.0-1\tamd64\n", "app:amd64", "2:1.0-1"), ("data\t1.0-1\tall\n", "data", "1.0-1")],
)
def test_a_package_file_has_a_name_and_a_version(host: Host, text: str, name: str, version: str) -> None:
    host.answers = {"dpkg-deb --show": (0, text, "")}
    assert host.apt.package_file("/root/app.deb") == Item(name, version, file="/root/app.deb")


def test_a_damaged_package_file_is_named(host: Host) -> None:
    message = "dpkg-deb: error: '/root/app.deb' is not a Debian format archive\n"
    host.answers = {"dpkg-deb --show": (2, "", message)}
    with pytest.raises(PackageManagerError, match=r"^The package file /root/app\.deb could .*not a Debian format"):
        host.apt.package_file("/root/app.deb")


def test_act_purges_only_the_named_packages(host: Host) -> None:
    host.packages(entry("a"), entry("b"), entry("kept", "deinstall ok config-files"))
    removed = [entry(name, "deinstall ok config-files") for name in ("a", "b", "kept")]
    host.answers = {"install": finishing(host, *removed)}
    host.apt.act(Steps(remove=["a"], purge=["b"]))
    assert last_words(host, "install") == ["a-", "b-"]
    assert host.ran[1:] == ["dpkg --purge b:amd64"]


def test_act_reports_what_the_script_of_a_package_printed(host: Host) -> None:
    host.answers = {"install": (100, *output("failed-script"))}
    with pytest.raises(PackageManagerError) as error:
        host.apt.act(Steps([item("txfail")]))
    assert str(error.value) == (
        "apt failed to change txfail: make: error: cannot build module dpkg: error processing package txfail "
        "(--configure): installed txfail package post-installation script subprocess returned error exit status 3 "
        "Errors were encountered while processing: txfail E: Sub-process /usr/bin/dpkg returned an error code (1)."
    )


def test_a_reason_without_known_lines_is_the_end_of_the_output() -> None:
    text = "".join(f"line {number}\n" for number in range(100))
    assert reason("", text).split("line ")[1:3] == ["85 ", "86 "]


def test_release_skips_packages_that_are_not_held(host: Host) -> None:
    host.packages(entry("a", "hold ok installed"), entry("b"), entry("lib", "hold ok installed", arch="i386"))
    host.apt.release(["b", "absent"])
    assert host.ran == []
    host.apt.release(["a", "b", "lib:i386", "absent"])
    assert host.ran == ["apt-mark unhold a lib:i386"]


def test_unneeded_packages_are_those_that_apt_would_remove(host: Host) -> None:
    host.packages(entry("app"), entry("base"), entry("job"), entry("other"))
    marks = host.write("/var/lib/apt/extended_states", "")
    host.answers = {"autoremove": simulated("remove")}
    assert host.apt.unneeded(["base", "other", "job"], ["app", "absent"], ["job", "absent"]) == ["base", "job"]
    marked, listed = host.ran
    (private,) = re.findall(r"^apt-mark .*(--option=Dir::State::extended_states=\S+) auto job$", marked)
    assert private in listed.split()
    assert str(marks) not in marked
    assert "--simulate" in listed.split()
    for option in ("Protect-Kernels", "AutoRemove::RecommendsImportant", "AutoRemove::SuggestsImportant"):
        assert f"--option=APT::{option}=false" in listed
    assert listed.endswith(" autoremove app")


def test_unneeded_packages_stay_if_unrecorded_packages_need_them(host: Host) -> None:
    """An upgrade brought hdr-50, which needs hdr-kbuild. apt considers all of them unneeded without hdr-meta.

    apt also considers `extra` and one of two architectures of libfoo unneeded.
    """
    names = ["hdr-47", "hdr-kbuild", "hdr-meta", "libfoo"]
    host.packages(*map(entry, [*names, "hdr-50", "extra"]), entry("libfoo", arch="i386"))

    def mark() -> tuple[int, str, str]:
        host.answers["autoremove"] = simulated("autoremove-marked")
        return 0, "", ""

    host.answers = {" manual ": mark, "autoremove": simulated("autoremove")}
    assert host.apt.unneeded(names, [], ["hdr-meta"]) == ["hdr-47", "hdr-meta"]
    (marked,) = [ran for ran in host.ran if " manual " in ran]
    assert "--option=Dir::State::extended_states=" in marked
    assert marked.endswith(" manual extra hdr-50 libfoo:i386")


def test_packages_that_the_user_requested_keep_their_mark(host: Host) -> None:
    host.packages(entry("base"))
    host.answers = {"autoremove": (0, "", "")}
    assert host.apt.unneeded(["base"], [], []) == []
    assert not any("apt-mark" in command for command in host.ran)


def test_configuration_files_of_all_architectures_are_purged(host: Host) -> None:
    """dpkg finds a name without an architecture ambiguous."""
    removed = "deinstall ok config-files"
    host.packages(entry("both", removed), entry("both", removed, arch="i386"))
    steps = Steps(purge=["both"])
    assert [(str(change), change.arch) for change in host.apt.simulate(steps, HOST)] == [
        ("remove both 1.0-1", ""),
        ("remove both 1.0-1", "i386"),
    ]
    host.apt.act(steps)
    assert host.ran == ["dpkg --purge both:amd64 both:i386"]


def test_remove_test_names_the_other_packages(host: Host) -> None:
    host.packages(entry("base"))
    host.answers = {"purge base": simulated("remove")}
    assert host.apt.remove_test(["base", "absent"]) == ["app", "job"]


def test_remove_test_names_packages_that_apt_would_give_another_provider(host: Host) -> None:
    """apt answers the removal of a library with another provider of it, instead of naming what needs the library."""
    host.packages(entry("lib1"), entry("daemon"))
    other = "Inst lib2 (1.0-1 Debian:12 [amd64])\nRemv lib1 [1.0-1]\nConf lib2 (1.0-1 Debian:12 [amd64])\n"
    host.answers = {
        "purge lib1 lib2-": (0, "Purg daemon [1.0-1]\nPurg lib1 [1.0-1]\n", ""),
        "purge lib1": (0, other.replace("Remv", "Purg"), ""),
    }
    assert host.apt.remove_test(["lib1"]) == ["daemon"]


@pytest.mark.parametrize(
    ("requested", "selected"),
    [
        ("one", ["one"]),
        ("both", ["both", "both:i386"]),
        ("both:i386", ["both:i386"]),
        ("both:any", ["both", "both:i386"]),
        ("foreign", ["foreign:i386"]),
        ("one:amd64", ["one"]),
        ("one:i386", []),
        ("data:amd64", ["data"]),
        ("absent", []),
    ],
)
def test_selection_by_architecture(host: Host, requested: str, selected: list[str]) -> None:
    host.packages(
        entry("one"),
        entry("both"),
        entry("both", arch="i386"),
        entry("foreign", arch="i386"),
        entry("data", arch="all"),
    )
    packages = dpkg_state.parse((host.root / "var/lib/dpkg/status").read_text())
    assert [package.name for package in dpkg_state.select(packages, requested)] == selected


def test_repair_reinstalls_a_held_package_whose_removal_was_interrupted(host: Host) -> None:
    host.packages(entry("a", "hold ok half-installed"))

    def install() -> tuple[int, str, str]:
        host.packages(entry("a", "hold ok installed"))
        return 0, "", ""

    host.answers = {"--simulate": (0, "", ""), "--allow-change-held-packages install a=1.0-1": install}
    host.apt.repair([])
    assert host.apt.broken() == []
