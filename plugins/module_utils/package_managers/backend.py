# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a package transaction needs from a package manager. `apt`, `dnf` and `zypper` implement it."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import Any, Protocol

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import version_order
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.unreadable_repositories import SourceFailures


class PackageManagerError(Exception):
    """The package manager failed or refused. The message is for the user and contains no login."""


class BusyError(PackageManagerError):
    """Another program uses the package manager."""


class ItemError(Exception):
    """The text does not describe a package."""


@dataclasses.dataclass(frozen=True)
class Item:
    """A package to install: a name with an exact `version` or a `minimum` version, or the path of a `file`.

    A version without a release, such as 580.95.05, stands for the newest build of it. An item with a `file` has the
    name and the version of this file as soon as `package_file` has read them.
    """

    name: str = ""
    version: str = ""
    minimum: str = ""
    file: str = ""

    def __str__(self) -> str:
        """Return the text that the user wrote."""
        if self.file:
            return self.file
        return self.name + (f"={self.version}" if self.version else f">={self.minimum}" if self.minimum else "")


_NAME = r"[A-Za-z0-9][A-Za-z0-9+._-]*(?::[a-z0-9]+)?"
_ITEM = re.compile(rf"(?P<name>{_NAME})(?:(?P<sign>>?=)(?P<version>[A-Za-z0-9][A-Za-z0-9.+:~^_-]*))?")


def item(text: str) -> Item:
    """Parse `name`, `name=version`, `name>=version` or the absolute path of a package file."""
    if text.startswith("/"):
        return Item(file=text)
    found = _ITEM.fullmatch(text)
    if not found:
        raise ItemError(
            f"{text!r} is not a valid package. Write name, name=version, name>=version, or the absolute path of a "
            "package file."
        )
    version = found["version"] or ""
    return Item(found["name"], **({"minimum": version} if found["sign"] == ">=" else {"version": version}))


def package_file(path: str, command: list[str], run: Run) -> Item:
    """Read a package file with a command that prints its name, full version and architecture."""
    rc, out, err = run([*command, path])
    fields = out.split()
    if rc or len(fields) != 3:
        # rpm also warns about keys that it does not know.
        reasons = [line for line in err.splitlines() if line and not line.startswith("warning:")]
        raise PackageManagerError(
            f"The package file {path} could not be read: {url_logins.masked(' '.join(reasons)) or 'it is damaged'}. "
            "Nothing was changed. Copy the file to the host again, or correct the path."
        )
    name, version, arch = fields
    name += "" if arch in ("all", "noarch") else f":{arch}"
    # Package managers print no epoch that is 0.
    return Item(name, version.removeprefix("0:"), file=path)


def busy(holder: object, timeout: float) -> str:
    """Return the message for a package manager or a lock that another process does not release."""
    return (
        f"The package manager is still busy after {timeout:g} seconds: {holder}. Wait until the process ends, or "
        "increase lock_timeout (role nvidia_driver: nvidia_driver_lock_timeout)."
    )


def unsolved(steps: Steps) -> str:
    """Return the end of the message if the solver of dnf or zypper finds no solution."""
    if steps.may_erase:
        return "No package was changed."
    return (
        "No package was changed. If a package must be removed, list it in remove or may_change. If a role reported "
        "this error, remove the package yourself, then run the role again."
    )


def newest(offers: list[str], wanted: str) -> str | None:
    """Return the first of the offered versions that is the wanted one. The offers are sorted, newest first.

    If `wanted` has no epoch or no release, these parts of the offers do not count.
    """
    if wanted in offers:
        return wanted
    request = version_order.split(wanted)
    for offer in offers:
        epoch, version, release = version_order.split(offer)
        if version == request.version and request.epoch in ("", epoch or "0") and request.release in ("", release):
            return offer
    return None


def satisfies(version: str, minimum: str, manager: str = "apt") -> bool:
    """Return whether a version is at least the minimum, in the order of the package manager.

    If the minimum has no epoch or no release, these parts of the version do not count.
    """
    limit = version_order.split(minimum)
    found = version_order.split(version)
    counted = version_order.Parts(limit.epoch and found.epoch, found.version, limit.release and found.release)
    return version_order.key(manager, counted) >= version_order.key(manager, limit)


@dataclasses.dataclass
class Steps:
    """One transaction, in which every version is decided.

    `install` has items with a name and a full version, with a name only, or with a file.
    """

    install: list[Item] = dataclasses.field(default_factory=list)
    remove: list[str] = dataclasses.field(default_factory=list)
    # Removed with their configuration files. The same as `remove` with dnf and zypper.
    purge: list[str] = dataclasses.field(default_factory=list)
    # dnf: `module:stream` to enable. Another enabled stream of the module is reset first.
    streams: list[str] = dataclasses.field(default_factory=list)
    # Whether packages may be removed for it. `packages/allowed_changes.py` decides which.
    may_erase: bool = False


@dataclasses.dataclass(frozen=True)
class View:
    """The repositories as they will be: command-line options that make the package manager use them.

    The view is a private directory. The host's own configuration and keys do not change. dnf and zypper refresh the
    cached metadata of the host's repositories, but keep none of new repositories.
    """

    options: tuple[str, ...] = ()


class Backend(Protocol):
    """One package manager. Every method that runs a program raises PackageManagerError if the program fails.

    If another program uses the package manager, each method waits up to the lock timeout that the constructor gets.
    """

    # apt, dnf or zypper.
    name: str
    # The repositories that `view` and `apply` could not read, and what the transaction needs. `view` fails if one of
    # these failed. The later methods do not use the others that failed.
    failures: SourceFailures
    # The packages that `offers` did not return only because the configuration hides them, each with a sentence.
    hidden: dict[str, str]

    def wait(self) -> None:
        """Wait until no other program uses the package manager. Raise BusyError after the lock timeout."""

    def broken(self) -> list[str]:
        """Describe what an interrupted run left to repair, for example `dpkg was interrupted`. Changes nothing."""

    def as_repaired(self) -> contextlib.AbstractContextManager[Backend]:
        """Return a backend for simulations of the host as it will be after `repair`. Changes nothing."""

    def repair(self, planned: list[SimulatedChange]) -> None:
        """Complete an interrupted run. Nobody else uses the package manager.

        `planned` are the changes of an interrupted transaction: with rpm, the scripts of installed packages may not
        have run.
        """

    def installed(self) -> dict[str, Any]:
        """Return the installed packages and holds, as `installed.read` does. With apt, `native` is the architecture."""

    def package_file(self, path: str) -> Item:
        """Read the name and the version of a package file. Fail if the file is missing or damaged."""

    def installed_providers(self, names: list[str]) -> dict[str, list[str]]:
        """Return the installed packages that provide virtual names. Other names are left out."""

    def providers(self, names: list[str], view: View) -> dict[str, list[str]]:
        """Return the available packages that provide each virtual name."""

    def component_files(self, components: list[str]) -> list[RepositoryFile]:
        """Return the files that must change so that apt's entries of the archive have these components."""

    def enabled_streams(self) -> dict[str, str]:
        """Return the enabled stream of each dnf module."""

    def view(self, directory: str, files: list[RepositoryFile]) -> View:
        """Create a private view in the empty `directory` and fetch its metadata.

        `files` are the files that the transaction will write or remove at their final paths: entries of
        repositories, keys, logins, pins.
        """

    def keep(self, view: View) -> None:
        """Keep the metadata that a view fetched, so that the next view or `apply` does not fetch it again."""

    def offers(self, names: list[str], view: View) -> dict[str, list[str]]:
        """Return the available versions by package, newest first. Wildcards select all packages that they match."""

    def sources(self, names: list[str], view: View) -> dict[str, set[str]]:
        """Return the names of the repositories that offer packages by the last known lists, even unreadable ones."""

    def dependencies(self, names: list[str], view: View) -> dict[str, dict[str, str]]:
        """Return the field Depends of each available or installed version, by package. Only with apt."""

    def streams(self, modules: list[str], view: View) -> dict[str, list[str]]:
        """Return the available streams of each dnf module."""

    def simulate(self, steps: Steps, view: View, with_holds: bool = False) -> list[SimulatedChange]:
        """Return what the real solver would do, with the old and the new version of each package.

        Without `with_holds`, holds have no effect, because the transaction releases its holds before `act`.
        """

    def apply(self, files: list[RepositoryFile]) -> None:
        """Make the package manager know files that were just written: import keys, fetch metadata."""

    def forget(self, files: list[RepositoryFile], keys: list[str]) -> None:
        """Undo `apply` for files that are about to be removed, given with their content: remove the cached metadata.

        A killed run may have done this before.

        `keys` are rpm's packages for the keys to remove.
        """

    def enable(self, streams: list[str]) -> None:
        """Enable dnf's module streams. Another enabled stream of the module is reset first."""

    def reset(self, modules: list[str]) -> None:
        """Reset dnf's modules, and remove the files that have no effect after it."""

    def act(self, steps: Steps) -> None:
        """Carry out the transaction, if possible as one. Otherwise download everything before the first removal."""

    def hold(self, names: list[str]) -> None:
        """Hold installed packages, or with dnf also `name=version` before the installation."""

    def locks_versions(self, changes: list[SimulatedChange]) -> bool:
        """Return whether `hold` can lock versions before their installation.

        Raise PackageManagerError if packages cannot be held, not even after these changes. Changes nothing.
        """

    def release(self, names: list[str]) -> None:
        """Release the holds on these packages. Holds with wildcards stay."""

    def unneeded(self, names: list[str], without: list[str], requested: list[str]) -> list[str]:
        """Select the names that neither a package nor the user needs any more without the packages `without`.

        A transaction `requested` some of them, so that the package manager considers them requested by the user.
        Changes nothing.
        """

    def remove_test(self, names: list[str]) -> list[str]:
        """Return the packages that depend on these packages, and would be removed or broken without them."""
