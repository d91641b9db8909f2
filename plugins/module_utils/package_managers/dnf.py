# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package transactions with the command of dnf 4."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import glob
import os
import re
import time
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    dnf_command,
    dnf_interrupted,
    dnf_view,
    installed_packages,
    lock_holders,
    offers,
    rpm_removable,
    simulation,
    stalled_download_urls,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    BusyError,
    PackageManagerError,
    Steps,
    View,
    unsolved,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import (
    dnf_version_locks,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.lock_holders import (
    busy,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
    package_file,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.stalled_downloads import StalledError
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    dnf_excludes,
    file_writing,
    openpgp,
    unreadable_repositories,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.unreadable_repositories import (
    FailedSource,
    SourceFailures,
)

_LOCKED = 200
_RETRY_INTERVAL = 2
_CACHE = "/var/cache/dnf"
_MODULES = "/etc/dnf/modules.d"
_LOCKS = "/etc/dnf/plugins/versionlock.list"
_OFFLINE = "--disablerepo=*"
_CONFLICT = re.compile(
    r"from install of (?P<new>\S+) conflicts with file from package (?P<package>\S+)-[^-\s]+-[^-\s]+$", re.MULTILINE
)


class _ConflictError(PackageManagerError):
    """New packages have files of installed packages."""

    def __init__(self, message: str, packages: set[str]) -> None:
        super().__init__(message)
        self.packages = packages


class Dnf:
    """Implement `Backend` with dnf 4. `root` is the directory in which files are read, for tests."""

    name = "dnf"

    def __init__(self, run: Run, root: str = "/", lock_timeout: float = 60) -> None:
        """Store how programs run on the host."""
        self._host_run = run
        self._root = root
        self._timeout = lock_timeout
        self._is_checked = False
        self.failures = SourceFailures()
        self.hidden: dict[str, str] = {}

    # --- locks and interrupted runs -------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until no other program uses dnf or rpm."""
        holder = lock_holders.wait(lambda: lock_holders.holder(self._root, self.name), self._timeout)
        if holder:
            raise BusyError(busy(holder, self._timeout))

    def _check_version(self) -> None:
        rc, out, err = self._host_run(["dnf", "--version"])
        if rc == 127:
            rc, out, err = self._host_run(["dnf5", "--version"])
        if rc == 127:
            raise PackageManagerError("The command dnf is not installed. Install dnf 4.")
        found = re.search(r"\d+(?:\.\d+)+", out)
        if rc != 0 or not found:
            raise dnf_command.error("dnf --version", rc, out, err)
        if not found.group().startswith("4."):
            raise PackageManagerError(f"The package manager is dnf {found.group()}, but only dnf 4 is supported.")

    def broken(self) -> list[str]:
        """Describe what an interrupted transaction of rpm left to repair."""
        packages = dnf_interrupted.installed(self._run)
        if packages is None:
            return ["rpm cannot read its database"]
        return dnf_interrupted.damage(self._run, packages).describe()

    def as_repaired(self) -> contextlib.AbstractContextManager[Dnf]:
        """Return this object: dnf can simulate before the repair."""
        return contextlib.nullcontext(self)

    def repair(self, planned: list[simulation.SimulatedChange]) -> None:
        """Complete the interrupted transaction. Only the reinstallation needs a repository or dnf's cache."""
        packages = dnf_interrupted.installed(self._run)
        if packages is None:
            # Berkeley DB's shared memory of a killed process prevents the repair. Nobody uses the database now.
            for path in glob.glob(self._path("/var/lib/rpm/__db.*")):
                os.unlink(path)
            self._checked(["rpm", "--rebuilddb"])
            packages = dnf_interrupted.installed(self._run)
        if packages is None:
            raise PackageManagerError(
                "rpm cannot read its database, even after `rpm --rebuilddb`. Restore /var/lib/rpm from a backup."
            )
        damage = dnf_interrupted.damage(self._run, packages, planned)
        ended = [*damage.old, *damage.gone]
        if ended:
            # The same scriptlets run as at the end of an upgrade. rpm keeps files that another package has.
            self._checked(["rpm", "--erase", "--nodeps", *(one.label for one in ended)])
        if damage.came:
            self._reinstall({one.nevra: one for one in damage.came})

    def _reinstall(self, packages: dict[str, dnf_interrupted.DnfPackage]) -> None:
        rc, out, err = self._run(["dnf", "--assumeyes", *dnf_command.POLICY, "reinstall", *packages])
        # Only some versions of rpm print the epoch.
        labels = {re.sub(r"-\d+:", "-", match["new"]) for match in _CONFLICT.finditer(out + "\n" + err)}
        conflicts = [one for one in packages.values() if one.label in labels]
        if conflicts:
            # The transaction was to remove the other package last. The next transaction does both again.
            self._checked(["rpm", "--erase", "--nodeps", *(one.label for one in conflicts)])
            rest = {nevra: one for nevra, one in packages.items() if one not in conflicts}
            if rest:
                self._reinstall(rest)
            return
        found = re.findall(r"^Installed package (\S+) (.*)not available", out + "\n" + err, re.MULTILINE)
        # No repository offers a package file of the user.
        files = [
            name
            for name, origin in found
            if name in packages
            and "@commandline" in origin
            and not installed_packages.lacks_files(packages[name].label, self._run)
        ]
        lost = [name for name, _origin in found if name not in files]
        if lost:
            raise PackageManagerError(
                f"The installation of {', '.join(lost)} was interrupted, and no repository offers these versions now. "
                "Enable their repository, remove the packages, or install another version."
            )
        if rc != 0 and len(files) < len(packages):
            raise dnf_command.error(f"dnf could not reinstall {' '.join(packages)}", rc, out, err)
        if files:
            # dnf's history then no longer ends with the interrupted transaction.
            self._checked(["dnf", "--assumeyes", "--quiet", _OFFLINE, "mark", "install", *files])

    # --- reading --------------------------------------------------------------------------------------------------

    def installed(self) -> dict[str, Any]:
        """Return the installed packages and version locks."""
        return installed_packages.read(self._root, "dnf", self._run)

    def package_file(self, path: str) -> Item:
        """Read the name and the version of a package file."""
        return package_file(path, installed_packages.RPM_FILE, self._run)

    def installed_providers(self, names: list[str]) -> dict[str, list[str]]:
        """Return the installed packages that provide virtual names."""
        return installed_packages.providers(self._root, "dnf", names, self._run)

    def providers(self, names: list[str], view: View) -> dict[str, list[str]]:
        """Return the available packages that provide each virtual name."""
        return offers.providers("dnf", names, self._run, view.options)

    def component_files(self, components: list[str]) -> list[RepositoryFile]:
        """Return no files: components belong to apt."""
        return []

    def enabled_streams(self) -> dict[str, str]:
        """Return the enabled stream of each module."""
        return installed_packages.streams(self._root)

    def view(self, directory: str, files: list[RepositoryFile]) -> View:
        """Copy the host's repository files, write those that change, and refresh dnf's cache.

        The cache is the host's own, because its lock also keeps other programs from changing it. It has a directory
        for each URL, so the installation downloads no metadata again.
        """
        options: tuple[str, ...] = ()
        if files:
            dnf_view.write(dnf_view.contents(directory, self._repository_files(), files))
            options = (f"--setopt=reposdir={directory}/repositories",)
            # In check mode or after a refusal, the files are never written.
            atexit.register(self._clear_unwritten, files, frozenset(listing(self._root, _CACHE)))
        # --assumeyes: the cache of a repository with signed metadata has its own list of keys.
        argv = ["dnf", *options, "--assumeyes", "makecache", "--refresh"]
        enabled = stalled_download_urls.entries(argv, self._root)
        rc, out, err = self._makecache(argv, enabled, files)
        if self._remember(dnf_view.failed(out, err, enabled), files) and rc:
            # dnf stopped at the first repository that it could not read.
            argv.insert(1, "--setopt=*.skip_if_unavailable=1")
            rc, out, err = self._makecache(argv, enabled, files)
            self._remember(dnf_view.failed(out, err, enabled), files)
        if rc == 0 and self.failures.found and {*enabled} == {one.name for one in self.failures.found}:
            rc = 1
        if rc != 0 and "There are no enabled repositories" not in out + err:
            raise PackageManagerError(
                f"The package repositories could not be read: {dnf_command.reason(out, err)}. Nothing was changed. "
                f"{unreadable_repositories.ADVICE}"
            )
        return View(options)

    def _makecache(self, argv: list[str], enabled: dict[str, str], files: list[RepositoryFile]) -> tuple[int, str, str]:
        """Refresh dnf's cache. Do without a repository from which no data arrives."""
        try:
            return self._run(argv)
        except StalledError as error:
            known = {one.name for one in self.failures.found}
            rest = {name: url for name, url in enabled.items() if name not in known}
            failed = unreadable_repositories.stalled(error.urls, rest, error.reason)
            if len(failed) == len(rest) or not self._remember(failed, files):
                raise
        return self._makecache(argv, enabled, files)

    def _remember(self, failed: list[FailedSource], files: list[RepositoryFile]) -> bool:
        """Remember the repositories that could not be read. Fail if the transaction needs one of them."""
        texts = {path: text.encode("utf-8", "surrogateescape") for path, text in self._repository_files().items()}
        texts |= {file.path: file.content for file in files if file.content is not None}
        needed = {name for path in self.failures.needed & {*texts} for name in dnf_view.identifiers(texts[path])}
        error = unreadable_repositories.judge(failed, needed, {}).error
        if error:
            raise PackageManagerError(
                f"The package repositories could not be read. {error} Nothing was changed. "
                f"{unreadable_repositories.ADVICE}"
            )
        self.failures.add(failed)
        return bool(failed)

    def keep(self, view: View) -> None:
        """Do nothing: a view uses the cache of dnf."""

    def sources(self, names: list[str], view: View) -> dict[str, set[str]]:
        """Return the repositories that offer packages by dnf's cache, even those that do not answer now."""
        query = ["--quiet", *view.options, "--cacheonly", "--setopt=*.skip_if_unavailable=1", "repoquery"]
        _rc, out, _err = self._host_run(["dnf", *query, "--available", "--queryformat", "%{name}\t%{repoid}\n", *names])
        found: dict[str, set[str]] = {}
        for name, tab, identifier in (line.partition("\t") for line in out.splitlines()):
            if tab:
                found.setdefault(name, set()).add(identifier)
        return found

    def _clear_unwritten(self, files: list[RepositoryFile], kept: frozenset[str]) -> None:
        """Remove what the view cached of entries that the host does not have."""
        for file in files:
            if file.content is not None and file_writing.current(file.path, self._root).content != file.content:
                self._clear_cache(file, kept)

    def _clear_cache(self, file: RepositoryFile, kept: frozenset[str] = frozenset()) -> None:
        if file.content is not None and dnf_view.is_entry(file.path):
            for identifier in dnf_view.identifiers(file.content):
                dnf_view.clear_cache(self._path(_CACHE), identifier, kept)

    def _repository_files(self) -> dict[str, str]:
        paths = [path for place in dnf_view.DIRECTORIES for path in sorted(glob.glob(f"{self._path(place)}/*.repo"))]
        return {f"/{os.path.relpath(path, self._root)}": read_text("/", path) or "" for path in paths}

    def offers(self, names: list[str], view: View) -> dict[str, list[str]]:
        """Return the available versions by package, newest first, including those of packages that modules hide."""
        found = offers.read("dnf", names, self._run, view.options)
        lost = [name for name in names if not found.get(name)]
        hiding = self._exclude_lines() if lost else []
        if hiding:
            every = offers.read("dnf", lost, self._run, [*view.options, "--disableexcludes=all"])
            known = {name for name, versions in every.items() if versions and not found.get(name)}
            self.hidden.update({name: dnf_excludes.cause(name, hiding) for name in sorted(known)})
        return found

    def _exclude_lines(self) -> list[dnf_excludes.ExcludeLine]:
        files = {dnf_excludes.CONFIGURATION: read_text(self._root, dnf_excludes.CONFIGURATION) or ""}
        return dnf_excludes.lines({**files, **self._repository_files()})

    def dependencies(self, names: list[str], view: View) -> dict[str, dict[str, str]]:
        """Return nothing: only apt is asked."""
        return {}

    def streams(self, modules: list[str], view: View) -> dict[str, list[str]]:
        """Return the available streams of each module."""
        return offers.streams(modules, self._run, view.options)

    def remove_test(self, names: list[str]) -> list[str]:
        """Return the packages that depend on these packages."""
        known = {one.name for one in self._packages()}
        return rpm_removable.dependents(sorted({*names} & known), self._run)

    def unneeded(self, names: list[str], without: list[str], requested: list[str]) -> list[str]:
        """Select the names that neither a package nor the user needs without the packages `without`."""
        # The dependencies of a killed transaction have the reason `unknown`, which --userinstalled also lists.
        query = [_OFFLINE, "repoquery", "--installed", "--queryformat", "%{name} %{reason}\n"]
        _rc, out, _err = self._checked(["dnf", "--quiet", *query])
        known = {one.name for one in self._packages()}
        rows = [line.split() for line in out.splitlines()]
        others = {row[0] for row in rows if row[1:] == ["user"]} - {*requested}
        return rpm_removable.unneeded(
            [name for name in names if name in known - others], [name for name in without if name in known], self._run
        )

    def _packages(self) -> list[dnf_interrupted.DnfPackage]:
        packages = dnf_interrupted.installed(self._run)
        if packages is None:
            raise PackageManagerError("rpm cannot read its database. Run `rpm --rebuilddb`.")
        return packages

    # --- transactions ---------------------------------------------------------------------------------------------

    def simulate(self, steps: Steps, view: View, with_holds: bool = False) -> list[simulation.SimulatedChange]:
        """Return what dnf would do. Nothing is downloaded, and no stream is enabled. The caller judges the result."""
        options = (*view.options, *(() if with_holds else ("--disableplugin=versionlock",)))
        packages = self._packages()
        command = dnf_command.transaction(steps, {one.name for one in packages}, "--assumeno", options)
        if not command:
            return []
        rc, out, err = self._run(command[0], stdin=command[1])
        if dnf_command.failed(rc, out, err, simulated=True):
            error = dnf_command.error(dnf_command.title(steps), rc, out, err)
            hiding = self._exclude_lines()
            hidden = [dnf_excludes.cause(name, hiding) for name in dnf_excludes.filtered(f"{out}\n{err}") if hiding]
            raise PackageManagerError(" ".join([*hidden, str(error), unsolved(steps)]))
        if dnf_command.ABORTED not in out + err:
            return []
        versions = {(one.name, one.arch): one.version for one in packages}
        try:
            return simulation.dnf(out, lambda name, arch: versions.get((name, arch)))
        except simulation.SimulationError as error:
            raise PackageManagerError(url_logins.masked(str(error))) from error

    def act(self, steps: Steps) -> None:
        """Carry out the transaction as one.

        Where rpm finds that a new package has a file of a package to remove, remove that package first.
        """
        try:
            self._act(steps)
        except _ConflictError as error:
            if not error.packages <= {*steps.remove, *steps.purge}:
                raise
            self._act_separately(steps, error)

    def _act_separately(self, steps: Steps, error: _ConflictError) -> None:
        """Remove first, and then install. Fail if this would remove more packages than one transaction."""
        # rpm checks the files after the download, so the packages are in the cache.
        cached = View(("--cacheonly",))
        planned = simulation.removed(self.simulate(steps, cached, with_holds=True))
        for part in (
            dataclasses.replace(steps, install=[], streams=[]),
            dataclasses.replace(steps, remove=[], purge=[]),
        ):
            others = simulation.removed(self.simulate(part, cached, with_holds=True)) - planned
            if others:
                raise PackageManagerError(
                    f"{error} dnf could remove the other package first, but would then also remove "
                    f"{', '.join(sorted(others))}. Remove these packages, then run the task again."
                )
            self._act(part, *cached.options)

    def _act(self, steps: Steps, *options: str) -> None:
        names = {one.name for one in self._packages()}
        command = dnf_command.transaction(steps, names, "--assumeyes", options)
        if not command:
            return
        download = dnf_command.download(steps, options)
        if download:
            # It can be ended if it stalls, and the transaction cannot. The transaction reports other errors.
            self._run(download)
        rc, out, err = self._run(command[0], stdin=command[1])
        if dnf_command.failed(rc, out, err):
            message = str(dnf_command.error(dnf_command.title(steps), rc, out, err))
            conflicts = {found["package"] for found in _CONFLICT.finditer(out + "\n" + err)}
            raise _ConflictError(message, conflicts) if conflicts else PackageManagerError(message)

    # --- repositories and keys ------------------------------------------------------------------------------------

    def apply(self, files: list[RepositoryFile]) -> None:
        """Fetch the metadata of changed repositories. dnf imports their keys when it installs the first package."""
        written = {file.path: file.content for file in files if file.content is not None}
        others = {path: text for path, text in self._repository_files().items() if path not in written}
        # The cache of a repository with signed metadata has its own list of keys, which would keep a replaced key.
        replaced = dnf_view.users(others, [path for path, content in written.items() if openpgp.has_keys(content)])
        for identifier in replaced:
            dnf_view.clear_cache(self._path(_CACHE), identifier)
        if replaced or any(map(dnf_view.is_entry, written)):
            self._checked(["dnf", "--assumeyes", "makecache"])

    def forget(self, files: list[RepositoryFile], keys: list[str]) -> None:
        """Remove the keys, and the cached metadata of removed entries. The files have their former content."""
        for file in files:
            self._clear_cache(file)
        if keys:
            self._checked(["rpm", "--erase", *keys])

    def enable(self, streams: list[str]) -> None:
        """Enable module streams. dnf resets another stream of the module in the same transaction."""
        if streams:
            self._checked(["dnf", "--assumeyes", "--quiet", dnf_command.SWITCH_STREAMS, "module", "enable", *streams])

    def reset(self, modules: list[str]) -> None:
        """Reset modules. dnf keeps a file without a stream for each, which has no effect."""
        if modules:
            self._checked(["dnf", "--assumeyes", "--quiet", "module", "reset", *modules])
        for module in modules:
            path = self._path(f"{_MODULES}/{module}.module")
            if re.search(r"^state=\s*$", read_text("/", path) or "", re.MULTILINE):
                os.unlink(path)

    # --- holds ----------------------------------------------------------------------------------------------------

    def hold(self, names: list[str]) -> None:
        """Lock the installed version of each name, or the version of each `name=version`."""
        if not names:
            return
        known = {one.name: one for one in self._packages()}
        missing = [name for name in names if "=" not in name and name not in known]
        if missing:
            raise PackageManagerError(f"Packages that are not installed cannot be held: {', '.join(missing)}.")
        asked = [(name.partition("=")[0], name.partition("=")[2] or known[name].version) for name in names]
        # An installed version is locked without a repository.
        offline = all(name in known and dnf_version_locks.same(known[name].version, version) for name, version in asked)
        specs = [f"{name}-{version}" for name, version in asked]
        # Streams that the transaction enables later may hide the packages.
        _rc, out, err = self._versionlock("add", specs, [_OFFLINE if offline else "--setopt=*.module_hotfixes=true"])
        lost = re.findall(r"No package found for: (\S+)", out + "\n" + err)
        if lost:
            raise PackageManagerError(f"dnf versionlock add found no package for {', '.join(lost)}.")

    def locks_versions(self, changes: list[simulation.SimulatedChange]) -> bool:
        """Return whether dnf has the plugin that locks versions. Fail if the changes do not install it either."""
        try:
            self._versionlock("list", [], [_OFFLINE])
        except dnf_version_locks.NoPluginError:
            if any(change.after and "versionlock" in change.name for change in changes):
                return False
            raise
        return True

    def release(self, names: list[str]) -> None:
        """Delete the locks on these packages, or exact locks. Locks with wildcards in the name or version stay."""
        lines = (line.strip() for line in (read_text(self._root, _LOCKS) or "").splitlines())
        locks = [
            line for line in lines if line in names or any(dnf_version_locks.is_lock_on(line, name) for name in names)
        ]
        if locks:
            self._versionlock("delete", locks, [_OFFLINE])

    def _versionlock(self, verb: str, specs: list[str], options: list[str]) -> tuple[int, str, str]:
        rc, out, err = self._run(["dnf", "--quiet", *options, "versionlock", verb, *specs])
        if "No such command" in out + err:
            raise dnf_version_locks.NoPluginError(
                "dnf cannot hold packages because its plugin versionlock is missing or disabled. Install "
                "python3-dnf-plugin-versionlock, and enable it in /etc/dnf/plugins/versionlock.conf."
            )
        if rc != 0:
            raise dnf_command.error(" ".join(["dnf versionlock", verb, *specs]), rc, out, err)
        return rc, out, err

    # --- programs -------------------------------------------------------------------------------------------------

    def _run(
        self, argv: list[str], environment: dict[str, str] | None = None, stdin: str | None = None
    ) -> tuple[int, str, str]:
        """Run a program. Repeat dnf while another program holds dnf's lock, without which dnf changes nothing."""
        if argv[0] == "dnf":
            if not self._is_checked:
                self._check_version()
                self._is_checked = True
            unreadable = [f"--disablerepo={one.name}" for one in self.failures.found]
            argv = ["dnf", "--setopt=exit_on_lock=True", *unreadable, *argv[1:]]
        end = time.monotonic() + self._timeout
        while True:
            rc, out, err = self._host_run(argv, environment=environment, stdin=stdin)
            if argv[0] != "dnf" or rc != _LOCKED:
                return rc, out, err
            if time.monotonic() >= end:
                holder = lock_holders.holder(self._root, self.name)
                raise BusyError(busy(holder or "another program uses dnf", self._timeout))
            time.sleep(_RETRY_INTERVAL)

    def _checked(self, argv: list[str]) -> tuple[int, str, str]:
        rc, out, err = self._run(argv)
        if rc != 0:
            words = [word for word in argv if "%{" not in word and word not in ("--quiet", "--assumeyes")]
            raise dnf_command.error(" ".join(words), rc, out, err)
        return rc, out, err

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))
