# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package transactions with apt and dpkg."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator
from typing import Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.temporary_directories import workspace
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import platform
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    apt_removable,
    apt_unreadable,
    apt_view,
    dpkg_state,
    installed_packages,
    offers,
    simulation,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.apt_command import (
    KEEP_CONFIGURATION,
    SOLVER,
    AptCommand,
    reason,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    PackageManagerError,
    Steps,
    View,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
    package_file,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import INSTALL, SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.stalled_downloads import StalledError
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    apt_excluded,
    apt_kept_lists,
    apt_sources,
    apt_stale_lists,
    file_writing,
    unreadable_repositories,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.apt_list_names import AptLists
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.unreadable_repositories import (
    FailedSource,
    SourceFailures,
)

_ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}
_LISTS = "/var/lib/apt/lists"
# apt writes nothing, not even its cache.
_NO_CACHE = ["--option=Dir::Cache::pkgcache=", "--option=Dir::Cache::srcpkgcache="]
# Whether the installed packages fit together is a question about dpkg's database only. Without sources, apt need not
# read its lists, which takes most of its time.
_NO_SOURCES = ["--option=Dir::Etc::sourcelist=/dev/null", "--option=Dir::Etc::sourceparts=/dev/null"]
# Lists of hidden repositories stay.
_KEEP_LISTS = "--option=APT::Get::List-Cleanup=false"
_FIX = ["--fix-broken", "install"]


class Apt:
    """apt, as the interface `backend.Backend`."""

    name = "apt"

    def __init__(
        self,
        run: Run,
        root: str = "/",
        lock_timeout: float = 60,
        predicted: str = "",
        failures: SourceFailures | None = None,
    ) -> None:
        """Use `run` for all programs. `root` is only for tests without apt. `predicted` replaces dpkg's database."""
        self.failures = failures or SourceFailures()
        self.hidden: dict[str, str] = {}
        # Options that hide the host's repositories that cannot be read.
        self._readable: tuple[str, ...] = ()
        self._exit = contextlib.ExitStack()
        self._run = run
        self._root = root
        self._predicted = predicted
        self._command = AptCommand(run, root, lock_timeout)

    # --- the state of dpkg ----------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until no other program uses apt or dpkg."""
        self._command.wait()

    def _database(self) -> str:
        """Return the text of dpkg's database. Raise PackageManagerError if the database is damaged."""
        if self._predicted:
            return self._predicted
        text = read_text(self._root, dpkg_state.STATUS)
        problem = dpkg_state.problem(text)
        if problem:
            raise PackageManagerError(
                f"dpkg's database {dpkg_state.STATUS} is damaged: {problem}. Nothing was changed. Restore it from "
                f"{dpkg_state.STATUS}-old or from /var/backups/dpkg.status.0, then run the task again."
            )
        return (text or "") + dpkg_state.journal(self._root)

    def _packages(self) -> list[dpkg_state.DpkgPackage]:
        return dpkg_state.parse(self._database())

    @contextlib.contextmanager
    def as_repaired(self) -> Iterator[Apt]:
        """Predict the host after `repair`, with a private copy of dpkg's database. The host does not change."""
        if not self.broken():
            yield self
            return
        predicted = dpkg_state.repaired(self._database())
        with workspace() as directory:
            status = f"{directory}/status"
            with open(status, "w", encoding="utf-8") as file:
                file.write(predicted)
            options = [f"--option=Dir::State::status={status}", *_NO_CACHE]
            missing: list[str] = []

            def run(argv: list[str], **more: Any) -> tuple[int, str, str]:
                return self._run([argv[0], *options, *argv[1:], *(missing if "--simulate" in argv else [])], **more)

            apt = Apt(run, self._root, predicted=predicted, failures=self.failures)
            if apt.broken():
                # A plus sign installs a package with all commands.
                missing = [f"{change.name}+" for change in apt._missing_dependencies()]
            yield apt

    def broken(self) -> list[str]:
        """Describe what an interrupted run of dpkg left to repair, and dependencies that are not met."""
        packages = self._packages()
        interrupted = not self._predicted and dpkg_state.has_journal(self._root)
        found = ["dpkg was interrupted"] if interrupted else []
        found += [
            f"{package.name} is {package.state}" + (" and must be reinstalled" if package.reinstall else "")
            for package in packages
            if not package.is_finished
        ]
        # Such packages explain the other problem.
        return found or self._unmet()

    def _unmet(self) -> list[str]:
        rc, out, err = self._run(["apt-get", "--option=Debug::NoLocking=true", *_NO_CACHE, *_NO_SOURCES, "check"])
        # The simulation reports other problems, for example a damaged entry of a repository that will be replaced.
        return [reason(out, err)] if rc and "Unmet dependencies" in err else []

    def repair(self, planned: list[SimulatedChange]) -> None:
        """Complete what dpkg began: configure, remove and reinstall packages, and install missing dependencies."""
        self._database()
        configure = ["dpkg", "--configure", "-a", *KEEP_CONFIGURATION]
        failure = self._command.attempt(configure)
        leaving = [p.full_name for p in self._unfinished() if p.is_leaving]
        if leaving:
            failure = self._command.attempt(["dpkg", "--force-remove-reinstreq", "--remove", *leaving]) or failure
        if any(p.is_damaged for p in self._unfinished()):
            failure = self._reinstall(planned)
        if self._unfinished() or self._unmet():
            self._missing_dependencies()
            self._command.attempt([*self._command.get(), "--no-remove", *_FIX])
            failure = self._command.attempt(configure)
        rest = self.broken()
        if rest:
            raise PackageManagerError(
                f"An interrupted run of dpkg could not be completed: {'; '.join(rest)}. {failure} Repair these "
                "packages with dpkg --configure -a and apt-get --fix-broken install, then run the task again."
            )

    def _unfinished(self) -> list[dpkg_state.DpkgPackage]:
        return [package for package in self._packages() if not package.is_finished]

    def _reinstall(self, planned: list[SimulatedChange]) -> str:
        """Install damaged packages in their versions, or in those of the interrupted transaction."""
        # The download requires current lists. If they cannot be fetched, the package may be in apt's cache.
        self._command.attempt(self._command.update())
        after = {change.name: change.after for change in planned}
        damaged = [p for p in self._unfinished() if p.is_damaged]
        items = [Item(p.name, version=after.get(p.bare) or p.version) for p in damaged]
        arguments = ["--reinstall", "--allow-downgrades", "--allow-change-held-packages", "install"]
        arguments += map(_argument, items)
        rc, out, err = self._run(["apt-get", "--simulate", *SOLVER, *arguments])
        others = [
            str(change)
            for change in simulation.apt(out)
            if change.action != INSTALL and change not in planned and change.name not in {p.bare for p in damaged}
        ]
        if rc or others:
            failure = reason(out, err) if rc else f"apt would also {'; '.join(others)}."
        else:
            failure = self._command.attempt([*self._command.get(), "--no-remove", *arguments])
        rest = {p.name for p in self._unfinished() if p.is_damaged}
        if rest:
            names = ", ".join(str(item) for item in items if item.name in rest)
            raise PackageManagerError(
                f"The installation of {names} was interrupted, and apt cannot repeat it: {failure} Install this or "
                "another version with apt-get install NAME=VERSION or dpkg --install FILE, or remove the package with "
                "dpkg --remove --force-remove-reinstreq. Then run the task again."
            )
        return failure

    def _missing_dependencies(self) -> list[SimulatedChange]:
        """Return what apt would do to repair the dependencies. Fail if apt would remove packages."""
        rc, out, err = self._run(["apt-get", "--simulate", *SOLVER, *_FIX])
        if rc:
            raise PackageManagerError(
                f"apt cannot repair the dependencies of the installed packages: {reason(out, err)}"
            )
        changes = simulation.apt(out)
        removed = sorted(simulation.removed(changes))
        if removed:
            raise PackageManagerError(
                f"apt can repair the dependencies of the installed packages only if it removes {', '.join(removed)}. "
                "No package was removed. Run apt-get --fix-broken install, then run the task again."
            )
        return changes

    def installed(self) -> dict[str, Any]:
        """Return the installed packages and holds, and all removed packages whose configuration files remain."""
        packages = self._packages()
        copies, held = installed_packages.dpkg_copies(packages)
        removed = {p.bare for p in packages if p.state == dpkg_state.CONFIG_FILES}
        return {
            "all": installed_packages.texts(copies),
            "held": sorted(held),
            "config_files": sorted(removed - set(copies)),
            "native": next((p.arch for p in packages if p.name == "dpkg"), ""),
        }

    # --- the repositories -----------------------------------------------------------------------------------------

    def view(self, directory: str, files: list[RepositoryFile]) -> View:
        """Create a private view in `directory` and fetch its metadata. The host's own lists do not change."""
        view = apt_view.create(self._root, directory, files)

        def update(more: list[str]) -> tuple[int, str, str]:
            return self._run(["apt-get", *view.options, *more, "update"], environment=apt_view.environment(view))

        place, problem = apt_view.copied_root(directory), "could not read the package repositories"
        readable = self._fetch(update, place, f"{directory}/readable", problem, "Nothing was changed. ")
        return View((*view.options, *readable))

    def _fetch(
        self, update: Callable[[list[str]], tuple[int, str, str]], root: str, directory: str, problem: str, state: str
    ) -> tuple[str, ...]:
        """Update the lists. Return options that hide the repositories that could not be read."""
        sources = apt_sources.read_files(root)
        while True:
            readable = self._excluding(sources, directory)
            rest = apt_excluded.without(sources, apt_unreadable.named(self.failures.found), _arch())
            try:
                rc, out, err = update([*readable, _KEEP_LISTS] if readable else [])
            except StalledError as error:
                # The program was ended before it fetched the other lists.
                self._tolerate(apt_unreadable.stalled(error, rest, _arch()), rest, f"apt {problem}", str(error), state)
                continue
            if rc or apt_unreadable.NOT_FETCHED.search(err):
                failed = apt_unreadable.failures(out, err, rest, _arch(), root)
                cause = f"apt {problem}: {reason(out, err)}"
                self._tolerate(failed, rest, f"apt {problem}", cause, f"{state}{unreadable_repositories.ADVICE}")
            return self._excluding(sources, directory)

    def _tolerate(
        self, failed: list[FailedSource], sources: dict[str, str], problem: str, cause: str, state: str
    ) -> None:
        """Remember the repositories that could not be read. Fail if the transaction needs one of them."""
        targets = apt_excluded.targets(sources, _arch())
        if not failed or len(failed) == len(targets):
            raise PackageManagerError(f"{cause} {state}".rstrip())
        needed = {str(target) for target, paths in targets.items() if paths & self.failures.needed}
        error = unreadable_repositories.judge(failed, needed, {}).error
        if error:
            raise PackageManagerError(f"{problem}. {error} {state}".rstrip())
        self.failures.add(failed)

    def _excluding(self, sources: dict[str, str], directory: str) -> tuple[str, ...]:
        found = self.failures.found
        return apt_unreadable.excluding(sources, found, _arch(), directory) if found else ()

    def keep(self, view: View) -> None:
        """Copy the lists of a view to the host."""
        if view.options:
            lists = os.path.join(self._root, _LISTS.lstrip("/"))
            apt_kept_lists.keep(f"{os.path.dirname(view.options[1])}/lists", lists)

    def sources(self, names: list[str], view: View) -> dict[str, set[str]]:
        """Return the repositories that offer packages by the last known lists, even if they do not answer now."""
        directory = os.path.dirname(view.options[1])
        argv = ["apt-cache", *view.options[:2], "madison", *names]
        _rc, out, _err = self._run(argv, environment=apt_view.environment(view))
        place = apt_view.copied_root(directory)
        return apt_unreadable.offered_by(out, apt_sources.read_files(place), _arch(), place)

    def package_file(self, path: str) -> Item:
        """Read the name and the version of a package file."""
        show = ["dpkg-deb", "--show", "--showformat", r"${Package}\t${Version}\t${Architecture}\n"]
        return package_file(path, show, self._run)

    def installed_providers(self, names: list[str]) -> dict[str, list[str]]:
        """Return the installed packages that provide virtual names."""
        return installed_packages.providers(self._root, "apt", names, self._run)

    def providers(self, names: list[str], view: View) -> dict[str, list[str]]:
        """Return the available packages that provide each virtual name."""
        return offers.providers(
            "apt", names, lambda argv: self._run(argv, environment=apt_view.environment(view)), view.options
        )

    def component_files(self, components: list[str]) -> list[RepositoryFile]:
        """Return the sources of the host that must change so that the archive has these components."""
        if not components:
            return []
        sources = apt_sources.read_files(self._root)
        system = platform.read(self._root, os.uname().machine)
        arch = _ARCHES.get(system["arch"], system["arch"])
        origin = apt_sources.recorded_origin(self._root, self._run)
        try:
            family = "ubuntu" if system["family"] == "ubuntu" else "debian"
            codename = system["codename"] or ""
            changed = apt_sources.add_components(sources, components, codename, arch, origin, family=family)
        except apt_sources.AptSourcesError as error:
            raise PackageManagerError(str(error)) from error
        return [
            RepositoryFile(path, text.encode("utf-8", "surrogateescape"), file_writing.current(path, self._root).mode)
            for path, text in sorted(changed.items())
        ]

    def offers(self, names: list[str], view: View) -> dict[str, list[str]]:
        """Return the available versions by package, newest first."""
        return offers.apt(names, lambda argv: self._run(argv, environment=apt_view.environment(view)), view.options)

    def dependencies(self, names: list[str], view: View) -> dict[str, dict[str, str]]:
        """Return the field Depends of each available or installed version, by package."""
        return offers.dependencies(
            names, lambda argv: self._run(argv, environment=apt_view.environment(view)), view.options
        )

    def streams(self, modules: list[str], view: View) -> dict[str, list[str]]:
        """Return no streams: apt has no modules."""
        return {module: [] for module in modules}

    def enable(self, streams: list[str]) -> None:
        """Do nothing: apt has no modules."""

    def reset(self, modules: list[str]) -> None:
        """Do nothing: apt has no modules."""

    def apply(self, files: list[RepositoryFile]) -> None:
        """Fetch the metadata of the host's repositories, even if no file was written."""
        directory = self._exit.enter_context(workspace())
        atexit.register(self._exit.close)

        def update(more: list[str]) -> tuple[int, str, str]:
            return self._command.change(self._command.update(more))

        self._readable = self._fetch(update, self._root, directory, "could not update the package lists", "")

    def enabled_streams(self) -> dict[str, str]:
        """Return no streams: apt has no modules."""
        return {}

    def forget(self, files: list[RepositoryFile], keys: list[str]) -> None:
        """Remove the package lists of removed entries. The files have the content from before their removal."""
        gone = {file.path for file in files}
        remaining = {path: text for path, text in apt_sources.read_files(self._root).items() if path not in gone}
        place = os.path.join(self._root, _LISTS.lstrip("/"))
        with workspace() as directory:
            # apt no longer reads the removed entries, but still knows the names of their lists.
            texts = {file.path: (file.content or b"").decode("utf-8", "surrogateescape") for file in files}
            sources = {path: text for path, text in texts.items() if apt_sources.is_source(path)}
            options = apt_unreadable.excluding({**remaining, **sources}, [], _arch(), directory)
            lists = AptLists(self._run, options)
            stale = apt_stale_lists.names(listing(self._root, _LISTS), files, remaining, lists)
        for name in stale:
            os.unlink(os.path.join(place, name))

    # --- the packages ---------------------------------------------------------------------------------------------

    def simulate(self, steps: Steps, view: View, with_holds: bool = False) -> list[SimulatedChange]:
        """Return what apt would do. Versions may go down: the caller judges the result."""
        packages = self._packages()
        # apt does not mention configuration files.
        purged = [
            SimulatedChange(package.bare, simulation.REMOVE, package.version, arch=package.name.partition(":")[2])
            for package in dpkg_state.selected(packages, steps.purge, dpkg_state.CONFIG_FILES)
        ]
        arguments = _arguments(packages, steps)
        if not arguments:
            return purged
        options = ["--simulate", *SOLVER, "--allow-downgrades", *([] if with_holds else ["--ignore-hold"])]
        argv = ["apt-get", *(view.options or self._readable), *options, "install"]
        rc, out, err = self._run([*argv, *arguments], environment=apt_view.environment(view))
        if rc:
            raise PackageManagerError(
                f"apt cannot install or remove {' '.join(arguments)}: {reason(out, err)} No package was changed."
            )
        return sorted([*simulation.apt(out), *purged])

    def act(self, steps: Steps) -> None:
        """Install and remove in one transaction, and then purge the configuration files of `steps.purge`."""
        arguments = _arguments(self._packages(), steps)
        if arguments:
            options = [] if steps.may_erase or steps.remove or steps.purge else ["--no-remove"]
            argv = [*self._command.get(), *self._readable, "--allow-downgrades", *options, "install", *arguments]
            if steps.install:
                self._command.download(argv)
            self._command.succeed(argv, f"apt failed to change {' '.join(arguments)}")
        # apt-get can only purge all removed packages, including those that nobody asked to purge.
        rest = dpkg_state.selected(self._packages(), steps.purge, dpkg_state.CONFIG_FILES)
        if rest:
            names = [package.full_name for package in rest]
            self._command.succeed(["dpkg", "--purge", *names], f"dpkg failed to purge {' '.join(names)}")

    def hold(self, names: list[str]) -> None:
        """Hold installed packages."""
        if names:
            self._command.succeed(["apt-mark", "hold", *names], f"apt-mark failed to hold {' '.join(names)}")

    def locks_versions(self, changes: list[SimulatedChange]) -> bool:
        """Return False: apt holds installed packages only."""
        return False

    def release(self, names: list[str]) -> None:
        """Release the holds on these packages."""
        packages = self._packages()
        held = [p.name for name in names for p in dpkg_state.select(packages, name) if p.want == "hold"]
        if held:
            self._command.succeed(["apt-mark", "unhold", *held], f"apt-mark failed to release {' '.join(held)}")

    def unneeded(self, names: list[str], without: list[str], requested: list[str]) -> list[str]:
        """Select the names that neither a package nor the user needs without the packages `without`."""
        return apt_removable.unneeded(
            self._packages(), names, without, requested, run=self._run, command=self._command, root=self._root
        )

    def remove_test(self, names: list[str]) -> list[str]:
        """Return the packages that need these packages."""
        return apt_removable.dependents(self._packages(), names, self._run)


def _arguments(packages: list[dpkg_state.DpkgPackage], steps: Steps) -> list[str]:
    """Return the arguments of `apt-get install` that install and remove. A hyphen at the end removes a package."""
    removed = dpkg_state.selected(packages, [*steps.remove, *steps.purge])
    gone = [
        f"{package.name}-"
        for package in removed
        if package.state not in (dpkg_state.CONFIG_FILES, dpkg_state.NOT_INSTALLED)
    ]
    return [*map(_argument, steps.install), *gone]


def _arch() -> str:
    machine = os.uname().machine
    return _ARCHES.get(machine, machine)


def _argument(item: Item) -> str:
    return item.file or item.name + (f"={item.version}" if item.version else "")
