# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove in one transaction what a record lists, and nothing else. record_ownership.py decides what that is.

Several records can leave in one transaction, for example a driver and a daemon that needs its libraries: without the
daemon, a package manager may install another provider of the libraries for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import Backend, Steps, View
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds.hold_support import (
    VERSIONLOCK,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import REMOVE, SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    record_ownership,
    selectors_of_allowed_packages,
    transaction_lock,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_ownership import PackageRemoval
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction import (
    TransactionRequest,
    TransactionResult,
    leftover,
    prepare,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction_versions import (
    TransactionError,
    versions,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    apt_sources,
    file_writing,
    role_file_paths,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile

# The purge of these packages deletes the user's data: that of docker.io deletes /var/lib/docker with all volumes. They
# are removed, and their configuration files stay. Source: prerm and postrm of docker.io 20.10.24+dfsg1-1 of Debian.
NEVER_PURGED = frozenset({"docker.io"})


@dataclasses.dataclass(frozen=True)
class RecordedRemoval:
    """A removal to rehearse: the request, the record, and the records that leave in the same transaction."""

    request: TransactionRequest
    journal: Journal
    together_with: tuple[Journal, ...] = ()


def absent(
    request: TransactionRequest,
    backend: Backend,
    journal: Journal,
    *,
    check_mode: bool = False,
    together_with: Iterable[Journal] = (),
) -> TransactionResult:
    """Remove what the record lists, and the records in `together_with` with it. In check mode, only report it."""
    journals = _existing(journal, together_with)
    if not journals:
        return TransactionResult()
    unfinished = any(one.is_unfinished() for one in journals)
    if check_mode:
        with backend.as_repaired() as predicted:
            result = _plan(request, predicted, journals)[0]
        result.repaired = leftover(backend.broken(), unfinished)
        return result
    with transaction_lock.locked(journal.root, request.lock_timeout):
        repaired = list(dict.fromkeys(text for one in journals for text in prepare(backend, one)))
        result, removal, files = _plan(request, backend, journals)
        # The records are removed last, so that another run continues after an interruption.
        _remove_packages(result, backend, journals)
        if removal.streams:
            backend.reset([str(stream["module"]) for stream in removal.streams])
            backend.enable([stream["before"] for stream in removal.streams if stream["before"]])
        gone = [file_writing.current(file.path, journal.root) for file in files if file.content is None]
        if gone or removal.keys:
            backend.forget(gone, removal.keys)
        for file in files:
            file_writing.write(file, journal.root)
        for one in journals:
            one.forget()
    result.repaired = repaired
    return result


def rehearse(removals: Iterable[RecordedRemoval], backend: Backend) -> list[TransactionResult]:
    """Simulate removals, one after the other. Each starts from the host that the previous ones leave."""
    found: list[TransactionResult] = []
    leaving: list[str] = []
    with backend.as_repaired() as predicted:
        for one in removals:
            journals = _existing(one.journal, one.together_with)
            result = _plan(one.request, predicted, journals, leaving)[0] if journals else TransactionResult()
            leaving += [change.name for change in result.changes if change.before and change.name not in leaving]
            found.append(result)
    return found


def _existing(journal: Journal, together_with: Iterable[Journal]) -> list[Journal]:
    return [one for one in (journal, *together_with) if one.exists()]


def _remove_packages(result: TransactionResult, backend: Backend, journals: Sequence[Journal]) -> None:
    # Also the locks of packages that an interrupted run did not install.
    holds = list(dict.fromkeys(name for journal in journals for name in journal.holds()))
    if holds:
        backend.release(holds)
    if result.changes:
        names = list(dict.fromkeys(change.name for change in result.changes))
        for journal in journals:
            journal.begin_removal(names)
        try:
            backend.act(_steps(names))
        except Exception:
            _hold_again(result.released, backend)
            raise
    # An interrupted run may have released holds of the user.
    _hold_again([name for journal in journals for name in journal.released()], backend)


def _steps(names: list[str]) -> Steps:
    kept = [name for name in names if name in NEVER_PURGED]
    return Steps(remove=kept, purge=[name for name in names if name not in kept], may_erase=True)


def _hold_again(names: list[str], backend: Backend) -> None:
    if names:
        state = backend.installed()
        missing = [name for name in names if name in state["all"] and name not in state["held"]]
        if missing:
            backend.hold(missing)


def _plan(
    request: TransactionRequest, backend: Backend, journals: Sequence[Journal], leaving: Sequence[str] = ()
) -> tuple[TransactionResult, PackageRemoval, list[RepositoryFile]]:
    """Return the result, what the records list, and the files to write or to remove.

    `leaving` are installed packages that earlier removals of a rehearsal remove.
    """
    state, enabled, journal = backend.installed(), backend.enabled_streams(), journals[0]
    paths = [one.path for one in journals]
    removal = record_ownership.together(one.removal(state, enabled=enabled, without=paths) for one in journals)
    stay = [name for name in removal.packages if _stays(name, request, state, removal)]
    held = {name for record in journal.others(paths) for name in record["holds"]}
    if any(versions(f"{name}:any", state) for name in held):
        # Without it, the holds of the other records have no effect.
        stay += [name for name in removal.packages if name == VERSIONLOCK and name not in stay]
    candidates = [name for name in removal.packages if name not in stay and name not in leaving]
    roots = [name for name in candidates if name in request.remove]
    broken = backend.remove_test([*leaving, *roots]) if roots else []
    others = [name for name in broken if name not in candidates]
    if others:
        raise TransactionError(
            f"Removing {', '.join(roots)} would break other installed packages: {', '.join(sorted(others))}. Remove "
            "these other packages first."
        )
    rest = [name for name in candidates if name not in roots]
    unneeded = backend.unneeded(rest, [*leaving, *roots], removal.requested) if rest else []
    gone = sorted({*roots, *unneeded})
    _check_others(gone, leaving, backend)
    # Package managers print no epoch that is 0.
    found = [(name, version.removeprefix("0:")) for name in gone for version in versions(f"{name}:any", state)]
    result = TransactionResult([SimulatedChange(name, REMOVE, version, None) for name, version in found])
    result.changes += [SimulatedChange(name, REMOVE) for name in removal.unpurged if name not in NEVER_PURGED]
    result.streams = [str(stream["module"]) for stream in removal.streams]
    result.released = removal.holds
    result.kept = sorted({*stay, *rest} - set(unneeded))
    files = file_writing.outdated(
        [*_restored(removal, journal), *(RepositoryFile(path, None) for path in _paths(removal, backend.name))],
        journal.root,
    )
    result.files = [file_writing.diff(file_writing.current(file.path, journal.root), file) for file in files]
    return result, removal, files


def _check_others(gone: list[str], leaving: Sequence[str], backend: Backend) -> None:
    """Fail if the package manager would also remove or change other packages."""
    # After an interrupted run, a simulation is possible only after the repair.
    if not gone or backend.broken():
        return
    changes = backend.simulate(_steps([*leaving, *gone]), View())
    others = [str(change) for change in changes if change.name not in gone and change.name not in leaving]
    if others:
        raise TransactionError(
            f"Removing {', '.join(gone)} would also {'; '.join(others)}, because another installed package needs a "
            "removed one. Remove that package first."
        )


def _stays(name: str, request: TransactionRequest, state: dict[str, Any], removal: PackageRemoval) -> bool:
    """Return whether a package stays because of `keep`, or because the user holds it."""
    is_held = name in state["held"] and name not in removal.holds
    return is_held or selectors_of_allowed_packages.is_selected(request.keep, name, *versions(f"{name}:any", state))


def _paths(removal: PackageRemoval, manager: str) -> list[str]:
    """Return the files to remove, the entries of repositories before their keys."""
    # The roles do not record the files of their own repository.
    own = [name for name in removal.repositories if record_ownership.is_ours(name)]
    unrecorded = [path for name in own for path in role_file_paths.of_manager(name, manager)[::-1]]
    return list(dict.fromkeys([*removal.files, *unrecorded]))


def _restored(removal: PackageRemoval, journal: Journal) -> list[RepositoryFile]:
    """Return the former text of changed files of others, unless somebody has changed them since."""
    found = {item["path"]: file_writing.current(item["path"], journal.root) for item in removal.restore}
    texts = {path: file.content.decode("utf-8", "surrogateescape") for path, file in found.items() if file.content}
    restored = apt_sources.restored(texts, removal.restore)
    return [
        RepositoryFile(path, text.encode("utf-8", "surrogateescape"), found[path].mode)
        for path, text in restored.items()
    ]
