# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a package transaction needs from a package manager. `apt`, `dnf` and `zypper` implement it."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.unreadable_repositories import SourceFailures

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import Item


class PackageManagerError(Exception):
    """The package manager failed or refused. The message is for the user and contains no login."""


class BusyError(PackageManagerError):
    """Another program uses the package manager."""


def unsolved(steps: Steps) -> str:
    """Return the end of the message if the solver of dnf or zypper finds no solution."""
    if steps.may_erase:
        return "No package was changed."
    return (
        "No package was changed. If a package must be removed, list it in remove or may_change. If a role reported "
        "this error, remove the package yourself, then run the role again."
    )


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
