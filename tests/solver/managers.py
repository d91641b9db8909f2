# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's package managers, on hosts that are only a directory: a package database and repository indexes.

The programs are the real ones. They get options that make them use the directory in place of the system.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import repositories as observed
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    apt,
    apt_view,
    dnf,
    installed_packages,
    simulation,
    zypper,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import View
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.archives import Archive, Package
from ansible_collections.gpufleet.hosts.tests.solver import dnf_program
from ansible_collections.gpufleet.hosts.tests.solver.hosts import System
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared

# Commands whose output does not depend on the installed packages. No host has a history of dnf.
_QUERIES = (
    {"history"},
    {"madison"},
    {"module", "list"},
    {"pkgnames"},
    {"repoquery", "--available"},
    {"search"},
    {"--version"},
)
# Commands whose output depends only on the installed packages. No simulation changes those of a host.
_OF_INSTALLED = ({"apt-get", "check"}, {"rpm", "-qa"}, {"rpm", "--query"}, {"rpm", "-q"}, {"rpm", "--test"})
# Words that direct apt to a state other than the host's.
_OTHER_STATE = ("-c", "--option=Dir::State::status=")


class Answers:
    """Runs equal queries of equal repositories only once, and equal queries of one host."""

    def __init__(self) -> None:
        """Start without answers."""
        self._known: dict[tuple, tuple[int, str, str]] = {}

    def run(self, repositories: tuple, argv: list[str], full: list[str], **more: Any) -> tuple[int, str, str]:
        """Run a program with all its options, `full`, unless it is a query with a known answer."""
        is_other = any(word.startswith(_OTHER_STATE) for word in argv)
        if not is_other and any(words <= {*argv} for words in _OF_INSTALLED):
            # The options name the directory of the host.
            return self._answer(tuple(full), full, **more)
        if "--installed-only" in argv or not any(words <= {*argv} for words in _QUERIES):
            return execute(full, **more)
        # The configuration of a view has a new path each time. It does not change what the repositories have.
        words = [word for word in argv if not word.startswith(("-c", "/var/tmp/"))]
        return self._answer((repositories, *words), full, **more)

    def _answer(self, key: tuple, full: list[str], **more: Any) -> tuple[int, str, str]:
        if key not in self._known:
            self._known[key] = execute(full, **more)
        return self._known[key]


class SetupError(Exception):
    """A package manager cannot read what the test wrote."""


def execute(
    argv: list[str], environment: dict[str, str] | None = None, stdin: str | None = None
) -> tuple[int, str, str]:
    """Run a program in the locale C."""
    full = {**os.environ, "LC_ALL": "C", **(environment or {})}
    if argv[0] == "dnf":
        return dnf_program.run(argv, full, stdin or "")
    done = subprocess.run(argv, env=full, input=stdin or "", capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def checked(argv: list[str]) -> str:
    """Run a program that must succeed."""
    rc, out, err = execute(argv)
    if rc:
        raise SetupError(f"{' '.join(argv)} failed: {err or out}")
    return out


def write(root: Path, files: dict[str, Any]) -> None:
    """Write files by their path below a directory."""
    for path, content in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())


@dataclasses.dataclass
class Apt:
    """Hosts with apt, below `place`. `later` has the archives that have moved on, by name."""

    place: Path
    archives: dict[str, Archive]
    later: dict[str, Archive] = dataclasses.field(default_factory=dict)
    name = "apt"

    def __post_init__(self) -> None:
        """Write the repositories."""
        for name, archive in self.archives.items():
            write(self.place / "repositories" / name, archives.apt_tree(archive))
        self._answers = Answers()
        self._lists: dict[tuple[str, ...], Path] = {}
        self._roots: dict[tuple[str, tuple[str, ...]], Path] = {}
        self._future = Apt(self.place / "later", {**self.archives, **self.later}) if self.later else self

    def _sources(self, names: tuple[str, ...]) -> str:
        return "".join(
            archives.apt_sources(self.archives[name], f"file://{self.place}/repositories/{name}") for name in names
        )

    def _fetched(self, names: tuple[str, ...]) -> Path:
        """Return package lists of these repositories."""
        if names not in self._lists:
            root = self.place / "lists" / "+".join(names)
            self._lists[names] = root / "var/lib/apt/lists"
            self._prepare(root, names, "")
            checked(["apt-get", *options(root), "update"])
        return self._lists[names]

    def _prepare(self, root: Path, names: tuple[str, ...], status: str) -> None:
        for path in ("etc/apt/preferences.d", "etc/apt/apt.conf.d", "var/lib/apt/lists/partial", "var/cache/apt"):
            (root / path).mkdir(parents=True, exist_ok=True)
        write(root, {"etc/apt/sources.list": self._sources(names), "var/lib/dpkg/status": status})

    def root(self, host: System, repositories: tuple[str, ...]) -> Path:
        """Return the directory of a host with these repositories."""
        key = host.name, repositories
        if key not in self._roots:
            root = self.place / "hosts" / host.name.replace("/", "_") / "+".join(repositories)
            self._prepare(root, repositories, archives.dpkg_status(host.packages, host.held))
            shutil.copytree(self._fetched(repositories), root / "var/lib/apt/lists", dirs_exist_ok=True)
            rc, out, err = execute(["apt-get", *options(root), "check"])
            if rc:
                raise SetupError(f"{host.name} is not a consistent system: {out}{err}")
            self._roots[key] = root
        return self._roots[key]

    def backend(self, host: System, repositories: tuple[str, ...]) -> apt.Apt:
        """Return the package manager of a host with these repositories."""
        root = self.root(host, repositories)

        def run(argv: list[str], **more: Any) -> tuple[int, str, str]:
            full = [argv[0], *options(root), *argv[1:]] if argv[0].startswith("apt") else argv
            return self._answers.run(repositories, argv, full, **more)

        return IndexedApt(run, str(root))

    def state(self, host: System) -> dict[str, Any]:
        """Return the installed packages as the collection observes them."""
        return installed_packages.read(
            str(self.root(host, host.repositories)), "apt", execute, declared.PLACES["package_patterns"]
        )

    def upgraded(
        self, system: list[Package], held: set[str], files: tuple[RepositoryFile, ...], repositories: tuple[str, ...]
    ) -> dict[str, list[simulation.SimulatedChange]]:
        """Return by command what the administrator's upgrades change, after the archive has moved on."""
        lists, root = self._future._fetched(repositories), self.place / "upgraded"
        shutil.rmtree(root, ignore_errors=True)
        self._future._prepare(root, repositories, archives.dpkg_status(system, held))
        write(root, {file.path: file.content for file in files if file.content is not None})
        found = {}
        for command in ("upgrade --with-new-pkgs", "dist-upgrade"):
            words = [*options(root), f"--option=Dir::State::lists={lists}", "--simulate", *command.split()]
            rc, out, err = execute(["apt-get", *words])
            if rc:
                raise SetupError(f"apt-get {command} fails: {out}{err}")
            found[command] = simulation.apt(out)
        return found


def options(root: Path) -> list[str]:
    """Return the options that make apt use a directory as the system."""
    settings = {
        "Dir": root,
        "Dir::State": f"{root}/var/lib/apt",
        "Dir::State::status": f"{root}/var/lib/dpkg/status",
        "Dir::Bin::methods": "/usr/lib/apt/methods",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    return [f"--option={name}={value}" for name, value in settings.items()]


class IndexedApt(apt.Apt):
    """apt with package lists that are already fetched."""

    def view(self, directory: str, files: list[RepositoryFile]) -> View:
        """Create the view with the files of the transaction, for example pins."""
        return apt_view.create(self._root, directory, files)


@dataclasses.dataclass
class Rpm:
    """Hosts with dnf or zypper, below `place`."""

    place: Path
    archives: dict[str, Archive]
    name: str

    def __post_init__(self) -> None:
        """Write the repositories."""
        for name, archive in self.archives.items():
            # Several platforms can be in one run, so each has its own packages.
            write(self.place / "repositories" / name, archives.rpm_tree(archive))
        self._roots: dict[tuple[str, tuple[str, ...]], Path] = {}
        self._built: dict[tuple[str, str, str], Path] = {}
        self._caches: dict[tuple[str, ...], Path] = {}
        self._answers = Answers()

    def _packages(self, host: System) -> list[str]:
        """Build the packages that a host has installed, and return their files."""
        missing = [package for package in host.packages if package.key not in self._built]
        # One specification cannot contain two versions of a package.
        while missing:
            batch = list({package.name: package for package in missing}.values())
            missing = [package for package in missing if package not in batch]
            top = self.place / "rpmbuild" / str(len(self._built))
            write(top, {"stand-in.spec": archives.spec(batch)})
            checked(["rpmbuild", "--quiet", "--define", f"_topdir {top}", "-bb", str(top / "stand-in.spec")])
            files = {path.name: path for path in top.glob("RPMS/*/*.rpm")}
            for package in batch:
                _epoch, version, release = archives.evr(package.version)
                self._built[package.key] = files[f"{package.name}-{version}-{release}.{package.arch}.rpm"]
        return [str(self._built[package.key]) for package in host.packages]

    def root(self, host: System, repositories: tuple[str, ...]) -> Path:
        """Return the directory of a host with these repositories."""
        key = host.name, repositories
        if key not in self._roots:
            root = self.place / "hosts" / host.name.replace("/", "_") / "+".join(repositories)
            for path in ("var/lib/rpm", "var/log", "var/cache/dnf", "var/tmp"):
                (root / path).mkdir(parents=True, exist_ok=True)
            entries = "etc/zypp/repos.d" if self.name == "zypper" else "etc/yum.repos.d"
            for name in repositories:
                hotfixes = "module_hotfixes=1\n" if self.archives[name].values.get("module_hotfixes") else ""
                text = (
                    f"[{name}]\nname={name}\nbaseurl=file://{self.place}/repositories/{name}\nenabled=1\ngpgcheck=0\n"
                    f"autorefresh=0\n{hotfixes}"
                )
                write(root, {f"{entries}/{name}.repo": text})
            write(root, {f"etc/dnf/modules.d/{name}.module": _module(name, stream) for name, stream in host.streams})
            files = self._packages(host)
            rpm = ["rpm", "--root", str(root), "--dbpath", "/var/lib/rpm"]
            checked([*rpm, "--install", "--justdb", "--noscripts", "--nosignature", "--nodigest", *files])
            self._roots[key] = root
            self._refresh(host, repositories)
        return self._roots[key]

    def _refresh(self, host: System, repositories: tuple[str, ...]) -> None:
        """Let the package manager read each set of repositories once."""
        cache = self._roots[host.name, repositories] / "var/cache"
        if repositories in self._caches:
            # zypper also caches the installed packages, which differ.
            ignored = shutil.ignore_patterns("@System")
            shutil.copytree(self._caches[repositories], cache, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        else:
            command = ["makecache"] if self.name == "dnf" else ["--no-gpg-checks", "refresh"]
            rc, out, err = self.runner(host, repositories)([self.name, *command])
            if rc:
                raise SetupError(f"{self.name} cannot read the repositories of {host.name}: {out}{err}")
            self._caches[repositories] = cache
        # A package manager that reads another database would plan for an empty system.
        queries = {
            "dnf": ["dnf", "--quiet", "repoquery", "--installed", "--queryformat", "%{name}\n"],
            "zypper": ["zypper", "--quiet", "search", "--installed-only", "--details"],
        }
        seen = self.runner(host, repositories)(queries[self.name])[1]
        missing = [package.name for package in host.packages if not re.search(rf"\b{re.escape(package.name)}\b", seen)]
        if missing:
            raise SetupError(f"{self.name} does not see the installed packages {', '.join(missing)} of {host.name}")

    def runner(self, host: System, repositories: tuple[str, ...]) -> Any:
        """Return the function that runs programs on a host."""
        root = self._roots[host.name, repositories]
        platform = {"el": f"platform:el{host.platform.rpartition('-')[2]}", "amazon": "platform:al2023"}
        extra = {
            "rpm": ["--root", str(root), "--dbpath", "/var/lib/rpm"],
            "zypper": ["--root", str(root)],
            "dnf": [
                f"--installroot={root}",
                f"--releasever={host.platform.rpartition('-')[2]}",
                f"--setopt=reposdir={root}/etc/yum.repos.d",
                f"--setopt=cachedir={root}/var/cache/dnf",
                f"--setopt=logdir={root}/var/log",
                f"--setopt=module_platform_id={platform.get(host.platform.partition('-')[0], '')}",
                *(f"--disableplugin={name}" for name in dnf_program.DISABLED),
                "--cacheonly",
            ],
        }

        def run(argv: list[str], **more: Any) -> tuple[int, str, str]:
            words = [word for word in extra.get(argv[0], []) if word != "--cacheonly" or "makecache" not in argv]
            full = [argv[0], *words, *argv[1:]]
            return self._answers.run((repositories, host.streams), argv, full, **more)

        return run

    def backend(self, host: System, repositories: tuple[str, ...]) -> Any:
        """Return the package manager of a host with these repositories."""
        root = self.root(host, repositories)
        kind = IndexedDnf if self.name == "dnf" else IndexedZypper
        return kind(self.runner(host, repositories), str(root))

    def state(self, host: System) -> dict[str, Any]:
        """Return the installed packages as the collection observes them."""
        root = str(self.root(host, host.repositories))
        patterns = declared.PLACES["package_patterns"]
        state = installed_packages.read(root, self.name, self.runner(host, host.repositories), patterns)
        return {**state, "repositories": observed.rpm_repositories(root)}


def _module(name: str, stream: str) -> str:
    return f"[{name}]\nname={name}\nstream={stream}\nprofiles=\nstate=enabled\n"


class IndexedDnf(dnf.Dnf):
    """dnf with repositories that are already cached."""

    def view(self, directory: str, files: list[RepositoryFile]) -> View:
        """Return the host's own repositories."""
        return View()


class IndexedZypper(zypper.Zypper):
    """zypper with repositories that are already cached."""

    def view(self, directory: str, files: list[RepositoryFile]) -> View:
        """Return the host's own repositories."""
        return View(("--no-refresh",))
