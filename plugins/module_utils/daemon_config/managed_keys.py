# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manage individual keys of a JSON object that others edit, too.

Pure functions. A requested tree is split into leaves; a leaf is a value at a path of keys, or one item of the list at
that path. A record keeps for each leaf the value that was set, the value that it replaced, and the managers that
requested it. So releasing a leaf restores what others had written.
"""

from __future__ import annotations

import copy
import json
import re
import typing as t


class MergeError(Exception):
    """The requested keys conflict with existing keys, or with the keys of another manager."""


class _Absent:
    """No value. This differs from null."""

    def __repr__(self) -> str:
        return "absent"

    def __copy__(self) -> _Absent:
        return self

    def __deepcopy__(self, memo: t.Any) -> _Absent:
        return self


ABSENT = _Absent()
Path = tuple[str, ...]


class Leaf(t.NamedTuple):
    """A place in the tree: a path of keys and, if the value there is a shared list, the identity of one item."""

    path: Path
    item: str | None = None

    @property
    def name(self) -> str:
        return ".".join(self.path)


class ManagedEntry(t.NamedTuple):
    """The record of one leaf: the value set, the value it replaced, and the managers that request it."""

    value: t.Any
    previous: t.Any
    managers: tuple[str, ...]


class ManagedRecord(t.NamedTuple):
    """All leaves that were set, and the objects and lists that were created to hold them."""

    entries: dict[Leaf, ManagedEntry]
    containers: frozenset[Path]


EMPTY_RECORD = ManagedRecord({}, frozenset())


class Policy(t.NamedTuple):
    """The merge rules of one kind of file.

    whole: paths (`*` matches any key) of objects that are one value and are not merged.
    keyed_lists: lists of `key=value` items, in which an item replaces the item with the same key.
    lists: `union` adds items to a list, `replace` replaces the list.
    normalize: converts a value before it is compared.
    show: converts a value into the text for an error.
    """

    whole: tuple[Path, ...] = ()
    keyed_lists: tuple[Path, ...] = ()
    lists: str = "union"
    normalize: t.Callable[[Path, t.Any], t.Any] = lambda path, value: value
    show: t.Callable[[Path, t.Any], str] = lambda path, value: shown(value)

    def is_whole(self, path: Path) -> bool:
        return any(_matches(pattern, path) for pattern in self.whole)

    def identity(self, path: Path, item: t.Any) -> str:
        if isinstance(item, str) and any(_matches(pattern, path) for pattern in self.keyed_lists):
            return item.partition("=")[0]
        return canonical(self.normalize(path, item))

    def equal(self, path: Path, one: t.Any, other: t.Any) -> bool:
        if one is ABSENT or other is ABSENT:
            return one is other
        return canonical(self.normalize(path, one)) == canonical(self.normalize(path, other))


class Merge(t.NamedTuple):
    """The new tree and record, the changed keys, and the released keys that stay because somebody edited them.

    `revoked` names all keys that the manager no longer requests.
    """

    tree: dict[str, t.Any]
    record: ManagedRecord
    changed: tuple[str, ...]
    edited: tuple[str, ...]
    revoked: tuple[str, ...]


def _matches(pattern: Path, path: Path) -> bool:
    return len(pattern) == len(path) and all(expected in ("*", key) for expected, key in zip(pattern, path))


def canonical(value: t.Any) -> str:
    """Return a text that is equal for equal JSON values. The order of keys does not matter; true differs from 1."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def leaves(requested: dict[str, t.Any], policy: Policy, path: Path = ()) -> dict[Leaf, t.Any]:
    """Split a requested tree into leaves. null requests an absent key; empty objects and lists request nothing."""
    found: dict[Leaf, t.Any] = {}
    for key, value in requested.items():
        here = (*path, str(key))
        if value is None:
            found[Leaf(here)] = ABSENT
        elif isinstance(value, dict) and not policy.is_whole(here):
            found.update(leaves(value, policy, here))
        elif isinstance(value, list) and policy.lists == "union":
            found.update({Leaf(here, policy.identity(here, item)): item for item in value})
        else:
            found[Leaf(here)] = value
    return found


def get(tree: dict[str, t.Any], leaf: Leaf, policy: Policy) -> t.Any:
    """Return the value of a leaf, or ABSENT."""
    node: t.Any = tree
    for key in leaf.path:
        if not isinstance(node, dict) or key not in node:
            return ABSENT
        node = node[key]
    if leaf.item is None:
        return node
    if not isinstance(node, list):
        return ABSENT
    return next((item for item in node if policy.identity(leaf.path, item) == leaf.item), ABSENT)


def merge(
    tree: dict[str, t.Any],
    record: ManagedRecord,
    manager: str,
    requested: dict[str, t.Any],
    policy: Policy,
    *,
    purge: bool = False,
    elsewhere: dict[str, t.Any] | None = None,
) -> Merge:
    """Set the requested leaves for `manager`, and keep its other leaves.

    Its leaves that contain, or are part of, a requested leaf are released first, including those in `elsewhere`,
    which are set outside the tree. `purge` releases all its leaves that are not requested.
    """
    wanted = leaves(requested, policy)
    outside = leaves(elsewhere or {}, policy)

    def may_release(leaf: Leaf) -> bool:
        return purge or leaf in outside or any(_overlap(leaf, other) for other in wanted)

    return _apply(tree, record, manager, wanted, policy=policy, may_release=may_release)


def release(
    tree: dict[str, t.Any],
    record: ManagedRecord,
    manager: str,
    only: dict[str, t.Any] | None,
    policy: Policy,
) -> Merge:
    """Release all leaves of `manager` or, with `only`, the named ones. null names a key with everything below it."""
    if only is None:
        return _apply(tree, record, manager, {}, policy=policy, may_release=lambda leaf: True)
    named = leaves(only, policy)

    def is_named(leaf: Leaf) -> bool:
        return any(
            leaf == name or (value is ABSENT and leaf.path[: len(name.path)] == name.path)
            for name, value in named.items()
        )

    return _apply(tree, record, manager, {}, policy=policy, may_release=is_named)


def _apply(
    tree: dict[str, t.Any],
    record: ManagedRecord,
    manager: str,
    requested: dict[Leaf, t.Any],
    *,
    policy: Policy,
    may_release: t.Callable[[Leaf], bool],
) -> Merge:
    work = _Work(copy.deepcopy(tree), dict(record.entries), set(record.containers), [], set(), set())
    _release(work, record, manager, requested, policy=policy, may_release=may_release)
    _request(work, manager, requested, policy)
    changed = {
        ".".join(path)
        for path in work.touched
        if canonical_or_absent(get(tree, Leaf(path), policy))
        != canonical_or_absent(get(work.after, Leaf(path), policy))
    }
    # An object or list that contains only values of others belongs to them.
    new = ManagedRecord(
        work.entries,
        frozenset(path for path in work.containers if any(leaf.path[: len(path)] == path for leaf in work.entries)),
    )
    return Merge(work.after, new, tuple(sorted(changed)), tuple(sorted(work.edited)), tuple(sorted(work.revoked)))


class _Work(t.NamedTuple):
    """The tree and the record while keys are released and set."""

    after: dict[str, t.Any]
    entries: dict[Leaf, ManagedEntry]
    containers: set[Path]
    touched: list[Path]
    edited: set[str]
    revoked: set[str]


def _release(
    work: _Work,
    record: ManagedRecord,
    manager: str,
    requested: t.Collection[Leaf],
    *,
    policy: Policy,
    may_release: t.Callable[[Leaf], bool],
) -> None:
    """Restore what the manager no longer requests, unless another manager requests it or somebody has edited it."""
    for leaf, entry in record.entries.items():
        if manager not in entry.managers or leaf in requested or not may_release(leaf):
            continue
        work.revoked.add(leaf.name)
        others = tuple(name for name in entry.managers if name != manager)
        if others:
            work.entries[leaf] = entry._replace(managers=others)
            continue
        del work.entries[leaf]
        if policy.equal(leaf.path, get(work.after, leaf, policy), entry.value):
            _put(work.after, leaf, entry.previous, policy=policy, containers=work.containers)
            work.touched.append(leaf.path)
        else:
            work.edited.add(leaf.name)


def _request(work: _Work, manager: str, requested: dict[Leaf, t.Any], policy: Policy) -> None:
    """Set what the manager requests, and record the former values."""
    for leaf, value in requested.items():
        entry = work.entries.get(leaf)
        current = get(work.after, leaf, policy)
        others = tuple(name for name in entry.managers if name != manager) if entry else ()
        if entry and others and not policy.equal(leaf.path, entry.value, value):
            raise MergeError(
                f'"{leaf.name}" is set to {policy.show(leaf.path, entry.value)} by {" and ".join(others)}, but '
                f"{manager} requests {policy.show(leaf.path, value)}. Set the same value, or remove one of the two."
            )
        _refuse_overlap(leaf, value, manager, work.entries, policy)
        if policy.equal(leaf.path, current, value):
            if entry:
                work.entries[leaf] = entry._replace(value=value, managers=_with(entry.managers, manager))
            continue
        # If somebody has edited the value, a later release restores the edited value.
        previous = entry.previous if entry and policy.equal(leaf.path, current, entry.value) else current
        if canonical_or_absent(previous) == canonical_or_absent(value):
            del work.entries[leaf]  # the value from before the first change, which is not recorded
        else:
            work.entries[leaf] = ManagedEntry(value, previous, _with(entry.managers if entry else (), manager))
        _put(work.after, leaf, value, policy=policy, containers=work.containers, make=True)
        work.touched.append(leaf.path)


def _refuse_overlap(leaf: Leaf, value: t.Any, manager: str, entries: dict[Leaf, ManagedEntry], policy: Policy) -> None:
    """Refuse a key that contains, or is part of, a key of another manager. Each run would undo the other's change."""
    for other, entry in entries.items():
        if not _overlap(leaf, other) or set(entry.managers) <= {manager}:
            continue
        raise MergeError(
            f'"{other.name}" is set to {policy.show(other.path, entry.value)} by {" and ".join(entry.managers)}, but '
            f'{manager} requests "{leaf.name}" set to {policy.show(leaf.path, value)}, and one of these keys contains '
            "the other. Remove one of the two."
        )


def _overlap(one: Leaf, other: Leaf) -> bool:
    """Return whether one of two different leaves contains the other."""
    if one.path == other.path:
        return (one.item is None) != (other.item is None)
    shorter = min(len(one.path), len(other.path))
    return one.path[:shorter] == other.path[:shorter]


def canonical_or_absent(value: t.Any) -> str | None:
    """Return the canonical text of a value, None if it is absent."""
    return None if value is ABSENT else canonical(value)


def shown(value: t.Any) -> str:
    """Return a value as errors show it."""
    return "absent" if value is ABSENT else json.dumps(value, ensure_ascii=False)


def shortened(text: str, length: int) -> str:
    """Return the start of a text that is longer than `length`."""
    return text if len(text) <= length else f"{text[:length]}…"


def encodable(text: str) -> str:
    """Escape half a surrogate pair in a JSON text, which UTF-8 cannot encode. A file may contain the escape."""
    return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match.group()):04x}", text)


def _with(managers: tuple[str, ...], manager: str) -> tuple[str, ...]:
    return managers if manager in managers else (*managers, manager)


def _put(
    tree: dict[str, t.Any],
    leaf: Leaf,
    value: t.Any,
    *,
    policy: Policy,
    containers: set[Path],
    make: bool = False,
) -> None:
    """Set or remove a leaf. With `make`, record the containers created for it, which go with their last leaf."""
    if value is ABSENT:
        _remove(tree, leaf, policy, containers)
        return
    node = tree
    holders = leaf.path if leaf.item is not None else leaf.path[:-1]
    for depth, key in enumerate(holders, start=1):
        last_is_list = leaf.item is not None and depth == len(holders)
        if key not in node:
            node[key] = [] if last_is_list else {}
            if make:
                containers.add(leaf.path[:depth])
        node = node[key]
        if not isinstance(node, list if last_is_list else dict):
            raise MergeError(
                f'"{".".join(leaf.path[:depth])}" is {policy.show(leaf.path[:depth], node)}, but options can be '
                f"merged only into {'a list' if last_is_list else 'an object'}. Correct the value by hand."
            )
    if leaf.item is None:
        node[leaf.path[-1]] = copy.deepcopy(value)
        return
    items = t.cast("list[t.Any]", node)
    for position, item in enumerate(items):
        if policy.identity(leaf.path, item) == leaf.item:
            items[position] = copy.deepcopy(value)
            return
    items.append(copy.deepcopy(value))


def _remove(tree: dict[str, t.Any], leaf: Leaf, policy: Policy, containers: set[Path]) -> None:
    nodes: list[t.Any] = [tree]
    for key in leaf.path[:-1]:
        if not isinstance(nodes[-1], dict) or key not in nodes[-1]:
            return
        nodes.append(nodes[-1][key])
    holder = nodes[-1]
    if not isinstance(holder, dict) or leaf.path[-1] not in holder:
        return
    if leaf.item is None:
        del holder[leaf.path[-1]]
    else:
        items = holder[leaf.path[-1]]
        if not isinstance(items, list):
            return
        items[:] = [item for item in items if policy.identity(leaf.path, item) != leaf.item]
        nodes.append(items)
    # Remove the containers that are empty now and were created for the leaf, innermost first.
    for depth in range(len(nodes) - 1, 0, -1):
        path = leaf.path[:depth]
        if nodes[depth]:
            break
        if path not in containers:
            break
        del nodes[depth - 1][path[-1]]
        containers.discard(path)
