# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A package manager in memory, for tests of package transactions. Only its files are on disk, below a root."""

from __future__ import annotations

import contextlib
import fnmatch
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import version_order
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    PackageManagerError,
    Steps,
    View,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.unreadable_repositories import SourceFailures

SOURCES = "/etc/apt/sources.list"
# The calls that only read files of the host.
OFFLINE = {"package_file", "installed", "broken", "enabled_streams", "component_files"}
READS = {*OFFLINE, "view", "offers", "streams", "simulate", "unneeded", "remove_test", "wait", "locks_versions"}
READS |= {"sources", "dependencies", "providers", "installed_providers"}


class Killed(BaseException):
    """The process ends at once."""


@dataclass(frozen=True)
class Package:
    """A version of a package. `needs` are names, or `name>=version`."""

    name: str
    version: str = "1-1"
    needs: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


@dataclass
class Interruptions:
    """Counts the points where the process can end, and ends it at one of them."""

    at: int | None = None
    count: int = 0

    def point(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise Killed


@dataclass
class FakeManager:
    """The methods with the names of `backend.Backend` do what that interface describes."""

    root: Path
    # Packages that the host's own repositories offer, and those of repositories by the path of their entry.
    archive: list[Package] = field(default_factory=list)
    repositories: dict[str, list[Package]] = field(default_factory=dict)
    # path -> package
    package_files: dict[str, Package] = field(default_factory=dict)
    # name -> version
    packages: dict[str, str] = field(default_factory=dict)
    # name -> locked version. apt and zypper have no version.
    locks: dict[str, set[str]] = field(default_factory=dict)
    enabled: dict[str, str] = field(default_factory=dict)
    offered_streams: dict[str, list[str]] = field(default_factory=dict)
    name: str = "apt"
    kill: Interruptions = field(default_factory=Interruptions)
    # The calls of a method to let fail: its name -> the number of the call, from 1. 0: all calls.
    failing: dict[str, int] = field(default_factory=dict)
    # `act` fails after so many changed packages.
    act_fails_after: int | None = None
    calls: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    metadata: set[str] = field(default_factory=set)
    keys: dict[str, str] = field(default_factory=dict)
    repaired: list[SimulatedChange] | None = None
    seen: list[RepositoryFile] = field(default_factory=list)
    known: dict[tuple[str, str], Package] = field(default_factory=dict)
    # The versions that pins prefer to the newest ones.
    preferred: dict[str, str] = field(default_factory=dict)
    # The packages that provide virtual names.
    virtual: dict[str, list[str]] = field(default_factory=dict)
    failures: SourceFailures = field(default_factory=SourceFailures)
    hidden: dict[str, str] = field(default_factory=dict)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self.kill.point()
        if self.failing.get(name) in (0, self.calls.count(name)):
            raise PackageManagerError(f"{name} failed.")

    def _path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    # --- reading --------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        self._call("wait")

    def broken(self) -> list[str]:
        self._call("broken")
        return [*self.damage]

    def as_repaired(self) -> contextlib.AbstractContextManager[FakeManager]:
        return contextlib.nullcontext(self)

    def repair(self, planned: list[SimulatedChange]) -> None:
        self._call("repair")
        self.repaired, self.damage = planned, []

    def installed(self) -> dict[str, Any]:
        self._call("installed")
        return self.state()

    def state(self) -> dict[str, Any]:
        copies = {name: f"{version} amd64" for name, version in self.packages.items()}
        held = [name for name in self.packages if self.locks.get(name, set()) & {"", self.packages[name]}]
        keys = dict.fromkeys(self.keys, "1 none")
        return {
            "all": dict(sorted({**copies, **keys}.items())),
            "held": sorted(held),
            "held_patterns": sorted(
                f"{name}-{locked}.*" for name, versions in self.locks.items() for locked in versions
            ),
            "config_files": [],
        }

    def package_file(self, path: str) -> Item:
        self._call("package_file")
        if path not in self.package_files:
            raise PackageManagerError(f"{path} is missing.")
        package = self.package_files[path]
        return Item(f"{package.name}:amd64", package.version, file=path)

    def installed_providers(self, names: list[str]) -> dict[str, list[str]]:
        self._call("installed_providers")
        found = {name: [one for one in self.virtual.get(name, []) if one in self.packages] for name in names}
        return {name: packages for name, packages in found.items() if packages}

    def providers(self, names: list[str], view: View) -> dict[str, list[str]]:
        self._call("providers")
        return {name: self.virtual.get(name, []) for name in names}

    def component_files(self, components: list[str]) -> list[RepositoryFile]:
        self._call("component_files")
        text = self._path(SOURCES).read_text() if components else ""
        missing = [name for name in components if name not in text]
        return [RepositoryFile(SOURCES, f"{text.rstrip()} {' '.join(missing)}\n".encode())] if missing else []

    def enabled_streams(self) -> dict[str, str]:
        self._call("enabled_streams")
        return dict(self.enabled)

    def view(self, directory: str, files: list[RepositoryFile]) -> View:
        self._call("view")
        assert not list(Path(directory).iterdir())
        self.seen = files
        entries = {path for path in self.repositories if self._path(path).exists()}
        written = {file.path for file in files if file.content is not None}
        return View(tuple(sorted((entries | written) - {file.path for file in files if file.content is None})))

    def offers(self, names: list[str], view: View) -> dict[str, list[str]]:
        self._call("offers")
        found: dict[str, list[str]] = {name: [] for name in names if "*" not in name}
        for package in self._available(view.options):
            for name in names:
                if fnmatch.fnmatchcase(package.name, name.partition(":")[0]):
                    found.setdefault(package.name if "*" in name else name, []).append(package.version)
        return {name: sorted(versions, key=version_order.debian, reverse=True) for name, versions in found.items()}

    def keep(self, view: View) -> None:
        """Do nothing: metadata of views is not simulated."""

    def sources(self, names: list[str], view: View) -> dict[str, set[str]]:
        self._call("sources")
        return {name: {"archive"} for name in names if any(one.name == name for one in self._available(view.options))}

    def dependencies(self, names: list[str], view: View) -> dict[str, dict[str, str]]:
        self._call("dependencies")
        packages = self._available(view.options)
        return {name: {one.version: ", ".join(one.needs) for one in packages if one.name == name} for name in names}

    def streams(self, modules: list[str], view: View) -> dict[str, list[str]]:
        self._call("streams")
        return {module: self.offered_streams.get(module, []) for module in modules}

    def _available(self, entries: Any) -> list[Package]:
        return [*self.archive, *(package for path in entries for package in self.repositories.get(path, []))]

    # --- the solver -----------------------------------------------------------------------------------------------

    def simulate(self, steps: Steps, view: View, with_holds: bool = False) -> list[SimulatedChange]:
        self._call("simulate")
        changes = self._changes(steps, view.options or self.metadata)
        if with_holds:
            self._check_holds(changes)
        return changes

    def _changes(self, steps: Steps, entries: Any) -> list[SimulatedChange]:
        target = self._solve(steps, self._available(entries))
        found = []
        for name in sorted({*target, *self.packages}):
            before, after = self.packages.get(name), target.get(name)
            if before != after:
                order = before and after and version_order.debian(after) > version_order.debian(before)
                update = "upgrade" if order else "downgrade"
                action = "install" if not before else "remove" if not after else update
                found.append(SimulatedChange(name, action, before, after, "amd64"))
        return found

    def _package(self, name: str, version: str) -> Package:
        return self.known.get((name, version), Package(name, version))

    def _solve(self, steps: Steps, available: list[Package]) -> dict[str, str]:
        available = [*available, *(self.package_files[item.file] for item in steps.install if item.file)]
        self.known.update({(package.name, package.version): package for package in available})
        offered: dict[str, list[str]] = {}
        for package in available:
            offered.setdefault(package.name, []).append(package.version)
        offered = {name: sorted(found, key=version_order.debian, reverse=True) for name, found in offered.items()}
        banned = {name.partition(":")[0] for name in (*steps.remove, *steps.purge)}
        target = {name: version for name, version in self.packages.items() if name not in banned}
        fixed = {}
        for item in steps.install:
            name = item.name.partition(":")[0]
            version = item.version or self.preferred.get(name) or next(iter(offered.get(name, [])), "")
            if version not in offered.get(name, []):
                raise PackageManagerError(f"There is no {item}.")
            target[name] = fixed[name] = version
        for _round in range(200):
            if not self._improve(target, fixed, banned, offered):
                return target
        raise PackageManagerError("The dependencies have no solution.")

    def _improve(self, target: dict, fixed: dict, banned: set, offered: dict) -> bool:
        """Solve one problem. Return whether there was one."""
        for name in sorted(target):
            package = self._package(name, target[name])
            for other in sorted({*package.conflicts} & {*target}):
                if name in fixed and other in fixed:
                    raise PackageManagerError(f"{name} conflicts with {other}.")
                loser = name if other in fixed or (name not in fixed and other not in self.packages) else other
                banned.add(loser)
                del target[loser]
                return True
            for need in package.needs:
                wanted, _sign, minimum = need.partition(">=")
                if wanted in target and _at_least(target[wanted], minimum):
                    continue
                found = [version for version in offered.get(wanted, []) if _at_least(version, minimum)]
                if found and wanted not in banned and wanted not in fixed:
                    target[wanted] = found[0]
                elif name in fixed:
                    raise PackageManagerError(f"{name} depends on {need}.")
                else:
                    banned.add(name)
                    del target[name]
                return True
        return False

    def unneeded(self, names: list[str], without: list[str], requested: list[str]) -> list[str]:
        self._call("unneeded")
        found = {*names} & {*self.packages}
        while True:
            stay = {*self.packages} - found - {*without}
            needed = {need.partition(">=")[0] for name in stay for need in self._needs(name)}
            if not found & needed:
                return [name for name in names if name in found]
            found -= needed

    def _needs(self, name: str) -> tuple[str, ...]:
        return self._package(name, self.packages[name]).needs

    def remove_test(self, names: list[str]) -> list[str]:
        self._call("remove_test")
        gone = {*names}
        while True:
            more = {n for n in self.packages if any(need.partition(">=")[0] in gone for need in self._needs(n))} - gone
            if not more:
                return sorted(gone - {*names})
            gone |= more

    # --- changes --------------------------------------------------------------------------------------------------

    def apply(self, files: list[RepositoryFile]) -> None:
        self._call("apply")
        self.metadata = {path for path in self.repositories if self._path(path).exists()}
        for file in files:
            assert file.content is None or self._path(file.path).read_bytes() == file.content
            if self.name != "apt" and file.content and b"PGP PUBLIC KEY" in file.content:
                # rpm imports every key of a file.
                for fingerprint in openpgp.fingerprints(file.content):
                    self.keys[f"gpg-pubkey-{fingerprint[-8:].lower()}"] = file.path

    def forget(self, files: list[RepositoryFile], keys: list[str]) -> None:
        self._call("forget")
        for file in files:
            assert file.content is not None
            # zypper reads the aliases and keys of files that still exist.
            assert self._path(file.path).read_bytes() == file.content
            self.metadata.discard(file.path)
        for key in keys:
            del self.keys[key]

    def enable(self, streams: list[str]) -> None:
        self._call("enable")
        self.enabled.update(stream.split(":") for stream in streams)

    def reset(self, modules: list[str]) -> None:
        self._call("reset")
        for module in modules:
            self.enabled.pop(module, None)

    def act(self, steps: Steps) -> None:
        self._call("act")
        for stream in steps.streams:
            self.kill.point()
            module, _colon, name = stream.partition(":")
            self.enabled[module] = name
        changes = self._changes(steps, self.metadata)
        removed = [change for change in changes if not change.after]
        others = {change.name for change in removed} - {n.partition(":")[0] for n in (*steps.remove, *steps.purge)}
        if others and not steps.may_erase:
            raise PackageManagerError(f"This would remove {', '.join(sorted(others))}.")
        self._check_holds(changes)
        self.damage = ["dpkg was interrupted"] if changes else []
        done = self._carry_out(changes)
        self.damage = []
        if done:
            raise PackageManagerError(done)

    def _check_holds(self, changes: list[SimulatedChange]) -> None:
        """apt and zypper refuse to change held packages. dnf only installs locked versions."""
        for change in changes:
            allowed = self.locks.get(change.name) or {"", change.after}
            if (change.before and allowed == {""}) or (change.after and not allowed & {"", change.after}):
                raise PackageManagerError(f"{change.name} is held.")

    def _carry_out(self, changes: list[SimulatedChange]) -> str:
        removed = [change for change in changes if not change.after]
        others = [change for change in changes if change.after]
        ordered = [*self._in_order(removed, True), *self._in_order(others, False)]
        for count, change in enumerate(ordered):
            self.kill.point()
            if count == self.act_fails_after:
                return f"The script of {change.name} failed."
            if change.after:
                self.packages[change.name] = change.after
            else:
                del self.packages[change.name]
                if self.name == "apt":
                    self.locks.pop(change.name, None)
        return ""

    def _in_order(self, changes: list[SimulatedChange], removal: bool) -> list[SimulatedChange]:
        """Return dependencies before the packages that need them, and for a removal after these."""
        rest, found = {change.name: change for change in changes}, []
        while rest:
            ready = [n for n, c in rest.items() if not self._waits_for(c) & ({*rest} - {n})] or [*rest][:1]
            found += [rest.pop(name) for name in ready]
        return found[::-1] if removal else found

    def _waits_for(self, change: SimulatedChange) -> set[str]:
        needs = self._package(change.name, change.after or change.before or "").needs
        return {need.partition(">=")[0] for need in needs}

    def hold(self, names: list[str]) -> None:
        self._call("hold")
        for text in names:
            self.kill.point()
            name, _sign, version = text.partition("=")
            if self.name != "dnf":
                assert not version
                assert name in self.packages
            self.locks.setdefault(name, set()).add((version or self.packages[name]) if self.name == "dnf" else "")

    def locks_versions(self, changes: list[SimulatedChange]) -> bool:
        self._call("locks_versions")
        return self.name == "dnf"

    def release(self, names: list[str]) -> None:
        self._call("release")
        for name in names:
            self.locks.pop(name, None)
            for locked, versions in self.locks.items():
                versions -= {version for version in versions if name == f"{locked}-{version}.*"}


def _at_least(version: str, minimum: str) -> bool:
    return version_order.debian(version) >= version_order.debian(minimum)
