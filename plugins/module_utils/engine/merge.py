# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Own some keys of a JSON object that belongs to others too.

Pure functions: nothing here reads or writes a file. A wanted tree is cut into leaves; a leaf is a value below a path of
keys, or one item of a list below it. A record says of each leaf that was ever set here what was there before and on
whose behalf it was set, so that taking a leaf back restores what others had written.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import copy
import json
import typing as t


class MergeError(Exception):
    """The wanted keys and those that are there cannot both be had."""


class _Absent:
    """No value at all, which is something else than null."""

    def __repr__(self) -> str:
        return "absent"

    def __copy__(self) -> _Absent:
        return self

    def __deepcopy__(self, memo: t.Any) -> _Absent:
        return self


ABSENT = _Absent()
Path = tuple[str, ...]


class Leaf(t.NamedTuple):
    """A place in the tree: keys, and the identity of one item where the value below them is a shared list."""

    path: Path
    item: str | None = None

    @property
    def name(self) -> str:
        return ".".join(self.path)


class Entry(t.NamedTuple):
    """What the record knows of a leaf: what was set, what it replaced, and who wants it."""

    value: t.Any
    previous: t.Any
    managers: tuple[str, ...]


class Record(t.NamedTuple):
    """All leaves that were set here, and the objects and lists that were made to hold them."""

    entries: dict[Leaf, Entry]
    containers: frozenset[Path]


EMPTY_RECORD = Record({}, frozenset())


class Policy(t.NamedTuple):
    """What differs between one kind of file and another.

    `whole` are paths (`*` for any key) whose objects are one value and never mixed with another's; `keyed_lists` are
    lists of `key=value` items, where an item replaces the one with its key; `lists` is `union` (add our items) or
    `replace`; `normalise` brings a value into the form in which it is compared, `show` into the one in which an error
    names it.
    """

    whole: tuple[Path, ...] = ()
    keyed_lists: tuple[Path, ...] = ()
    lists: str = "union"
    normalise: t.Callable[[Path, t.Any], t.Any] = lambda path, value: value
    show: t.Callable[[Path, t.Any], str] = lambda path, value: shown(value)

    def is_whole(self, path: Path) -> bool:
        return any(_matches(pattern, path) for pattern in self.whole)

    def identity(self, path: Path, item: t.Any) -> str:
        if isinstance(item, str) and any(_matches(pattern, path) for pattern in self.keyed_lists):
            return item.partition("=")[0]
        return canonical(item)

    def equal(self, path: Path, one: t.Any, other: t.Any) -> bool:
        if one is ABSENT or other is ABSENT:
            return one is other
        return canonical(self.normalise(path, one)) == canonical(self.normalise(path, other))


class Merge(t.NamedTuple):
    """The outcome: the tree and record as they should be, what changed, and what was ours but has been edited since."""

    tree: dict[str, t.Any]
    record: Record
    changed: tuple[str, ...]
    edited: tuple[str, ...]


def _matches(pattern: Path, path: Path) -> bool:
    return len(pattern) == len(path) and all(want in ("*", have) for want, have in zip(pattern, path))


def canonical(value: t.Any) -> str:
    """One text for one JSON value: key order does not count, true is not 1."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def leaves(wanted: dict[str, t.Any], policy: Policy, path: Path = ()) -> dict[Leaf, t.Any]:
    """Cut a wanted tree into leaves. null means that the key is to be absent; empty objects and lists want nothing."""
    found: dict[Leaf, t.Any] = {}
    for key, value in wanted.items():
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
    """The value of a leaf, or ABSENT."""
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
    record: Record,
    manager: str,
    wanted: dict[str, t.Any],
    policy: Policy,
) -> Merge:
    """Make `wanted` all that `manager` owns in the tree: set its leaves, take back those that it no longer wants."""
    return _apply(tree, record, manager, leaves(wanted, policy), policy=policy, may_release=lambda leaf: True)


def release(
    tree: dict[str, t.Any],
    record: Record,
    manager: str,
    only: dict[str, t.Any] | None,
    policy: Policy,
) -> Merge:
    """Take back what `manager` owns: everything, or (with `only`) the named keys, where null names all below a key."""
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
    record: Record,
    manager: str,
    wanted: dict[Leaf, t.Any],
    *,
    policy: Policy,
    may_release: t.Callable[[Leaf], bool],
) -> Merge:
    after = copy.deepcopy(tree)
    entries = dict(record.entries)
    containers = set(record.containers)
    touched: list[Path] = []
    edited: set[str] = set()

    for leaf, entry in record.entries.items():
        if manager not in entry.managers or leaf in wanted or not may_release(leaf):
            continue
        others = tuple(name for name in entry.managers if name != manager)
        if others:
            entries[leaf] = entry._replace(managers=others)
            continue
        del entries[leaf]
        if policy.equal(leaf.path, get(after, leaf, policy), entry.value):
            _put(after, leaf, entry.previous, policy=policy, containers=containers)
            touched.append(leaf.path)
        else:
            edited.add(leaf.name)

    for leaf, value in wanted.items():
        entry = entries.get(leaf)
        current = get(after, leaf, policy)
        others = tuple(name for name in entry.managers if name != manager) if entry else ()
        if entry and others and not policy.equal(leaf.path, entry.value, value):
            raise MergeError(
                f'"{leaf.name}" is wanted as {policy.show(leaf.path, value)} for {manager}, and as '
                f"{policy.show(leaf.path, entry.value)} for "
                f"{' and '.join(others)}. Make the two agree, or take the key back for one of them."
            )
        _refuse_overlap(leaf, value, manager, entries, policy)
        if policy.equal(leaf.path, current, value):
            if entry:
                entries[leaf] = entry._replace(value=value, managers=_with(entry.managers, manager))
            continue
        # What somebody wrote over our value since is what a later release goes back to.
        previous = entry.previous if entry and policy.equal(leaf.path, current, entry.value) else current
        entries[leaf] = Entry(value, previous, _with(entry.managers if entry else (), manager))
        _put(after, leaf, value, policy=policy, containers=containers, make=True)
        touched.append(leaf.path)

    changed = {
        ".".join(path)
        for path in touched
        if canonical_or_absent(get(tree, Leaf(path), policy)) != canonical_or_absent(get(after, Leaf(path), policy))
    }
    return Merge(after, Record(entries, frozenset(containers)), tuple(sorted(changed)), tuple(sorted(edited)))


def _refuse_overlap(leaf: Leaf, value: t.Any, manager: str, entries: dict[Leaf, Entry], policy: Policy) -> None:
    """Refuse what would take turns with another's keys: the whole of a key here, a part of it there."""
    for other, entry in entries.items():
        if other.path == leaf.path and (other.item is None) == (leaf.item is None):
            continue
        shorter = min(len(leaf.path), len(other.path))
        if leaf.path[:shorter] != other.path[:shorter] or set(entry.managers) <= {manager}:
            continue
        raise MergeError(
            f'"{leaf.name}" is wanted as {policy.show(leaf.path, value)} for {manager}, which does not go with '
            f'"{other.name}" as {policy.show(other.path, entry.value)} for '
            f"{' and '.join(entry.managers)}. Take the key back for one of them."
        )


def canonical_or_absent(value: t.Any) -> str | None:
    return None if value is ABSENT else canonical(value)


def shown(value: t.Any) -> str:
    return "absent" if value is ABSENT else json.dumps(value, ensure_ascii=False)


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
    """Set or drop a leaf. With `make`, note what is made to hold it: that goes with the last leaf in it."""
    if value is ABSENT:
        _drop(tree, leaf, policy, containers)
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
                f'"{".".join(leaf.path[:depth])}" holds {policy.show(leaf.path[:depth], node)}, '
                f"where {'a list' if last_is_list else 'an object'} is needed to add to. Correct it by hand."
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


def _drop(tree: dict[str, t.Any], leaf: Leaf, policy: Policy, containers: set[Path]) -> None:
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
    # From the inside out: what held the leaf goes too, if it is empty now and was made here.
    for depth in range(len(nodes) - 1, 0, -1):
        path = leaf.path[:depth]
        if nodes[depth]:
            break
        if path not in containers:
            break
        del nodes[depth - 1][path[-1]]
        containers.discard(path)
