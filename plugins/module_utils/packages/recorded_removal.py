# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove what the transactions of one record installed, and nothing else."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import Backend, Steps, View
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import REMOVE, Change
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import ownership, package_selector
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.choice import TransactionError, versions
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.holds import VERSIONLOCK
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.ownership import Removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction import (
    Request,
    Result,
    leftover,
    prepare,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import apt_sources, host_files, own_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.host_files import File

# The purge of these packages deletes the user's data: that of docker.io deletes /var/lib/docker with all volumes. They
# are removed, and their configuration files stay. Source: prerm and postrm of docker.io 20.10.24+dfsg1-1 of Debian.
NEVER_PURGED = frozenset({"docker.io"})


def absent(request: Request, backend: Backend, journal: Journal, *, check_mode: bool = False) -> Result:
    """Remove what the record lists. In check mode, only report it."""
    if not journal.exists():
        return Result()
    if check_mode:
        with backend.as_repaired() as predicted:
            result = _plan(request, predicted, journal)[0]
        result.repaired = leftover(backend.broken(), journal.is_unfinished())
        return result
    with journal.locked(request.lock_timeout):
        repaired = prepare(backend, journal)
        result, removal, files = _plan(request, backend, journal)
        # The record is removed last, so that another run continues after an interruption.
        _remove_packages(result, backend, journal)
        if removal.streams:
            backend.reset([str(stream["module"]) for stream in removal.streams])
            backend.enable([stream["before"] for stream in removal.streams if stream["before"]])
        gone = [host_files.current(file.path, journal.root) for file in files if file.content is None]
        if gone or removal.keys:
            backend.forget(gone, removal.keys)
        for file in files:
            host_files.write(file, journal.root)
        journal.forget()
    result.repaired = repaired
    return result


def _remove_packages(result: Result, backend: Backend, journal: Journal) -> None:
    # Also the locks of packages that an interrupted run did not install.
    holds = journal.holds()
    if holds:
        backend.release(holds)
    if result.changes:
        names = list(dict.fromkeys(change.name for change in result.changes))
        journal.begin_removal(names)
        try:
            backend.act(_steps(names))
        except Exception:
            _hold_again(result.released, backend)
            raise
    # An interrupted run may have released holds of the user.
    _hold_again(journal.released(), backend)


def _steps(names: list[str]) -> Steps:
    kept = [name for name in names if name in NEVER_PURGED]
    return Steps(remove=kept, purge=[name for name in names if name not in kept], may_erase=True)


def _hold_again(names: list[str], backend: Backend) -> None:
    if names:
        state = backend.installed()
        missing = [name for name in names if name in state["all"] and name not in state["held"]]
        if missing:
            backend.hold(missing)


def _plan(request: Request, backend: Backend, journal: Journal) -> tuple[Result, Removal, list[File]]:
    """Return the result, what the record lists, and the files to write or to remove."""
    state = backend.installed()
    removal = journal.removal(state, enabled=backend.enabled_streams())
    stay = [name for name in removal.packages if _stays(name, request, state, removal)]
    held = {name for record in journal.others() for name in record["holds"]}
    if any(versions(f"{name}:any", state) for name in held):
        # Without it, the holds of the other records have no effect.
        stay += [name for name in removal.packages if name == VERSIONLOCK and name not in stay]
    candidates = [name for name in removal.packages if name not in stay]
    roots = [name for name in candidates if name in request.remove]
    others = [name for name in (backend.remove_test(roots) if roots else []) if name not in candidates]
    if others:
        raise TransactionError(
            f"Removing {', '.join(roots)} would break other installed packages: {', '.join(sorted(others))}. Nothing "
            "was changed. Remove these other packages first."
        )
    rest = [name for name in candidates if name not in roots]
    unneeded = backend.unneeded(rest, roots, removal.requested) if rest else []
    gone = sorted({*roots, *unneeded})
    _check_others(gone, backend)
    # Package managers print no epoch that is 0.
    found = [(name, version.removeprefix("0:")) for name in gone for version in versions(f"{name}:any", state)]
    result = Result([Change(name, REMOVE, version, None) for name, version in found])
    result.changes += [Change(name, REMOVE) for name in removal.unpurged if name not in NEVER_PURGED]
    result.streams = [str(stream["module"]) for stream in removal.streams]
    result.released = removal.holds
    result.kept = sorted({*stay, *rest} - set(unneeded))
    files = host_files.outdated(
        [*_restored(removal, journal), *(File(path, None) for path in _paths(removal, backend.name))], journal.root
    )
    result.files = [host_files.diff(host_files.current(file.path, journal.root), file) for file in files]
    return result, removal, files


def _check_others(gone: list[str], backend: Backend) -> None:
    """Fail if the package manager would also remove or change other packages."""
    # After an interrupted run, a simulation is possible only after the repair.
    if not gone or backend.broken():
        return
    changes = backend.simulate(_steps(gone), View())
    others = [str(change) for change in changes if change.name not in gone]
    if others:
        raise TransactionError(
            f"Removing {', '.join(gone)} would also {'; '.join(others)}. Nothing was changed. Remove the other "
            "packages first."
        )


def _stays(name: str, request: Request, state: dict[str, Any], removal: Removal) -> bool:
    """Return whether a package stays because of `keep`, or because the user holds it."""
    is_held = name in state["held"] and name not in removal.holds
    return is_held or package_selector.is_selected(request.keep, name, *versions(f"{name}:any", state))


def _paths(removal: Removal, manager: str) -> list[str]:
    """Return the files to remove, the entries of repositories before their keys."""
    # The roles do not record the files of their own repository.
    own = [name for name in removal.repositories if ownership.is_ours(name)]
    unrecorded = [path for name in own for path in own_files.of_manager(name, manager)[::-1]]
    return list(dict.fromkeys([*removal.files, *unrecorded]))


def _restored(removal: Removal, journal: Journal) -> list[File]:
    """Return the former text of changed files of others, unless somebody has changed them since."""
    found = {item["path"]: host_files.current(item["path"], journal.root) for item in removal.restore}
    texts = {path: file.content.decode("utf-8", "surrogateescape") for path, file in found.items() if file.content}
    restored = apt_sources.restored(texts, removal.restore)
    return [File(path, text.encode("utf-8", "surrogateescape"), found[path].mode) for path, text in restored.items()]
