# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change packages in one transaction: simulate it, check its changes, record it, carry it out, and hold packages.

If a transaction fails, it restores the removed packages. If it is killed, the next run completes it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.temporary_directories import (
    remove_abandoned,
    workspace,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    Backend,
    Steps,
    View,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import (
    dnf_version_locks,
    held_packages,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    allowed_changes,
    failed_transaction_undo,
    failure_report,
    further_rpm_keys,
    selectors_of_allowed_packages,
    transaction_lock,
    transaction_versions,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.selectors_of_allowed_packages import Selector
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction_versions import (
    TransactionError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import file_contents as repository_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import file_writing, openpgp, role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_options import Repository

# The names of files that configure repositories.
_ENTRIES = (".list", ".sources", ".repo")


@dataclasses.dataclass(frozen=True)
class TransactionRequest:
    """The requested packages, holds and repositories. The options of module package_transaction describe the fields."""

    install: tuple[Item, ...] = ()
    remove: tuple[str, ...] = ()
    purge: tuple[str, ...] = ()
    hold: tuple[Selector, ...] = ()
    release: tuple[Selector, ...] = ()
    may_change: tuple[Selector, ...] = ()
    may_upgrade: bool = False
    keep: tuple[Selector, ...] = ()
    repositories: tuple[Repository, ...] = ()
    # Repositories of other records that the packages need.
    uses: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    # dnf: `module:stream`.
    streams: tuple[str, ...] = ()
    files: tuple[RepositoryFile, ...] = ()
    lock_timeout: int = 60


@dataclasses.dataclass
class TransactionResult:
    """What changed, or would change in check mode."""

    changes: list[SimulatedChange] = dataclasses.field(default_factory=list)
    # Ansible's diffs of the written and removed files.
    files: list[dict[str, str]] = dataclasses.field(default_factory=list)
    streams: list[str] = dataclasses.field(default_factory=list)
    held: list[str] = dataclasses.field(default_factory=list)
    released: list[str] = dataclasses.field(default_factory=list)
    # What an interrupted run left, and what this run therefore completed.
    repaired: list[str] = dataclasses.field(default_factory=list)
    # Packages that the record lists and that stay, because other packages may need them.
    kept: list[str] = dataclasses.field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether anything changed."""
        return any(vars(self)[name] for name in ("changes", "files", "streams", "held", "released", "repaired"))


@dataclasses.dataclass
class TransactionTodo:
    """The difference between the request and the host, found without the network."""

    missing: list[Item] = dataclasses.field(default_factory=list)
    remove: list[str] = dataclasses.field(default_factory=list)
    purge: list[str] = dataclasses.field(default_factory=list)
    files: list[RepositoryFile] = dataclasses.field(default_factory=list)
    # Those of them that belong to the requested repositories, such as logins.
    access: list[str] = dataclasses.field(default_factory=list)
    # Repositories whose key must be fetched before their files are known.
    without_key: list[Repository] = dataclasses.field(default_factory=list)
    streams: list[str] = dataclasses.field(default_factory=list)
    hold: list[str] = dataclasses.field(default_factory=list)
    release: list[str] = dataclasses.field(default_factory=list)
    # dnf: locks to release on versions that are not installed.
    stale_locks: list[str] = dataclasses.field(default_factory=list)
    broken: list[str] = dataclasses.field(default_factory=list)
    # The record of an interrupted run.
    finish: bool = False

    @property
    def looks(self) -> bool:
        """Whether the transaction needs the repositories. Removals, holds and pins alone do not need them."""
        entries = [file for file in self.files if file.path.endswith(_ENTRIES) or file.path in self.access]
        return bool(self.missing or entries or self.without_key or self.streams)

    @property
    def acts(self) -> bool:
        """Whether the host needs a change."""
        return any(vars(self).values())


def present(
    request: TransactionRequest, backend: Backend, journal: Journal, *, check_mode: bool = False
) -> TransactionResult:
    """Make the requested changes. In check mode, only simulate them."""
    items = [backend.package_file(item.file) if item.file else item for item in request.install]
    request = dataclasses.replace(request, install=tuple(items))
    todo = plan(request, backend, journal)
    if not todo.acts:
        return TransactionResult()
    if check_mode:
        with backend.as_repaired() as repaired:
            predicted = plan(request, repaired, journal) if todo.broken else todo
            result = _simulate(request, predicted, repaired, journal).result
        result.repaired = leftover(todo.broken, todo.finish)
        return result
    with transaction_lock.locked(journal.root, request.lock_timeout):
        repaired = prepare(backend, journal)
        # Another program or the repair may have changed packages.
        todo = plan(request, backend, journal)
        run = _simulate(request, todo, backend, journal, is_real=True)
        if todo.acts:
            _act(run)
    run.result.repaired = repaired
    return run.result


def prepare(backend: Backend, journal: Journal) -> list[str]:
    """Wait for the package manager, and complete an interrupted run. Return what was completed."""
    backend.wait()
    remove_abandoned(journal.root)
    for file in journal.previous():
        file_writing.remove_temporary(file.path, journal.root)
    broken = backend.broken()
    planned = journal.planned()
    if broken or planned:
        backend.repair(planned)
    return leftover(broken, journal.is_unfinished())


def leftover(broken: list[str], is_unfinished: bool) -> list[str]:
    """Describe what an interrupted run left incomplete."""
    return broken or (["an interrupted transaction"] if is_unfinished else [])


@dataclasses.dataclass(frozen=True)
class Question:
    """What to read from the requested repositories."""

    # Packages whose versions are wanted, dnf's modules whose streams are, and packages whose dependencies are.
    packages: list[str]
    streams: list[str] = dataclasses.field(default_factory=list)
    dependencies: list[str] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.packages or self.streams or self.dependencies)


def query(
    request: TransactionRequest, question: Question, backend: Backend, journal: Journal, *, is_real: bool = False
) -> dict[str, Any]:
    """Return the available `versions` of packages, the `streams` of modules, and the `dependencies` of packages.

    `hidden` has the packages that only the configuration of the package manager hides, each with a sentence. Before a
    real transaction, the fetched metadata is kept for it.
    """
    files = _with_keys(plan(request, backend, journal), backend, journal)
    backend.failures.needed = _needed(request, backend.name)
    with workspace() as directory:
        view = backend.view(directory, [*_written(journal, files), *files])
        versions = backend.offers(question.packages, view) if question.packages else {}
        if is_real:
            backend.keep(view)
        failure_report.note_lost([name for name in versions if not versions[name]], backend, view)
        return {
            "versions": versions,
            "streams": backend.streams(question.streams, view) if question.streams else {},
            "dependencies": backend.dependencies(question.dependencies, view) if question.dependencies else {},
            **({"hidden": backend.hidden} if backend.hidden else {}),
        }


# --- plan ---------------------------------------------------------------------------------------------------------


def plan(request: TransactionRequest, backend: Backend, journal: Journal) -> TransactionTodo:
    """Compare the request with the host."""
    state = backend.installed()
    todo = TransactionTodo(broken=backend.broken(), finish=journal.is_unfinished())
    todo.missing = [
        item for item in request.install if not transaction_versions.is_satisfied(item, state, backend.name)
    ]
    todo.remove = [name for name in request.remove if transaction_versions.versions(name, state)]
    todo.purge = [
        name for name in request.purge if transaction_versions.versions(name, state) or name in state["config_files"]
    ]
    for repository in request.repositories:
        if repository_files.needs_key(repository, backend.name, journal.root):
            todo.without_key.append(repository)
        else:
            key = repository_files.kept_key(repository, backend.name, journal.root)
            todo.files += repository_files.files(repository, backend.name, key)
    own = {file.path for file in todo.files}
    todo.files += backend.component_files(list(request.components))
    todo.files = file_writing.outdated([*todo.files, *request.files], journal.root)
    todo.access = [file.path for file in todo.files if file.path in own]
    enabled = backend.enabled_streams()
    todo.streams = [name for name in request.streams if enabled.get(name.partition(":")[0]) != name.partition(":")[2]]
    wanted = [name for name in state["all"] if _is_selected(request.hold, name, state)]
    todo.hold = [name for name in wanted if name not in state["held"]]
    todo.release = [name for name in state["held"] if _is_selected(request.release, name, state) and name not in wanted]
    if backend.name == "dnf":
        todo.stale_locks = [lock for lock in state["held_patterns"] if _is_stale(lock, request.release, state)]
    return todo


def _is_stale(lock: str, selectors: tuple[Selector, ...], state: dict[str, Any]) -> bool:
    name, version = dnf_version_locks.locked_version(lock)
    is_installed = any(
        held_packages.lock_covers(lock, name, found) for found in transaction_versions.versions(name, state)
    )
    return bool(name) and not is_installed and selectors_of_allowed_packages.is_selected(selectors, name, version)


def _is_selected(selectors: tuple[Selector, ...], name: str, state: dict[str, Any]) -> bool:
    versions = transaction_versions.versions(f"{name}:any", state)
    return selectors_of_allowed_packages.is_selected(selectors, name, *versions)


# --- simulation ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Run:
    """A simulated transaction, whose changes are allowed."""

    request: TransactionRequest
    todo: TransactionTodo
    backend: Backend
    journal: Journal
    # The installed packages and holds before it.
    before: dict[str, Any]
    # The files to write, and the steps with exact versions.
    files: list[RepositoryFile]
    steps: Steps
    result: TransactionResult = dataclasses.field(default_factory=TransactionResult)


def _simulate(
    request: TransactionRequest, todo: TransactionTodo, backend: Backend, journal: Journal, *, is_real: bool = False
) -> _Run:
    """Simulate the transaction in a private view. Fail if a change is not allowed.

    A real transaction keeps the metadata that the view fetched.
    """
    before = backend.installed()
    files = _with_keys(todo, backend, journal)
    backend.failures.needed = _needed(request, backend.name)
    steps = Steps(remove=todo.remove, purge=todo.purge, streams=todo.streams, may_erase=bool(request.may_change))
    with workspace() as directory:
        view = backend.view(directory, [*_written(journal, files), *files]) if todo.looks else View()
        with failure_report.unreadable_explained([item.name for item in todo.missing if not item.file], backend, view):
            transaction_versions.check_streams(todo.streams, backend, view)
            changes = transaction_versions.simulate(todo.missing, steps, backend, view)
        run = _Run(request, todo, backend, journal, before, files, steps)
        run.result.files = [file_writing.diff(file_writing.current(file.path, journal.root), file) for file in files]
        run.result.streams = todo.streams
        _judge(run, changes)
        if is_real:
            backend.keep(view)
    if run.result.held or run.result.released:
        backend.locks_versions(changes)
    return run


def _needed(request: TransactionRequest, manager: str) -> frozenset[str]:
    """Return the paths of the entries without which the transaction makes no sense.

    An entry of the distribution's archive that gets components is not one of them: its file can have others, too.
    """
    names = [*(repository.name for repository in request.repositories), *request.uses]
    paths = {role_file_paths.repository_entry(name, manager) for name in names}
    return frozenset(paths | {file.path for file in request.files if file.content is not None})


def _with_keys(todo: TransactionTodo, backend: Backend, journal: Journal) -> list[RepositoryFile]:
    """Fetch the missing keys, and return all files to write."""
    files = [*todo.files]
    for repository in todo.without_key:
        key = repository_files.fetch_key(repository)
        files += file_writing.outdated(repository_files.files(repository, backend.name, key), journal.root)
    return files


def _written(journal: Journal, files: list[RepositoryFile]) -> list[RepositoryFile]:
    """Return the files that an interrupted run wrote, except `files`. The package manager may not know their keys."""
    paths = {file.path for file in files}
    found = [file_writing.current(file.path, journal.root) for file in journal.previous() if file.path not in paths]
    return [file for file in found if file.content is not None]


def _judge(run: _Run, changes: list[SimulatedChange]) -> None:
    """Fail if a change is not allowed. Complete the result."""
    request, held = run.request, set(run.before["held"])
    coming = {change.name for change in changes if change.after}
    ignored = [item for item in run.steps.install if _bare(item.name) not in coming]
    if ignored:
        names = ", ".join(_bare(item.name) for item in ignored)
        raise TransactionError(
            f"The package manager would not install {', '.join(map(str, ignored))}, but reported no error. No package "
            f"was changed. Check whether another package replaces {names}, or whether the package manager's "
            f"configuration excludes {names}."
        )
    allowed = allowed_changes.Allowed(
        install=frozenset(_bare(item.name) for item in request.install),
        remove=frozenset(_bare(name) for name in (*request.remove, *request.purge)),
        may_change=request.may_change,
        may_upgrade=request.may_upgrade,
        keep=request.keep,
        held=frozenset(
            name for name in held - set(run.journal.holds()) if not _is_selected(request.release, name, run.before)
        ),
    )
    refused = [*allowed_changes.refused(changes, allowed), *_other_versions(run, changes)]
    if refused:
        subject = ", ".join(map(str, (*request.install, *request.remove, *request.purge)))
        raise TransactionError(
            f"The transaction for {subject} requires changes that are not allowed: {'; '.join(refused)}. No package "
            "was changed. To allow upgrades, use may_upgrade; to allow other changes, use may_change. To release "
            "holds, use release. Otherwise, remove packages from keep or request other versions. If a role reported "
            "this error, change these packages or release their holds yourself, then run the role again."
        )
    comes = {
        change.name
        for change in changes
        if change.after and selectors_of_allowed_packages.is_selected(request.hold, change.name, change.after)
    }
    moved = {change.name for change in changes if change.before or change.after}
    # A hold that the transaction releases and sets again does not change.
    run.result.changes = changes
    run.result.held = sorted({*(set(run.todo.hold) - moved), *comes} - held)
    run.result.released = sorted({*run.todo.release, *run.todo.stale_locks, *((moved - comes) & held)})


def _other_versions(run: _Run, changes: list[SimulatedChange]) -> list[str]:
    """Describe the requested packages that would get a version other than the requested ones.

    rpm installs several versions of a kernel's packages beside each other, so a package can be requested twice.
    """
    found = []
    for change in changes:
        items = [
            item
            for item in run.request.install
            if _bare(item.name) == change.name
            # The copies of the package for other architectures may have other versions.
            and item.name.partition(":")[2] in ("", "any", change.arch)
        ]
        after = change.after
        if (
            after
            and items
            and not any(transaction_versions.is_version(item, after, run.backend.name) for item in items)
        ):
            found.append(f"{change} (requested: {', '.join(map(str, items))})")
    return found


def _bare(name: str) -> str:
    return name.partition(":")[0]


# --- act ----------------------------------------------------------------------------------------------------------


def _act(run: _Run) -> None:
    backend, journal, steps = run.backend, run.journal, run.steps
    released = [name for name in run.before["held"] if _must_release(name, run)]
    keys, interrupted, locks = _keys(run), _interrupted(run), _locks(run)
    enabled = backend.enabled_streams()
    unrepaired = ""
    _begin(run, keys, released)
    begun = failed_transaction_undo.Begun(
        backend, journal, run.before, run.result.changes, enabled, steps.streams, released, locks
    )
    try:
        for file in run.files:
            file_writing.write(file, journal.root)
        if run.todo.looks or interrupted.files:
            backend.apply([*interrupted.files, *run.files])
        # With dnf, this removes all locks on a package, so it precedes the new locks.
        stale = [*interrupted.locks, *run.todo.stale_locks]
        if released or stale:
            backend.release([*released, *stale])
        if locks:
            backend.hold(locks)
        is_changed = run.files or interrupted.files or steps.streams or released
        # dnf's shell removes packages even if it cannot install the others, for example because of a lock.
        if is_changed or (steps.install and (steps.remove or steps.purge)):
            # The solver may decide otherwise with the host's own repositories and the remaining holds.
            changes = backend.simulate(steps, View(), with_holds=True)
            if changes != run.result.changes:
                _judge(run, changes)
                _begin(run, keys, released)
                begun.changes = changes
        try:
            backend.act(steps)
        except failed_transaction_undo.FAILURES:
            unrepaired = failed_transaction_undo.repair(begun)
            raise
        _hold(run, interrupted.released)
    except failed_transaction_undo.FAILURES as error:
        sentences = [str(error), failure_report.unreadable_hint(backend), failed_transaction_undo.undo(begun)]
        try:
            # Incomplete packages do not count as installed yet. The record must not miss them. With rpm, they can look
            # complete after the restoration.
            broken = backend.broken()
            if broken:
                sentences.append(f"The next run repairs the packages and completes the record: {'; '.join(broken)}.")
            elif unrepaired:
                sentences.append(f"The packages could not be repaired: {unrepaired} The next run tries again.")
            else:
                journal.finish(backend.installed(), enabled=backend.enabled_streams(), keys=keys)
        except failed_transaction_undo.FAILURES as failure:
            sentences.append(f"The record is not complete: {failure} The next run completes it.")
        raise TransactionError(" ".join(filter(None, sentences))) from error
    journal.finish(backend.installed(), enabled=backend.enabled_streams(), keys=keys, holds=run.result.held)


def _begin(run: _Run, keys: list[str], released: list[str]) -> None:
    run.journal.begin(
        run.before,
        enabled=run.backend.enabled_streams(),
        requested=[_bare(item.name) for item in run.steps.install],
        planned=run.result.changes,
        files=run.files,
        repositories=[*(repository.name for repository in run.request.repositories), *run.request.uses],
        keys=keys,
        streams=run.steps.streams,
        holds=run.result.held,
        released=released,
        further_keys=_further_keys(run, keys),
    )


@dataclasses.dataclass
class _Interrupted:
    """The steps of an interrupted run that this run completes."""

    # Files that it wrote, but that the package manager may not know.
    files: list[RepositoryFile] = dataclasses.field(default_factory=list)
    # The holds that it released, and the packages whose locks it set without an installation.
    released: list[str] = dataclasses.field(default_factory=list)
    locks: list[str] = dataclasses.field(default_factory=list)


def _interrupted(run: _Run) -> _Interrupted:
    if not run.todo.finish:
        return _Interrupted()
    return _Interrupted(
        _written(run.journal, run.files),
        run.journal.released(),
        [name for name in run.journal.holds() if name not in run.before["held"]],
    )


def _keys(run: _Run) -> list[str]:
    """Return the fingerprints of the keys of the requested repositories."""
    found = []
    for repository in run.request.repositories:
        path = repository_files.key_path(repository, run.backend.name)
        new = [file.content for file in run.files if file.path == path and file.content]
        key = new[0] if new else file_writing.current(path, run.journal.root).content
        found += openpgp.fingerprints(key) if key else []
    return found


def _further_keys(run: _Run, keys: list[str]) -> list[str]:
    """Return the other keys in the key files that this transaction replaces."""
    paths = {repository_files.key_path(repository, run.backend.name) for repository in run.request.repositories}
    former = [file_writing.current(file.path, run.journal.root).content for file in run.files if file.path in paths]
    return further_rpm_keys.in_files(former, keys, [run.journal.read(), *run.journal.others()]) if former else []


def _must_release(name: str, run: _Run) -> bool:
    """Return whether a hold would prevent the transaction, or is no longer wanted."""
    return name in run.todo.release or any(change.name == name and change.before for change in run.result.changes)


def _locks(run: _Run) -> list[str]:
    """Return the locks to set before the installation. Only dnf can lock a version that is not installed."""
    # dnf cannot find the version of a package file in the repositories.
    files = {_bare(item.name) for item in run.steps.install if item.file}
    locks = [
        f"{change.name}={change.after}"
        for change in run.result.changes
        if change.after
        and change.name not in files
        and selectors_of_allowed_packages.is_selected(run.request.hold, change.name, change.after)
    ]
    return locks if locks and run.backend.locks_versions(run.result.changes) else []


def _hold(run: _Run, interrupted: list[str]) -> None:
    """Set the requested holds, and those that an interrupted run released."""
    state = run.backend.installed()
    names = [name for name in state["all"] if _is_selected(run.request.hold, name, state)]
    again = [
        name for name in interrupted if name in state["all"] and not _is_selected(run.request.release, name, state)
    ]
    missing = [name for name in dict.fromkeys([*names, *again]) if name not in state["held"]]
    if missing:
        run.backend.hold(missing)
