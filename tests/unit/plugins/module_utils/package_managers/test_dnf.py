# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dnf 4 backend. The outputs in files/dnf are from dnf 4.23 and rpm 4.20."""

from __future__ import annotations

import atexit
import os
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    BusyError,
    PackageManagerError,
    Steps,
    View,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.dnf import Dnf
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
    item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    transaction_versions,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile

FILES = Path(__file__).parent / "files" / "dnf"
# drv 1-1.el9, drvlib 1-1.el9, fca 1-1.el9, ep 3:1.0-1.el9 and, after a killed upgrade, two versions of slow.
RPM = (FILES / "rpm-killed.txt").read_text(encoding="utf-8")
KEY = (FILES / "lab.key").read_bytes()
PREFIX = ["--debuglevel=2", "--noautoremove", "--setopt=install_weak_deps=False"]


def output(name: str, rc: int = 0) -> tuple[int, str, str]:
    """Return the recorded exit status, stdout and stderr."""
    parts = [FILES / f"{name}.{end}" for end in ("out", "err")]
    return (rc, *(part.read_text(encoding="utf-8") if part.exists() else "" for part in parts))


class Host:
    """A host whose programs answer by the first text that their command contains. `commands` records the others."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.commands = []
        self.scripts = []

    def __call__(self, argv, environment=None, stdin=None):
        command = " ".join(argv)
        if command == "dnf --version" and not any("--version" in text for text, _answer in self.answers):
            return 0, "4.23.0\n", ""
        self.commands.append(command.replace("--setopt=exit_on_lock=True ", ""))
        self.scripts.append(stdin)
        for number, (text, answer) in enumerate(self.answers):
            if text in command:
                # The last answer of several for one command stays.
                if sum(text == other for other, _answer in self.answers) > 1:
                    del self.answers[number]
                return answer
        if "--query --all" in command:
            return 0, RPM, ""
        return 0, "", ""

    def changes(self):
        """Return the commands that change the host."""
        others = ("--query", "--assumeno", "--downloadonly")
        return [text for text in self.commands if not any(other in text for other in others)]


# --- simulation and transaction ---------------------------------------------------------------------------------------


def changes(name: str, steps: Steps) -> list[str]:
    """Return the simulated changes as text."""
    return [str(change) for change in Dnf(Host(("--assumeno", output(name)))).simulate(steps, View())]


def test_simulate():
    """The changes have the versions before, which dnf does not print."""
    steps = Steps(install=[item("drv=2-1.el9")], remove=["fca"])
    assert changes("shell-upgrade", steps) == [
        "upgrade drv from 1-1.el9 to 2-1.el9",
        "upgrade drvlib from 1-1.el9 to 2-1.el9",
        "remove fca 1-1.el9",
    ]
    assert changes("shell-streams", steps) == ["remove fca 1-1.el9", "install gpudrv 1-1.el9"]
    assert changes("shell-rival", steps) == ["remove drv 1-1.el9", "remove fca 1-1.el9", "install rival 1-1.el9"]
    assert changes("shell-nothing", steps) == []


def test_simulate_uses_the_view():
    """The options of the view select the repositories."""
    host = Host(("--assumeno", output("shell-nothing")))
    Dnf(host).simulate(Steps(install=[Item("drv")]), View(("--setopt=reposdir=/view",)))
    assert host.commands[-1].startswith("dnf --setopt=reposdir=/view --disableplugin=versionlock --assumeno ")


DOWNGRADE = (
    1,
    "=====\n Package\n=====\nDowngrading:\n drv  noarch  0-1.el9  base  6.0 k\n\nTransaction Summary\n=====\n"
    "Downgrade  1 Package\n",
    "Operation aborted.\n",
)


def test_downgrade():
    (change,) = Dnf(Host(("--assumeno", DOWNGRADE))).simulate(Steps(install=[item("drv=0-1.el9")]), View())
    assert str(change) == "downgrade drv from 1-1.el9 to 0-1.el9"


def test_the_simulation_finds_an_error_of_the_shell():
    """dnf's shell removes a package although the installation failed."""
    host = Host(("--assumeno", output("shell-unknown")))
    with pytest.raises(PackageManagerError, match="Unable to find a match: nope-3"):
        Dnf(host).simulate(Steps(install=[item("nope=3")], remove=["fca"]), View(), with_holds=True)
    assert "versionlock" not in host.commands[-1]


@pytest.mark.parametrize("may_erase", [False, True])
def test_an_unsolved_simulation_says_how_to_allow_removals(may_erase):
    """With the permission, dnf has already looked for removals."""
    host = Host(("--assumeno", output("shell-unmet")))
    with pytest.raises(PackageManagerError, match=r"\. No package was changed\.") as failure:
        Dnf(host).simulate(Steps(install=[Item("drv")], remove=["fca"], may_erase=may_erase), View())
    assert ("list it in remove or may_change" in str(failure.value)) is not may_erase


def test_package_file():
    """The output is that of rpm 4.20. A package manager other than dnf 4 is not used."""
    host = Host(("--package", (0, "ep\t3:1.0-1\tx86_64\n", "warning: /root/ep.rpm: Header V4: NOKEY\n")))
    assert Dnf(host).package_file("/root/ep.rpm") == Item("ep:x86_64", "3:1.0-1", file="/root/ep.rpm")
    missing = (1, "", "error: open of /root/ep.rpm failed: No such file or directory\n")
    with pytest.raises(PackageManagerError, match=r"file /root/ep.rpm could not be read: .*No such file or directory"):
        Dnf(Host(("--package", missing))).package_file("/root/ep.rpm")


def test_file_conflict_with_a_package_to_remove():
    """The removal comes first, and the installation then uses the downloaded packages."""
    host = Host(
        ("--downloadonly", (0, "", "")),
        ("--assumeyes", output("file-conflict")),
        ("--assumeyes", (0, "", "")),
        ("--assumeno", output("shell-fcb")),
        ("--assumeno", output("remove-fca", 1)),
        ("--assumeno", output("install-fcb", 1)),
    )
    Dnf(host).act(Steps(install=[Item("fcb")], remove=["fca"]))
    tail = " ".join(PREFIX)
    assert host.changes()[1:] == [
        f"dnf --cacheonly --assumeyes {tail} remove fca",
        f"dnf --cacheonly --assumeyes {tail} install fcb",
    ]


def test_file_conflict_with_a_package_that_others_need():
    """Package rely needs fca or fcb, so it stays only if both change in one transaction."""
    host = Host(
        ("--downloadonly", (0, "", "")),
        ("--assumeyes", output("file-conflict")),
        ("--assumeno", output("shell-fcb")),
        ("--assumeno", output("remove-rely", 1)),
    )
    with pytest.raises(PackageManagerError, match=r"conflicts with .* but would then also remove rely\. Remove these"):
        Dnf(host).act(Steps(install=[Item("fcb")], remove=["fca"]))
    assert len(host.changes()) == 1


def test_file_conflict_with_a_package_that_stays():
    """Nothing is removed for it."""
    host = Host(("--downloadonly", (0, "", "")), ("--assumeyes", output("file-conflict", 1)))
    with pytest.raises(PackageManagerError, match=r"conflicts with file from package fca-1-1.el9.noarch\.$"):
        Dnf(host).act(Steps(install=[Item("fcb")], remove=["drv"]))
    assert len(host.changes()) == 1


# --- interrupted transactions -----------------------------------------------------------------------------------------


def history(name: str) -> tuple[int, str, str]:
    """Return the recorded output of `dnf history info`."""
    return 0, (FILES / f"history-{name}.txt").read_text(encoding="utf-8"), ""


def test_repair():
    """The old copy is removed, and the new one is installed again because its scriptlets may not have run."""
    host = Host(("repoquery --duplicates", (0, "slow\tnoarch\n", "")), ("history", history("killed")))
    backend = Dnf(host)
    assert len(backend.broken()) == 2
    host.commands.clear()
    backend.repair([])
    assert [text for text in host.changes() if "--quiet" not in text] == [
        "rpm --erase --nodeps slow-1-1.el9.noarch",
        f"dnf --assumeyes {' '.join(PREFIX)} reinstall slow-2-1.el9.noarch",
    ]


def test_packages_with_several_versions():
    """dnf does not report packages such as kernels as duplicates."""
    assert Dnf(Host(("repoquery --duplicates", (0, "", "")))).broken() == []


def test_lost_version():
    """The error names the package and the way out."""
    lost = (
        "Installed package slow-2-1.el9.noarch (from base) not available.\nError: No packages marked for reinstall.\n"
    )
    host = Host(("reinstall", (1, "", lost)), ("history", history("killed")))
    with pytest.raises(PackageManagerError, match=r"slow-2-1.el9.noarch was interrupted, .* Enable their repository"):
        Dnf(host).repair([])


@pytest.mark.parametrize("new", ["slow-2-1.el9.noarch", "slow-0:2-1.el9.noarch"])
def test_repair_of_a_package_whose_file_another_package_has(new):
    """The killed transaction was to remove the other package last. So the new package is removed first."""
    conflict = (
        f"Error: Transaction test error:\n  file /opt/page from install of {new} conflicts with file from package "
        "notes-1-1.el9.noarch\n"
    )
    listing = "slow\t2-1.el9\tnoarch\t1795392515\t80\napp\t2-1.el9\tnoarch\t1795392515\t81\n"
    planned = [SimulatedChange(name, "install", None, "2-1.el9", "noarch") for name in ("app", "slow")]
    host = Host(
        ("--query --all", (0, listing, "")),
        ("reinstall app-2-1.el9.noarch slow-2-1.el9.noarch", (1, "", conflict)),
        ("reinstall app-2-1.el9.noarch", (0, "", "")),
    )
    Dnf(host).repair(planned)
    reinstall = f"dnf --assumeyes {' '.join(PREFIX)} reinstall"
    assert host.changes()[-3:] == [
        f"{reinstall} app-2-1.el9.noarch slow-2-1.el9.noarch",
        "rpm --erase --nodeps slow-2-1.el9.noarch",
        f"{reinstall} app-2-1.el9.noarch",
    ]


@pytest.mark.parametrize("is_complete", [True, False])
def test_repair_of_a_package_file(is_complete):
    """dnf cannot reinstall it. The mark ends the interrupted transaction in dnf's history."""
    listing = "slow\t2-1.el9\tnoarch\t1795392515\t80\n"
    verified = (0, "", "") if is_complete else (1, "missing     /opt/slow\n", "")
    host = Host(
        ("--query --all", (0, listing, "")),
        ("history", history("file")),
        ("reinstall", output("reinstall-file", 1)),
        ("--verify --nodeps --noscripts --nofiledigest slow-2-1.el9.noarch", verified),
    )
    mark = "dnf --assumeyes --quiet --disablerepo=* mark install slow-2-1.el9.noarch"
    if is_complete:
        Dnf(host).repair([])
    else:
        with pytest.raises(
            PackageManagerError, match=r"slow-2-1.el9.noarch was interrupted, .* install another version"
        ):
            Dnf(host).repair([])
    assert (mark in host.commands) is is_complete


def test_damaged_database():
    """rpm rebuilds its database. Without success, nothing else runs."""
    host = Host(("--query --all", (1, "", "error: cannot open Packages database in /var/lib/rpm\n")))
    backend = Dnf(host)
    assert backend.broken() == ["rpm cannot read its database"]
    with pytest.raises(PackageManagerError, match="even after"):
        backend.repair([])
    assert host.changes() == ["rpm --rebuilddb"]


# --- locks of other programs ------------------------------------------------------------------------------------------

VERSION = ("--version", (0, "4.23.0\n", ""))


def write(root: Path, path: str, text: str | bytes) -> Path:
    """Write a file below the root directory."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text.encode() if isinstance(text, str) else text)
    return target


def test_wait(tmp_path):
    """The error names the process. The lock of a process that ended does not count."""
    lock = write(tmp_path, "/var/cache/dnf/metadata_lock.pid", "99999999")
    backend = Dnf(Host(), str(tmp_path), 0)
    backend.wait()
    lock.write_text(str(os.getppid()))
    with pytest.raises(BusyError, match=rf"still busy after 0 seconds: process {os.getppid()} \(.*lock_timeout"):
        backend.wait()


def test_lock_of_dnf_during_a_command():
    """dnf exits at once, so that the time limit applies."""
    host = Host(("makecache", (200, "", "")))
    backend = Dnf(host, lock_timeout=0)
    with pytest.raises(BusyError):
        backend.view("/nowhere", [])


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([("dnf --version", (0, "dnf5 version 5.2.6.2\n", ""))], "is dnf 5.2.6.2, but only dnf 4 is supported"),
        (
            [
                ("dnf5 --version", (0, "dnf5 version 5.2.6.2\n", "")),
                ("dnf --version", (127, "", "dnf is not installed")),
            ],
            "is dnf 5.2.6.2, but only dnf 4 is supported",
        ),
        ([("--version", (127, "", ""))], "The command dnf is not installed"),
    ],
)
def test_other_versions(answers, message):
    """Only dnf 4 is supported, also for a query or in check mode."""
    host = Host(*answers)
    with pytest.raises(PackageManagerError, match=message):
        Dnf(host).broken()
    with pytest.raises(PackageManagerError, match=message):
        Dnf(host).view("/nowhere", [])
    assert not [command for command in host.commands if "--version" not in command and "dnf" in command]


def test_the_version_is_read_once():
    """It takes half a second."""
    host = Host(("dnf --version", (0, "4.23.0\n", "")))
    backend = Dnf(host)
    backend.broken()
    backend.broken()
    assert host.commands.count("dnf --version") == 1


# --- repositories -----------------------------------------------------------------------------------------------------

ENTRY = (
    b"[new]\nbaseurl=http://new/\nskip_if_unavailable=1\ngpgkey=file:///etc/pki/new.key file:///etc/pki/new.keyring\n"
)


def test_view(tmp_path):
    """The view is a private directory. The host's files do not change."""
    files = [RepositoryFile("/etc/yum.repos.d/new.repo", ENTRY), RepositoryFile("/etc/pki/new.key", KEY)]
    write(tmp_path, "/etc/yum.repos.d/a.repo", "[a]\n")
    view = Dnf(Host(), str(tmp_path)).view(str(tmp_path / "view"), files)
    assert view == View((f"--setopt=reposdir={tmp_path}/view/repositories",))
    assert sorted(path.name for path in (tmp_path / "view/repositories").iterdir()) == ["000-a.repo", "001-new.repo"]
    assert (tmp_path / "view/repositories/001-new.repo").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "etc/yum.repos.d/a.repo").read_text(encoding="utf-8") == "[a]\n"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        # Check mode, or a transaction that is not allowed.
        (None, ["base.solv", "new-0123456789abcdef"]),
        (ENTRY, ["base.solv", "new-0123456789abcdef", "new-ffffffffffffffff", "new.solv"]),
    ],
)
def test_the_view_leaves_no_cache_of_an_entry_that_is_not_written(tmp_path, monkeypatch, written, expected):
    """The entry can have the ID of another one, whose cache stays."""
    at_exit = []
    monkeypatch.setattr(atexit, "register", lambda call, *arguments: at_exit.append((call, arguments)))
    write(tmp_path, "/var/cache/dnf/new-0123456789abcdef/x", "")
    files = [RepositoryFile("/etc/yum.repos.d/new.repo", ENTRY), RepositoryFile("/etc/pki/new.key", KEY)]
    Dnf(Host(), str(tmp_path)).view(str(tmp_path / "view"), files)
    for name in ("base.solv", "new-ffffffffffffffff/x", "new.solv"):
        write(tmp_path, f"/var/cache/dnf/{name}", "")
    if written:
        write(tmp_path, "/etc/yum.repos.d/new.repo", written)
    for call, arguments in at_exit:
        call(*arguments)
    assert sorted(path.name for path in (tmp_path / "var/cache/dnf").iterdir()) == expected


def test_unreachable_repository(tmp_path):
    """The error has the URL without the login."""
    host = Host(("makecache", output("unreachable", 1)))
    with pytest.raises(PackageManagerError) as error:
        Dnf(host, str(tmp_path)).view(str(tmp_path / "view"), [RepositoryFile("/etc/yum.repos.d/new.repo", ENTRY)])
    assert "http://...@127.0.0.1:9/x/repodata/repomd.xml" in str(error.value)
    assert "secret" not in str(error.value)


def test_apply():
    """Only a written entry has metadata to fetch. A removed file has no content."""
    host = Host()
    backend = Dnf(host)
    backend.apply(
        [
            RepositoryFile("/etc/yum.repos.d/old.repo", None),
            RepositoryFile("/etc/pki/old.key", None),
            RepositoryFile("/etc/pki/new.key", KEY),
        ]
    )
    assert host.commands == []
    backend.apply(
        [RepositoryFile("/etc/yum.repos.d/old.repo", None), RepositoryFile("/etc/yum.repos.d/new.repo", ENTRY)]
    )
    assert host.commands == ["dnf --assumeyes makecache"]


def test_a_replaced_key_clears_the_keys_that_the_cache_trusts(tmp_path):
    """A repository with signed metadata has its own list of keys. dnf imports the new key with the metadata."""
    key = RepositoryFile("/etc/pki/x.key", openpgp.armored(b"\x99\x00\x3d\x04" + b"k" * 60))
    entry = "[{0}]\nrepo_gpgcheck=1\ngpgkey=file:///etc/pki/{0}.key\n"
    for name in ("x", "y"):
        write(tmp_path, f"/etc/yum.repos.d/{name}.repo", entry.format(name))
        write(tmp_path, f"/var/cache/dnf/{name}-0123456789abcdef/pubring/pubring.kbx", "")
    host = Host()
    Dnf(host, str(tmp_path)).apply([key])
    assert [path.name for path in (tmp_path / "var/cache/dnf").iterdir()] == ["y-0123456789abcdef"]
    assert host.commands == ["dnf --assumeyes makecache"]
    # A new entry: the cache only trusts its new key.
    write(tmp_path, "/var/cache/dnf/x-0123456789abcdef/pubring/pubring.kbx", "")
    Dnf(Host(), str(tmp_path)).apply([key, RepositoryFile("/etc/yum.repos.d/x.repo", entry.format("x").encode())])
    assert (tmp_path / "var/cache/dnf/x-0123456789abcdef/pubring").exists()


def test_forget(tmp_path):
    """Only the given keys are erased. The caches of other repositories stay."""
    for name in (
        "new-0123456789abcdef/x",
        "new-er-0123456789abcdef/x",
        "new.solv",
        "new-filenames.solvx",
        "newer.solv",
    ):
        write(tmp_path, f"/var/cache/dnf/{name}", "")
    host = Host()
    files = [RepositoryFile("/etc/yum.repos.d/new.repo", ENTRY), RepositoryFile("/etc/pki/new.key", KEY)]
    Dnf(host, str(tmp_path)).forget(files, ["gpg-pubkey-4150cfbf"])
    assert host.commands == ["rpm --erase gpg-pubkey-4150cfbf"]
    left = sorted(path.name for path in (tmp_path / "var/cache/dnf").iterdir())
    assert left == ["new-er-0123456789abcdef", "newer.solv"]


def test_reset(tmp_path):
    """Only the file of a module without a state is removed."""
    unused = write(tmp_path, "/etc/dnf/modules.d/gpu.module", "[gpu]\nname=gpu\nstream=\nprofiles=\nstate=\n")
    used = write(tmp_path, "/etc/dnf/modules.d/perl.module", "[perl]\nname=perl\nstream=5\nprofiles=\nstate=enabled\n")
    Dnf(Host(), str(tmp_path)).reset(["gpu", "perl", "none"])
    assert (unused.exists(), used.exists()) == (False, True)


def test_offers():
    """Versions have an epoch as dnf prints it elsewhere: only if it is not 0. Packages may be named with a version."""
    host = Host(("repoquery", output("repoquery")))
    found = Dnf(host).offers(["ep", "plain", "zero.noarch", "ep-1.0-1.el9", "ep-3:1.0-1.el9.noarch", "none"], View())
    assert found == {
        "ep": ["3:2.0-1.el9", "3:1.0-1.el9"],
        "plain": ["1.0-1.el9"],
        "zero.noarch": ["1.0-1.el9"],
        "ep-1.0-1.el9": ["3:1.0-1.el9"],
        "ep-3:1.0-1.el9.noarch": ["3:1.0-1.el9"],
        "none": [],
    }


@pytest.mark.parametrize("text", ["ep=3:1.0-1.el9", "ep=1.0-1.el9", "ep=3:1.0", "ep=1.0", "ep>=3:1.0", "ep>=1.0"])
def test_chosen_version_has_the_epoch(text):
    """dnf gets name-epoch:version-release, whether the user wrote the epoch or not."""
    host = Host(("repoquery", output("repoquery")))
    transaction_versions.simulate([item(text)], Steps(), Dnf(host), View())
    version = "2.0" if ">=" in text else "1.0"
    assert host.commands[-1].endswith(f" install ep-3:{version}-1.el9")


# --- holds and dependencies -------------------------------------------------------------------------------------------


def test_hold():
    """Installed versions are locked offline. Another version is found in the repositories."""
    host = Host()
    Dnf(host).hold(["drv", "ep=1.0-1.el9"])
    Dnf(host).hold(["drv=2-1.el9"])
    assert [text for text in host.commands if "versionlock" in text] == [
        "dnf --quiet --disablerepo=* versionlock add drv-1-1.el9 ep-1.0-1.el9",
        "dnf --quiet --setopt=*.module_hotfixes=true versionlock add drv-2-1.el9",
    ]


@pytest.mark.parametrize(
    ("answer", "names", "message"),
    [
        ((0, "No package found for: drv-9\n", ""), ["drv=9"], "found no package for drv-9"),
        (
            (1, "", "No such command: versionlock. Please use /usr/bin/dnf --help\n"),
            ["drv"],
            "python3-dnf-plugin-versionlock",
        ),
        ((1, "", "Error: Locklist not set\n"), ["drv"], "Locklist not set"),
        ((0, "", ""), ["gone"], "not installed cannot be held: gone"),
    ],
)
def test_hold_that_fails(answer, names, message):
    """dnf exits with status 0 if it finds no package to lock."""
    with pytest.raises(PackageManagerError, match=message):
        Dnf(Host(("versionlock", answer))).hold(names)


NO_PLUGIN = (1, "", "No such command: versionlock. Please use /usr/bin/dnf --help\n")


@pytest.mark.parametrize(
    ("answer", "coming", "expected"),
    [
        ((0, "", ""), "drv", True),
        (NO_PLUGIN, "python3-dnf-plugin-versionlock", False),
        (NO_PLUGIN, "drv", "Install python3-dnf-plugin-versionlock, and enable it in"),
        # The plugin has no configuration, so the changes cannot make it work.
        ((1, "", "Error: Locklist not set\n"), "python3-dnf-plugin-versionlock", "Locklist not set"),
    ],
)
def test_the_plugin_that_locks_versions(answer, coming, expected):
    """Whether it works is known before the first change, and without a repository."""
    host = Host(("versionlock list", answer))
    changes = [SimulatedChange("drv", "upgrade", "1-1", "2-1"), SimulatedChange(coming, "install", None, "1-1")]
    if isinstance(expected, bool):
        assert Dnf(host).locks_versions(changes) is expected
    else:
        with pytest.raises(PackageManagerError, match=expected):
            Dnf(host).locks_versions(changes)
    assert host.commands == ["dnf --quiet --disablerepo=* versionlock list"]


def test_release(tmp_path):
    """Only the packages' own locks are deleted."""
    write(
        tmp_path,
        "/etc/dnf/plugins/versionlock.list",
        "# Added\ndrv-0:1-1.el9.*\ndrv*\nep-3:2.0-1.el9.*\n!drv-0:9-1.*\n",
    )
    host = Host()
    Dnf(host, str(tmp_path)).release(["drv", "other"])
    Dnf(host, str(tmp_path)).release(["other"])
    assert host.commands == ["dnf --quiet --disablerepo=* versionlock delete drv-0:1-1.el9.*"]


NEEDED = "error: Failed dependencies:\n\tdrvlib = 1 is needed by (installed) drv-1-1.el9.noarch\n"


def test_remove_test():
    """rpm names the dependents. Missing packages are not part of its command."""
    host = Host(("--test", (1, "", NEEDED)))
    assert Dnf(host).remove_test(["drvlib", "gone"]) == ["drv"]
    assert host.commands[-1] == "rpm --erase --test --allmatches drvlib"


@pytest.mark.parametrize(
    ("reasons", "without", "requested", "expected"),
    [
        # A transaction requested drv, so the user did not.
        ("drv user\ndrvlib dependency\n", [], ["drv"], ["drv", "drvlib"]),
        ("drv user\n\ndrvlib dependency\n", [], [], []),
        # dnf was killed.
        ("drv user\ndrvlib unknown\n", [], ["drv"], ["drv", "drvlib"]),
        ("", [], [], ["drv", "drvlib"]),
        ("drvlib user\n", ["drv"], [], ["drv"]),
    ],
)
def test_unneeded(reasons, without, requested, expected):
    """A dependency is needed as long as the package that needs it stays."""
    host = Host(
        ("--queryformat %{name} %{reason}", (0, reasons, "")),
        ("--test --allmatches drvlib", (1, "", NEEDED)),
    )
    assert Dnf(host).unneeded(["drv", "drvlib", "gone"], without, requested) == expected
    assert not [text for text in host.changes() if "--test" not in text and "repoquery" not in text]
