# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files are the real output of zypper 1.14.89 and rpm 4.20.1 over small signed repositories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    BusyError,
    PackageManagerError,
    Steps,
    View,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.zypper import Zypper
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile

FILES = Path(__file__).parent / "files/zypper"
KEY = (FILES / "key.asc").read_bytes()
KEY_PACKAGE = f"gpg-pubkey-{openpgp.fingerprints(KEY)[0][-8:].lower()}"
ENTRY = b"[new]\nname=new\nenabled=1\nautorefresh=1\nbaseurl=http://server/new\ngpgkey=file:///usr/share/pki/new.asc\n"
BASE = b"[base]\nenabled=1\nautorefresh=1\nbaseurl=http://server/base\n"
REPO, KEY_FILE = "/etc/zypp/repos.d/new.repo", "/usr/share/pki/new.asc"
INSTALLED = "app\t2-1\tnoarch\t1\nbase\t2-1\tnoarch\t1\njob\t1-1\tnoarch\t1\n"


def output(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


class Programs:
    """Fake programs: the first answer whose words are all in the command is the result."""

    def __init__(self, *answers: tuple[str, int, str, str]) -> None:
        self.answers = list(answers)
        self.commands: list[str] = []
        self.environments: list[dict[str, str]] = []
        self.settings: list[str] = []

    def __call__(self, argv: list[str], environment: dict | None = None, stdin: str | None = None) -> tuple:
        command = " ".join(argv)
        self.commands.append(command)
        self.environments.append(environment or {})
        path = (environment or {}).get("ZYPP_CONF")
        self.settings.append(Path(path).read_text(encoding="utf-8") if path else "")
        for words, *result in self.answers:
            if all(word in command for word in words.split()):
                return tuple(result)
        return (0, INSTALLED, "") if "rpm" in argv and "-qa" in argv else (0, "", "")

    def ran(self, word: str) -> list[str]:
        return [command for command in self.commands if word in command]


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    (tmp_path / "etc/zypp/repos.d").mkdir(parents=True)
    (tmp_path / "etc/zypp/repos.d/base.repo").write_bytes(BASE)
    return tmp_path


def write(root: Path, path: str, content: bytes) -> None:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def steps(*install: str, **options) -> Steps:
    return Steps(install=[item(text) for text in install], **options)


# --- simulation and transaction -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("planned", "command"),
    [
        (steps("app=3-1", "base"), "install app=3-1 base"),
        (steps("app=3-1", remove=["job", "missing"]), "install app=3-1 !job"),
        (steps(remove=["job"], purge=["base", "job"]), "install !job !base"),
        (steps(purge=["job"], may_erase=True), "remove job"),
        (steps("app", may_erase=True), "install --force-resolution app"),
        (steps("/srv/app.rpm"), "install --allow-unsigned-rpm /srv/app.rpm"),
    ],
)
def test_a_transaction_is_one_command(planned, command):
    programs = Programs()
    Zypper(programs).act(planned)
    common = "--download in-advance --no-recommends --auto-agree-with-licenses --oldpackage --allow-downgrade "
    *before, last = programs.ran("zypper")
    assert last == "zypper --xmlout --non-interactive " + command.replace("install ", "install " + common)
    # The packages are downloaded before it, with the same choice.
    assert before == ([last.replace("--download in-advance", "--download-only")] if "install" in command else [])


@pytest.mark.parametrize("planned", [Steps(), steps(remove=["missing"]), steps(purge=["missing"], may_erase=True)])
def test_nothing_runs_if_nothing_is_to_do(planned):
    programs = Programs()
    Zypper(programs).act(planned)
    assert Zypper(programs).simulate(planned, View()) == []
    assert programs.ran("zypper") == []


@pytest.mark.parametrize("status", [0, 102, 103, 106])
def test_these_exit_statuses_mean_success(status):
    Zypper(Programs(("zypper install", status, "", ""))).act(steps("app"))


def test_a_failed_package_script_is_a_failure():
    programs = Programs(("install", 107, output("failed-post.xml"), ""))
    with pytest.raises(PackageManagerError, match=r"(?s)exit status 107: nope.*scriptlet failed"):
        Zypper(programs).act(steps("failing"))


def test_the_simulation_uses_the_view_and_returns_what_the_solver_changes():
    programs = Programs(("install", 0, output("conflict-forced.xml"), ""))
    changes = Zypper(programs).simulate(steps("rival", may_erase=True), View(("--no-refresh",)))
    assert [str(change) for change in changes] == ["remove app 2-1", "install rival 1-1"]
    assert programs.ran("zypper") == [
        "zypper --no-refresh --xmlout --non-interactive install --dry-run --no-recommends --auto-agree-with-licenses "
        "--oldpackage --allow-downgrade --force-resolution rival"
    ]


@pytest.mark.parametrize("may_erase", [False, True])
def test_a_conflict_has_the_problem_of_the_solver(may_erase):
    programs = Programs(("install", 4, output("conflict.xml"), ""))
    with pytest.raises(PackageManagerError, match=r"rival-1-1\.noarch conflicts with 'app'") as failure:
        Zypper(programs).simulate(steps("rival", may_erase=may_erase), View())
    assert "Solution" not in str(failure.value)
    assert "No package was changed." in str(failure.value)
    assert ("list it in remove or may_change" in str(failure.value)) is not may_erase


def test_a_version_that_zypper_silently_ignores_is_an_error():
    programs = Programs(("install", 0, output("downgrade-ignored.xml"), ""))
    with pytest.raises(PackageManagerError, match=r"would not install app=1-1.*Installed version: 2-1"):
        Zypper(programs).simulate(steps("app=1-1", "base=1-1"), View())


def test_the_simulation_ignores_locks_but_the_transaction_does_not(root):
    write(root, "/etc/zypp/locks", (FILES / "locks").read_bytes())
    write(root, "/etc/zypp/zypp.conf", b"# comment\n[main]\nmultiversion = provides:multiversion(kernel)\n")
    programs = Programs()
    backend = Zypper(programs, str(root))
    backend.simulate(steps("app"), View())
    backend.simulate(steps("app"), View(), with_holds=True)
    backend.act(steps("app"))
    simulated, again, _downloaded, acted = (
        text for text, command in zip(programs.settings, programs.commands) if "install" in command
    )
    lines = simulated.splitlines()
    assert lines[0] == "[main]"
    assert lines[1].startswith("locksfile.path = ")
    assert lines.count("[main]") == 1
    assert "multiversion = provides:multiversion(kernel)" in lines
    assert not again
    assert not acted


# --- locks --------------------------------------------------------------------------------------------------------


def test_a_lock_of_zypper_is_not_waited_for_twice():
    programs = Programs(("install", 7, output("busy.xml"), ""))
    with pytest.raises(BusyError, match=r"(?s)after 60 seconds: .*locked by the application with pid.*increase lock"):
        Zypper(programs).act(steps("app"))
    assert programs.environments[-1]["ZYPP_LOCK_TIMEOUT"] == "60"


def test_waiting_names_the_process_that_uses_zypper(root):
    backend = Zypper(Programs(), str(root), 0.1)
    backend.wait()
    write(root, "/run/zypp.pid", f"{os.getppid()}\n".encode())
    with pytest.raises(BusyError, match=rf"still busy after 0.1 seconds: process {os.getppid()} \(.+\)"):
        backend.wait()
    # The process with this number ended.
    write(root, "/run/zypp.pid", b"99999999\n")
    backend.wait()


def test_packages_are_locked_once_and_without_a_version(root):
    write(root, "/etc/zypp/locks", (FILES / "locks").read_bytes())
    programs = Programs()
    Zypper(programs, str(root)).hold(["app=2-1", "job=1-1", "job"])
    Zypper(programs, str(root)).release(["app", "job"])
    Zypper(programs, str(root)).hold(["app"])
    assert programs.commands == [
        "zypper --xmlout --non-interactive addlock job",
        "zypper --xmlout --non-interactive removelock app",
    ]


# --- repair -------------------------------------------------------------------------------------------------------


def interrupted(*answers: tuple[str, int, str, str]) -> Programs:
    return Programs(
        *answers,
        ("rpm -qa", 0, output("two-versions.txt"), ""),
        ("--provides kernel-multi", 0, output("provides-kernel.txt"), ""),
        ("--provides app", 0, output("provides-app.txt"), ""),
        ("search --details", 0, output("search.txt"), ""),
    )


def test_two_versions_are_broken_unless_the_package_is_a_kernel():
    assert Zypper(interrupted()).broken() == ["app is installed in the versions 2-1 and 3-1"]
    assert Zypper(Programs()).broken() == []


def test_the_later_version_is_reinstalled_without_downloading_metadata():
    programs = interrupted()
    Zypper(programs).repair([])
    assert programs.ran("install ") == [
        "zypper --no-refresh --xmlout --non-interactive install --no-recommends --auto-agree-with-licenses --force "
        "--oldpackage app=3-1"
    ]


def test_planned_packages_are_reinstalled_if_they_are_installed_in_the_planned_version():
    programs = interrupted()
    changes = [
        SimulatedChange("base", "upgrade", "2-1", "3-1"),
        SimulatedChange("job", "upgrade", "1-1", "2-1"),
        SimulatedChange("clash", "install", None, "1-1"),
    ]
    Zypper(programs).repair(changes)
    assert programs.ran("install ")[0].endswith("--oldpackage app=3-1 base=3-1")


def test_packages_that_a_repository_has_are_reinstalled_before_the_others_are_named():
    programs = interrupted(("--verify job", 1, output("verify-missing.txt"), ""))
    with pytest.raises(PackageManagerError, match="left job-1-1 incomplete"):
        Zypper(programs).repair(
            [SimulatedChange("job", "install", None, "1-1"), SimulatedChange("base", "install", None, "3-1")]
        )
    assert programs.ran("install ")[0].endswith("--oldpackage app=3-1 base=3-1")
    assert programs.ran("--erase") == ["rpm --erase --nodeps app-2-1"]


def test_a_complete_package_that_no_repository_has_stays():
    """It came from a package file."""
    programs = interrupted()
    Zypper(programs).repair([SimulatedChange("job", "install", None, "1-1")])
    assert programs.ran("install ")[0].endswith("--oldpackage app=3-1")


def test_a_package_with_an_explicit_epoch_of_0_is_reinstalled():
    """rpm prints this epoch, but zypper does not."""
    programs = interrupted()
    listing = output("two-versions.txt").replace("\t3-1\t", "\t0:3-1\t").replace("\t2-1\t", "\t0:2-1\t")
    programs.answers.insert(0, ("rpm -qa", 0, listing, ""))
    Zypper(programs).repair([])
    assert programs.ran("install ")[0].endswith("--oldpackage app=3-1")


def test_a_package_whose_removal_was_interrupted_gets_its_files_back():
    programs = Programs(
        ("--verify app", 1, output("verify-missing.txt"), ""),
        ("search --details", 0, output("search.txt"), ""),
    )
    changes = [SimulatedChange("app", "remove", "2-1", None), SimulatedChange("base", "remove", "2-1", None)]
    Zypper(programs).repair(changes)
    assert programs.ran("install ")[0].endswith("--oldpackage app=2-1")


def test_without_a_repository_the_former_version_is_erased_and_the_lost_one_is_named():
    programs = interrupted(("search --details", 104, "", ""), ("--verify app", 1, output("verify-missing.txt"), ""))
    with pytest.raises(PackageManagerError, match=r"left app-3-1 incomplete, .* Enable their repository"):
        Zypper(programs).repair([])
    assert programs.ran("install ") == []
    assert programs.ran("--erase") == ["rpm --erase --nodeps app-2-1"]


def test_the_former_version_is_reinstalled_if_another_package_needs_it():
    problem = output("conflict.xml")
    programs = interrupted(("install app=3-1", 4, problem, ""))
    Zypper(programs).repair([])
    assert [command.split()[-1] for command in programs.ran("install ")] == ["app=3-1", "app=2-1"]
    programs = interrupted(("install app=", 4, problem, ""))
    with pytest.raises(PackageManagerError, match="Problem: 1"):
        Zypper(programs).repair([])
    changes = [command.split()[-1] for command in programs.commands if "install " in command or "--erase" in command]
    assert changes == ["app=3-1", "app=2-1", "app-2-1", "app=3-1"]


def test_a_failed_reinstallation_leaves_the_package_to_another_run():
    programs = interrupted(("install", 8, output("unreachable.xml"), ""))
    with pytest.raises(PackageManagerError, match="Could not connect"):
        Zypper(programs).repair([])
    assert programs.ran("--erase") == []


def test_an_intact_host_needs_no_repair():
    programs = Programs()
    Zypper(programs).repair([SimulatedChange("clash", "install", None, "1-1")])
    assert programs.ran("zypper") == []


DAMAGE = "error: SELECT hnum, idx FROM 'Name' WHERE key=?: 11: database disk image is malformed\n"


def test_a_damaged_database_is_rebuilt():
    programs = Programs(("rpm -qa", 0, INSTALLED, DAMAGE))
    assert Zypper(programs).broken() == [f"rpm's database is damaged: {DAMAGE.strip()}"]
    with pytest.raises(PackageManagerError, match="even after rpm --rebuilddb"):
        Zypper(programs).repair([])
    assert programs.ran("--rebuilddb") == ["rpm --rebuilddb"]


# --- queries ------------------------------------------------------------------------------------------------------


def test_offers_come_from_the_view():
    programs = Programs(("search", 0, output("search.txt"), ""))
    found = Zypper(programs).offers(["app", "missing"], View(("--no-refresh",)))
    assert found == {"app": ["3-1", "2-1", "1-1"], "missing": []}
    assert programs.commands[0].startswith("zypper --no-refresh ")
    with pytest.raises(BusyError):
        Zypper(Programs(("search", 7, output("busy.xml"), ""))).offers(["app"], View())


def test_installed_versions_that_no_repository_has_are_no_offers():
    programs = Programs(("search", 0, output("search-lost.txt"), ""))
    assert Zypper(programs).offers(["base", "ep"], View()) == {"base": ["1.0-1.el9"], "ep": []}


def test_the_dependents_of_packages_are_named():
    programs = Programs(("--allmatches base", 1, "", output("erase-base.txt")))
    assert Zypper(programs).remove_test(["base", "missing"]) == ["app", "job"]
    assert Zypper(programs).remove_test(["missing"]) == []
    with pytest.raises(PackageManagerError, match="cannot open"):
        Zypper(Programs(("--test", 1, "", "error: cannot open Packages database"))).remove_test(["base"])


def test_a_package_is_unneeded_if_only_removed_packages_need_it():
    programs = Programs(("--allmatches base", 1, "", output("erase-base.txt")))
    assert Zypper(programs).unneeded(["base", "missing"], ["app"], []) == []
    together = ("--test base app job", 0, "", "")
    programs.answers.insert(0, together)
    # The transaction requested the package, which zypper therefore considers needed.
    assert Zypper(programs).unneeded(["base"], ["app", "missing", "job"], ["base"]) == ["base"]
    assert not [command for command in programs.ran("--erase") if "--test" not in command or "missing" in command]


# --- repositories -------------------------------------------------------------------------------------------------


def test_a_new_repository_is_fetched_in_a_private_root_with_its_key(root, tmp_path):
    write(root, "/etc/zypp/credentials.d/other", b"secret")
    write(root, "/var/cache/zypp/raw/base/repomd.xml", b"")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    programs = Programs()
    directory = tmp_path / "view"
    files = [
        RepositoryFile(REPO, ENTRY),
        RepositoryFile(KEY_FILE, KEY),
        RepositoryFile("/etc/zypp/credentials.d/new", b"username = bob\n"),
    ]
    view = Zypper(programs, str(root)).view(str(directory), files)
    assert view.options == (f"--reposd-dir={directory}/repos", f"--cache-dir={directory}/cache", "--no-refresh")
    private = directory / "root"
    assert [command.replace(str(directory), "VIEW") for command in programs.commands] == [
        "zypper --xmlout --non-interactive refresh base",
        "rpm --root VIEW/root --import VIEW/root/1.asc",
        "zypper --root=VIEW/root --xmlout --non-interactive refresh new",
    ]
    assert sorted(os.listdir(directory / "repos")) == ["base.repo", "new.repo"]
    assert os.listdir(private / "etc/zypp/repos.d") == ["new.repo"]
    assert sorted(os.listdir(private / "etc/zypp/credentials.d")) == ["new", "other"]
    assert (private / "etc/zypp/credentials.d/new").stat().st_mode & 0o77 == 0
    assert os.readlink(directory / "cache/raw/base") == str(root / "var/cache/zypp/raw/base")
    assert {path: path.read_bytes() for path in before} == before


def test_the_metadata_of_a_new_repository_is_kept(root, tmp_path):
    programs, directory = Programs(), tmp_path / "view"
    backend = Zypper(programs, str(root))
    write(root, "/var/cache/zypp/raw/base/repomd.xml", b"base")
    # What an earlier repository of this name left.
    write(root, "/var/cache/zypp/raw/new/old.xml", b"old")
    # zypper writes it into the private root.
    for name in ("raw/new/repomd.xml", "solv/new/solv"):
        write(directory, f"/root/var/cache/zypp/{name}", b"new")
    backend.keep(backend.view(str(directory), [RepositoryFile(REPO, ENTRY)]))
    backend.keep(View())
    cache = root / "var/cache/zypp"
    assert {str(path.relative_to(cache)): path.read_text() for path in cache.rglob("*") if path.is_file()} == {
        "raw/base/repomd.xml": "base",
        "raw/new/repomd.xml": "new",
        "solv/new/solv": "new",
    }


def test_a_view_without_changes_has_no_options(root, tmp_path):
    programs = Programs()
    assert Zypper(programs, str(root)).view(str(tmp_path / "view"), []) == View()
    assert programs.commands == ["zypper --xmlout --non-interactive refresh base"]


def test_a_view_hides_a_removed_repository(root, tmp_path):
    programs = Programs()
    directory = tmp_path / "view"
    view = Zypper(programs, str(root)).view(str(directory), [RepositoryFile("/etc/zypp/repos.d/base.repo", None)])
    assert view.options
    assert not (directory / "repos").exists() or os.listdir(directory / "repos") == []
    assert programs.ran("refresh") == []


def test_a_written_repository_is_imported_and_forgotten(root):
    write(root, REPO, ENTRY)
    write(root, KEY_FILE, KEY)
    for name in ("raw/new/repomd.xml", "solv/new/solv", "raw/newer/repomd.xml"):
        write(root, f"/var/cache/zypp/{name}", b"")
    programs = Programs()
    backend = Zypper(programs, str(root))
    # The transaction has already removed the old files.
    backend.apply(
        [RepositoryFile(KEY_FILE, KEY), RepositoryFile("/etc/zypp/repos.d/old.repo", None), RepositoryFile(REPO, ENTRY)]
    )
    assert programs.commands == [
        f"rpm --import {root}{KEY_FILE}",
        "zypper --xmlout --non-interactive refresh new",
    ]
    for path in (REPO, KEY_FILE):
        (root / path.lstrip("/")).unlink()
    backend.forget([RepositoryFile(KEY_FILE, KEY), RepositoryFile(REPO, ENTRY)], [KEY_PACKAGE])
    assert programs.commands[2:] == [f"rpm --erase {KEY_PACKAGE}"]
    assert sorted(str(path.relative_to(root / "var/cache/zypp")) for path in root.glob("var/cache/zypp/*/*")) == [
        "raw/newer"
    ]


def test_a_key_that_another_repository_needs_stays(root):
    programs = Programs()
    Zypper(programs, str(root)).forget([RepositoryFile(KEY_FILE, KEY), RepositoryFile(REPO, ENTRY)], [])
    assert programs.commands == []
