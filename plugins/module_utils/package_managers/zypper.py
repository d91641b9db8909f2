# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drives zypper and rpm for a package transaction."""

from __future__ import annotations

import atexit
import contextlib
import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.temporary_directories import workspace
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    installed_packages,
    lock_holders,
    offers,
    rpm_removable,
    simulation,
    zypper_messages,
    zypper_repositories,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    BusyError,
    PackageManagerError,
    Steps,
    View,
    unsolved,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import (
    zypper_package_locks,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.lock_holders import (
    busy,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
    package_file,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.stalled_downloads import StalledError
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp, unreadable_repositories
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.unreadable_repositories import (
    FailedSource,
    SourceFailures,
)

# 102, 103: a reboot or a restart of zypper is required. 106: zypper skipped a repository that no package needed.
_SUCCESS = (0, 102, 103, 106)
_LOCKED = 7
_INSTALL = ("install", "--no-recommends", "--auto-agree-with-licenses")
_CACHED = ("--no-refresh",)
_MULTIVERSION = re.compile(r"^(?:multiversion\(|kernel-uname-r\b)", re.MULTILINE)
_LISTING = r"%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\t%{INSTALLTIME}\n"
_DATABASE = "rpm's database is damaged"


class Zypper:
    """zypper and rpm on a host."""

    name = "zypper"

    def __init__(self, run: Run, root: str = "/", lock_timeout: float = 60) -> None:
        """`run` runs a program. `root` is the root directory of the host."""
        self._run = run
        self.root = root
        self._repositories = zypper_repositories.Repositories(root)
        self._lock_timeout = lock_timeout
        self.failures = SourceFailures()
        self.hidden: dict[str, str] = {}
        # The option that hides the host's repositories that cannot be read.
        self._readable: tuple[str, ...] = ()
        self._exit = contextlib.ExitStack()

    # --- wait and repair ------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until no other program uses zypper's library or rpm. Raise BusyError after the lock timeout."""
        holder = lock_holders.wait(lambda: lock_holders.holder(self.root, self.name), self._lock_timeout)
        if holder:
            raise BusyError(busy(holder, self._lock_timeout))

    def broken(self) -> list[str]:
        """Describe what an interrupted run left: two versions of a package, or a damaged database."""
        problem, listing = self._listing()
        if problem:
            return [f"{_DATABASE}: {problem}"]
        return [
            f"{name} is installed in the versions {' and '.join(versions)}"
            for name, versions in self._doubles(listing).items()
        ]

    def _listing(self) -> tuple[str, str]:
        """Return the problem with rpm's database, and all packages."""
        rc, out, err = self._rpm(["-qa", "--qf", _LISTING])
        # rpm exits with status 0 although it could not read an index.
        errors = [line for line in err.splitlines() if line.startswith("error:")]
        return errors[0] if errors else f"rpm -qa failed with exit status {rc}" if rc else "", out

    def _doubles(self, listing: str) -> dict[str, list[str]]:
        """Return the versions of each package that must not be installed twice but is, the latest one last."""
        copies = zypper_messages.doubles(listing)
        for name in list(copies):
            _rc, provided, _err = self._rpm(["-q", "--provides", name])
            if _MULTIVERSION.search(provided):
                del copies[name]
        return copies

    def as_repaired(self) -> contextlib.AbstractContextManager[Zypper]:
        """Return this object: zypper can simulate before the repair."""
        return contextlib.nullcontext(self)

    def repair(self, planned: list[SimulatedChange]) -> None:
        """Complete an interrupted run.

        rpm registers a package before its scripts run and before it erases the former version. So this method
        reinstalls the packages that were `planned` and are registered, and the later one of two versions.
        """
        if self._listing()[0]:
            self._checked_rpm(["--rebuilddb"])
            problem = self._listing()[0]
            if problem:
                raise PackageManagerError(
                    f"{_DATABASE}, even after rpm --rebuilddb: {problem}. Restore it from a backup."
                )
        doubles = self._doubles(self._listing()[1])
        incomplete = self._incomplete(planned, doubles)
        offered = self.offers(list(incomplete), View(_CACHED)) if incomplete else {}
        again = {name: version for name, version in incomplete.items() if version in offered[name]}
        former = {name: versions[0] for name, versions in doubles.items() if versions[0] in offered[name]}
        try:
            try:
                self._reinstall(again)
            except zypper_messages.SolverError:
                # Another package still needs the former version.
                self._reinstall({**again, **former})
        except zypper_messages.SolverError:
            self._erase_former()
            self._reinstall(again)
        self._erase_former()
        # No repository offers a package file of the user.
        lost = [
            f"{name}-{version}"
            for name, version in sorted(incomplete.items())
            if name not in again and installed_packages.lacks_files(name, self._run)
        ]
        if lost:
            raise PackageManagerError(
                f"An interrupted transaction may have left {', '.join(lost)} incomplete, and no repository offers "
                "these versions now. Enable their repository, remove the packages, or install another version."
            )

    def _reinstall(self, versions: dict[str, str]) -> None:
        if versions:
            items = [f"{name}={version}" for name, version in sorted(versions.items())]
            # The locks of the transaction may already exist.
            with zypper_package_locks.ignored(self.root) as environment:
                self._zypper([*_INSTALL, "--force", "--oldpackage", *items], _CACHED, environment)

    def _erase_former(self) -> None:
        doubles = self._doubles(self._listing()[1])
        former = [(name, version) for name, versions in doubles.items() for version in versions[:-1]]
        if former:
            # rpm accepts an epoch only in some of its versions.
            self._checked_rpm(
                ["--erase", "--nodeps", *(f"{name}-{version.split(':')[-1]}" for name, version in former)]
            )

    def _incomplete(self, planned: list[SimulatedChange], doubles: dict[str, list[str]]) -> dict[str, str]:
        """Return the versions to reinstall by package."""
        state = self.installed()["all"]
        found = {name: versions[-1] for name, versions in doubles.items()}
        for change in planned:
            # zypper prints no epoch that is 0.
            copies = [copy.split(" ")[0].removeprefix("0:") for copy in state.get(change.name, "").split(", ")]
            if change.after in copies:
                found.setdefault(change.name, str(change.after))
            elif change.before in copies and installed_packages.lacks_files(change.name, self._run):
                # rpm removes the files of a package before it removes the package from its database.
                found.setdefault(change.name, str(change.before))
        return found

    # --- queries --------------------------------------------------------------------------------------------------

    def installed(self) -> dict[str, Any]:
        """Return the installed packages and locks, as `installed.read` does."""
        return installed_packages.read(self.root, self.name, self._run)

    def package_file(self, path: str) -> Item:
        """Read the name and the version of a package file."""
        return package_file(path, installed_packages.RPM_FILE, self._run)

    def installed_providers(self, names: list[str]) -> dict[str, list[str]]:
        """Return the installed packages that provide virtual names."""
        return installed_packages.providers(self.root, "zypper", names, self._run)

    def providers(self, names: list[str], view: View) -> dict[str, list[str]]:
        """Return the available packages that provide each virtual name."""

        def run(argv: list[str]) -> tuple[int, str, str]:
            result = self._run(argv, environment=self._environment())
            self._check_lock(*result)
            return result

        return offers.providers(self.name, names, run, view.options)

    def component_files(self, components: list[str]) -> list[RepositoryFile]:
        """Return no files: components belong to apt."""
        return []

    def enabled_streams(self) -> dict[str, str]:
        """Return no streams: they belong to dnf."""
        return {}

    def view(self, directory: str, files: list[RepositoryFile]) -> View:
        """Create a private view in the empty `directory`. Refresh the host's metadata."""
        try:
            return self._repositories.view(directory, files, self._zypper, self._checked_rpm, self._refresh)
        except BusyError:
            raise
        except PackageManagerError as error:
            raise PackageManagerError(f"{error} Nothing was changed.") from error

    def _refresh(self, aliases: list[str], files: dict[str, bytes]) -> set[str]:
        """Refresh repositories, and return those that failed. Fail if the transaction needs one, or if all failed."""
        gone: set[str] = set()
        while True:
            rest = [alias for alias in aliases if alias not in gone]
            argv = ["zypper", "--xmlout", "--non-interactive", "refresh", *rest]
            try:
                rc, out, err = self._run(argv, environment=self._environment())
            except StalledError as error:
                current = zypper_repositories.aliases_of(zypper_messages.current(error.output), files)
                urls = {name: url for name, url in zypper_repositories.urls(files).items() if name in rest}
                stalled = [urls[name] for name in current if name in urls]
                failed = unreadable_repositories.stalled(stalled or error.urls, urls, error.reason)
                self._tolerate(failed, len(rest), files, error)
                gone |= {one.name for one in failed}
                continue
            self._check_lock(rc, out, err)
            failed = zypper_repositories.failed(zypper_messages.skipped(out, err), files)
            if failed or rc not in _SUCCESS:
                self._tolerate(failed, len(rest), files, zypper_messages.failure("zypper refresh", rc, out, err))
            return gone | {one.name for one in failed}

    def _tolerate(
        self, failed: list[FailedSource], number: int, files: dict[str, bytes], cause: PackageManagerError
    ) -> None:
        """Remember the repositories that could not be read. Fail if the transaction needs one, or if all failed."""
        needed = {
            one.alias
            for path in self.failures.needed & {*files}
            for one in zypper_repositories.all_entries({path: files[path]})
        }
        error = unreadable_repositories.judge(failed, needed, {}).error
        if error:
            raise PackageManagerError(f"zypper refresh failed. {error} {unreadable_repositories.ADVICE}")
        if not failed or len(failed) == number:
            raise cause
        self.failures.add(failed)

    def keep(self, view: View) -> None:
        """Copy the metadata of new repositories to zypper's cache. That of the others is in it."""
        self._repositories.keep(view)

    def sources(self, names: list[str], view: View) -> dict[str, set[str]]:
        """Return the repositories that offer packages by zypper's cache, even those that do not answer now."""
        files = self._repositories.files()
        found: dict[str, set[str]] = {}
        for options in dict.fromkeys((_CACHED, view.options)):
            argv = ["zypper", *options, "--non-interactive", "--quiet", "search", "--details", "--match-exact", *names]
            _rc, out, _err = self._run(argv, environment=self._environment())
            for name, label in offers.zypper_sources(out):
                found.setdefault(name, set()).update(zypper_repositories.aliases_of(label, files) or {label})
        return found

    def offers(self, names: list[str], view: View) -> dict[str, list[str]]:
        """Return the available versions by package, newest first. Wildcards select all packages that they match."""

        def run(argv: list[str]) -> tuple[int, str, str]:
            result = self._run(argv, environment=self._environment())
            self._check_lock(*result)
            return result

        return offers.read(self.name, names, run, view.options)

    def dependencies(self, names: list[str], view: View) -> dict[str, dict[str, str]]:
        """Return nothing: only apt is asked."""
        return {}

    def streams(self, modules: list[str], view: View) -> dict[str, list[str]]:
        """Return no streams: they belong to dnf."""
        return {}

    def simulate(self, steps: Steps, view: View, with_holds: bool = False) -> list[SimulatedChange]:
        """Return what zypper's solver would do."""
        command = self._command(steps)
        if not command:
            return []
        try:
            with contextlib.nullcontext({}) if with_holds else zypper_package_locks.ignored(self.root) as environment:
                out = self._zypper([command[0], "--dry-run", *command[1:]], view.options, environment)
            changes = simulation.zypper(out)
        except zypper_messages.SolverError as error:
            raise PackageManagerError(f"{error}\n{unsolved(steps)}") from error
        except simulation.SimulationError as error:
            raise PackageManagerError(str(error)) from error
        self._check_versions(steps, changes)
        return changes

    def _check_versions(self, steps: Steps, changes: list[SimulatedChange]) -> None:
        """zypper exits with status 0 although it does not install a version that is older than the installed one."""
        state = self.installed()["all"]
        for item in steps.install:
            after = {change.after for change in changes if change.name == item.name}
            copies = {copy.split(" ")[0] for copy in state.get(item.name, "").split(", ")}
            if item.version and not item.file and item.version not in after | copies:
                raise PackageManagerError(
                    f"zypper would not install {item}, but exits with status 0. Installed version: "
                    f"{', '.join(sorted(copies - {''})) or 'none'}. Check zypper's configuration, or request another "
                    "version."
                )

    def unneeded(self, names: list[str], without: list[str], requested: list[str]) -> list[str]:
        """Select the names that no installed package needs any more without the packages `without`.

        zypper considers each package needed that was installed by name. rpm knows the dependencies.
        """
        return rpm_removable.unneeded(self._present(names), self._present(without), self._run)

    def remove_test(self, names: list[str]) -> list[str]:
        """Return the packages that depend on these packages."""
        return rpm_removable.dependents(self._present(names), self._run)

    # --- changes --------------------------------------------------------------------------------------------------

    def apply(self, files: list[RepositoryFile]) -> None:
        """Import the keys that were just written, and fetch the metadata of the new repositories."""
        for file in files:
            if openpgp.has_keys(file.content):
                self._checked_rpm(["--import", self._repositories.path(file.path)])
        new = zypper_repositories.changed(self._repositories.files(), files)
        aliases = [entry.alias for entry in zypper_repositories.all_entries(new) if entry.enabled]
        if aliases:
            self._zypper(["refresh", *aliases])
        if self.failures.found:
            # zypper would try to refresh them again with each command.
            directory = self._exit.enter_context(workspace(self.root))
            atexit.register(self._exit.close)
            failed = {one.name for one in self.failures.found}
            zypper_repositories.write(directory, zypper_repositories.without(self._repositories.files(), failed))
            self._readable = (f"--reposd-dir={directory}",)

    def forget(self, files: list[RepositoryFile], keys: list[str]) -> None:
        """Remove the keys, and the cached metadata of removed entries. The files have their former content."""
        entries = {
            file.path: file.content for file in files if file.content and zypper_repositories.is_entry(file.path)
        }
        for entry in zypper_repositories.all_entries(entries):
            self._repositories.remove_metadata(entry.alias)
        if keys:
            self._checked_rpm(["--erase", *keys])

    def enable(self, streams: list[str]) -> None:
        """Do nothing: streams belong to dnf."""

    def reset(self, modules: list[str]) -> None:
        """Do nothing: streams belong to dnf."""

    def act(self, steps: Steps) -> None:
        """Carry out the transaction with one command.

        zypper removes packages before it installs others, and its check for file conflicts ignores packages that it
        removes. So no removal must precede the installation.
        """
        command = self._command(steps)
        if command:
            if command[0] == "install":
                # It can be ended if it stalls, and the installation cannot.
                self._zypper([command[0], "--download-only", *command[1:]])
            # By default, zypper may install some packages before it downloads the others.
            self._zypper([command[0], *(["--download", "in-advance"] if command[0] == "install" else []), *command[1:]])

    def hold(self, names: list[str]) -> None:
        """Lock packages by name: a lock of zypper has no version."""
        missing = [name for name in _names(names) if name not in zypper_package_locks.names(self.root)]
        if missing:
            self._zypper(["addlock", *missing])

    def locks_versions(self, changes: list[SimulatedChange]) -> bool:
        """Return False: zypper locks names."""
        return False

    def release(self, names: list[str]) -> None:
        """Remove the locks of these packages. Locks with wildcards stay."""
        own = [name for name in _names(names) if name in zypper_package_locks.names(self.root)]
        if own:
            self._zypper(["removelock", *own])
        zypper_package_locks.remove_empty(self.root)

    # --- programs -------------------------------------------------------------------------------------------------

    def _command(self, steps: Steps) -> list[str]:
        """Return zypper's command and its arguments, or an empty list if there is nothing to do."""
        removed = self._present([*steps.remove, *steps.purge])
        items = [item.file or item.name + (f"={item.version}" if item.version else "") for item in steps.install]
        if not items and (steps.may_erase or not removed):
            # `install --force-resolution` could install a replacement of what it removes.
            return ["remove", *removed] if removed else []
        return [
            *_INSTALL,
            "--oldpackage",
            "--allow-downgrade",
            # Without this option, zypper removes only packages that are marked with "!" or obsoleted.
            *(["--force-resolution"] if steps.may_erase else []),
            # The user provides a file, and vouches for it.
            *(["--allow-unsigned-rpm"] if any(item.file for item in steps.install) else []),
            *items,
            *(f"!{name}" for name in removed),
        ]

    def _present(self, names: Iterable[str]) -> list[str]:
        """Return the names that are installed. zypper and rpm fail with other names."""
        names = list(dict.fromkeys(names))
        state = self.installed()["all"] if names else {}
        return [name for name in names if name in state]

    def _environment(self) -> dict[str, str]:
        return {"ZYPP_LOCK_TIMEOUT": str(int(self._lock_timeout))}

    def _zypper(
        self,
        arguments: list[str],
        options: Iterable[str] = (),
        environment: dict[str, str] | None = None,
    ) -> str:
        argv = ["zypper", *(options or self._readable), "--xmlout", "--non-interactive", *arguments]
        rc, out, err = self._run(argv, environment={**self._environment(), **(environment or {})})
        self._check_lock(rc, out, err)
        if rc not in _SUCCESS:
            raise zypper_messages.failure(f"zypper {arguments[0]}", rc, out, err)
        return out

    def _check_lock(self, rc: int, out: str, err: str) -> None:
        if rc == _LOCKED:
            raise BusyError(busy(zypper_messages.problems(out, err).rstrip("."), self._lock_timeout))

    def _rpm(self, arguments: list[str]) -> tuple[int, str, str]:
        return self._run(["rpm", *arguments])

    def _checked_rpm(self, arguments: list[str]) -> str:
        rc, out, err = self._rpm(arguments)
        if rc:
            raise zypper_messages.failure(f"rpm {' '.join(arguments)}", rc, out, err)
        return out


def _names(names: list[str]) -> list[str]:
    return sorted({name.partition("=")[0] for name in names})
