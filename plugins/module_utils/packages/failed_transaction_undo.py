# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restore a host after a failed transaction."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    Backend,
    PackageManagerError,
    Steps,
    View,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import REMOVE, SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.version_order import (
    newest,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import allowed_changes
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal, JournalError
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction_versions import (
    TransactionError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import file_writing
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_options import RepositoryError

# How a step of a transaction fails.
FAILURES = (PackageManagerError, TransactionError, RepositoryError, JournalError, OSError)
# rpm's packages for keys.
_KEY = "gpg-pubkey-"


@dataclasses.dataclass
class Begun:
    """A recorded transaction that has begun."""

    backend: Backend
    journal: Journal
    # The installed packages and holds before it.
    before: dict[str, Any]
    changes: list[SimulatedChange]
    # The enabled streams before it by module, and those to enable, as `module:stream`.
    enabled: dict[str, str]
    streams: list[str]
    # The released holds, and the locks that were set before the installation, as `name=version`.
    released: list[str]
    locks: list[str]


def repair(begun: Begun) -> str:
    """Complete the packages that the package manager left incomplete. Return why this failed, or an empty text.

    Without this, the package manager may be unable to install others. Packages whose scripts did not run look complete
    to rpm, so this does not depend on `broken`.
    """
    try:
        begun.backend.repair(begun.changes)
    except FAILURES as error:
        return str(error)
    return ""


def undo(begun: Begun) -> str:
    """Restore the removed packages, unless all packages changed as planned. Return sentences for the user.

    New packages stay unless they conflict, because other packages may need them already. Their repositories stay, too.
    """
    restored: list[str] = []
    lost: list[str] = []
    try:
        is_complete = _is_complete(begun.changes, begun.backend.installed())
        if not is_complete:
            if begun.locks:
                # dnf would not find the former versions.
                names = [lock.partition("=")[0] for lock in begun.locks]
                _attempt(f"the locks on {', '.join(names)}", lambda: begun.backend.release(names), lost)
            _restore(begun, restored, lost)
        _hold_again(begun, lost)
    except FAILURES as error:
        return f"The host may be only partly restored, because its state could not be read: {error} Run the task again."
    sentences = [
        "All packages changed as planned, but a later step failed. Run the task again to complete it."
        if is_complete
        else "",
        f"Restored: {', '.join(restored)}." if restored else "",
        f"Not restored: {'; '.join(lost)}." if lost else "",
    ]
    return " ".join(filter(None, sentences))


def _is_complete(changes: list[SimulatedChange], now: dict[str, Any]) -> bool:
    return bool(changes) and all(_is_done(change, now) for change in changes)


def _is_done(change: SimulatedChange, now: dict[str, Any]) -> bool:
    installed = [_version(copy) for copy in _copies(change.name, now)]
    if change.action == REMOVE:
        return not installed
    return bool(installed) and (not change.after or any(newest([version], change.after) for version in installed))


def _copies(name: str, state: dict[str, Any]) -> list[str]:
    """Return the version and the architecture of each copy of a package, as one text."""
    return [copy for copy in state["all"].get(name, "").split(", ") if copy]


def _version(copy: str) -> str:
    return copy.partition(" ")[0]


# --- packages and files -------------------------------------------------------------------------------------------


def _restore(begun: Begun, restored: list[str], lost: list[str]) -> None:
    missing = {*_missing(begun)}
    reason = _reinstall(begun)
    files: list[RepositoryFile] = []
    if not _remains(begun):
        files = _restore_files(begun, lost)
        former = [file for file in files if file.content is not None]
        if _missing(begun) and (former or begun.streams):
            # The former repositories and streams may offer the packages.
            _attempt("the package lists", lambda: begun.backend.apply(former), lost)
            reason = _reinstall(begun)
    still = _missing(begun)
    restored += [f"package {name}" for name in sorted(missing - {*still})]
    restored += [f"{len(files)} file{'s' if len(files) > 1 else ''}"] if files else []
    if still:
        names = ", ".join(f"{name} {' '.join(map(_version, copies))}" for name, copies in still.items())
        lost.append(f"package{'s' if len(still) > 1 else ''} {names} ({reason})")


def _remains(begun: Begun) -> list[str]:
    """Return the new packages, including those of an interrupted run before this one."""
    known = {*begun.journal.read()["pending"], *_missing(begun)}
    return [name for name in begun.backend.installed()["all"] if name not in known and not name.startswith(_KEY)]


def _missing(begun: Begun) -> dict[str, list[str]]:
    """Return the copies of packages that were removed or replaced."""
    now, found = begun.backend.installed(), {}
    for name in begun.before["all"]:
        current = _copies(name, now)
        copies = [copy for copy in _copies(name, begun.before) if copy not in current]
        if copies and not name.startswith(_KEY):
            found[name] = copies
    return found


def _reinstall(begun: Begun) -> str:
    """Install the former versions. Return why this failed."""
    reason, tried = "", None
    # A new package may need the new version of another package. Then restore at least the removed packages.
    for removed_only in (False, True):
        now = begun.backend.installed()["all"]
        missing = {name: copies for name, copies in _missing(begun).items() if not removed_only or name not in now}
        if not missing or missing == tried:
            break
        tried = missing
        try:
            _install(begun, missing)
        except FAILURES as error:
            reason = reason or str(error)
    return reason


def _install(begun: Begun, missing: dict[str, list[str]]) -> None:
    backend = begun.backend
    came = [name for name in backend.installed()["all"] if name not in begun.before["all"]]
    items = [Item(_qualified(name, copy, begun), version=_version(copy)) for name in missing for copy in missing[name]]
    steps = Steps(install=items, may_erase=True)
    allowed = allowed_changes.Allowed(install=frozenset(missing), remove=frozenset(came))
    refused = allowed_changes.refused(backend.simulate(steps, View()), allowed)
    if refused:
        raise PackageManagerError(
            f"Reinstalling the removed packages would also {'; '.join(refused)}, so they were not reinstalled."
        )
    backend.act(steps)


def _qualified(name: str, copy: str, begun: Begun) -> str:
    """Return the name of a copy. Without an architecture, apt installs only the package of its own architecture."""
    is_one_of_several = begun.backend.name == "apt" and len(_copies(name, begun.before)) > 1
    return f"{name}:{copy.partition(' ')[2]}" if is_one_of_several else name


def _restore_files(begun: Begun, lost: list[str]) -> list[RepositoryFile]:
    """Restore the files and streams. Return the restored files."""
    backend, journal = begun.backend, begun.journal
    # dnf knows a module only as long as its repository exists.
    if begun.streams:
        modules = [stream.partition(":")[0] for stream in begun.streams]
        _attempt(f"the streams of {', '.join(modules)}", lambda: _restore_streams(begun, modules), lost)
    former = file_writing.outdated(journal.previous(), journal.root)
    written = [file_writing.current(file.path, journal.root) for file in former if file.content is None]
    known = journal.read()["pending"]
    keys = [name for name in backend.installed()["all"] if name.startswith(_KEY) and name not in known]
    if written or keys:
        _attempt("the package lists and keys", lambda: backend.forget(written, keys), lost)
    return [
        file
        for file in former
        if _attempt(f"file {file.path}", lambda file=file: file_writing.write(file, journal.root), lost)  # type: ignore
    ]


def _restore_streams(begun: Begun, modules: list[str]) -> None:
    begun.backend.reset(modules)
    former = begun.journal.former_streams(begun.enabled)
    if former:
        begun.backend.enable(former)


# --- holds --------------------------------------------------------------------------------------------------------


def _hold_again(begun: Begun, lost: list[str]) -> None:
    now = begun.backend.installed()
    holds = [name for name in begun.released if name in now["all"] and name not in now["held"]]
    if holds:
        _attempt(f"the holds on {', '.join(holds)}", lambda: begun.backend.hold(holds), lost)


def _attempt(what: str, action: Callable[[], Any], lost: list[str]) -> bool:
    try:
        action()
    except FAILURES as error:
        lost.append(f"{what} ({error})")
        return False
    return True
