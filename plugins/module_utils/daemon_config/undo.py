# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo the changes of daemon.json that the daemon has not applied."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import managed_keys
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.docker_options import merge_policy
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import (
    DaemonConfigError,
    dump,
    parse,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import ABSENT, ManagedRecord
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.record import State, dump_state, load_state


class Former(t.NamedTuple):
    """The file and the record before the pending changes. `text` is None if there was no file."""

    text: str | None
    state: State


def remember_former(before: str | None, after: str | None, state: State, *, is_applied: bool) -> dict[str, t.Any]:
    """Return what `former` needs to undo a change.

    `is_applied`: whether the daemon has applied the previous change. Otherwise, the daemon may fail to start with the
    previous change, too, so an undo restores the state before both changes.
    """
    remembered = (state.written or {}).get("former")
    if remembered and not is_applied and remembered["after"] == before:
        return {**remembered, "after": after}
    kept = state._replace(written={**state.written, "former": None} if state.written else None)
    return {"text": before, "after": after, "state": json.loads(dump_state(kept))}


def former(state: State, text: str | None, path: str) -> Former | None:
    """Return what to restore, or None if no change is pending. Raise an error if somebody has edited the file since."""
    remembered = (state.written or {}).get("former")
    if not remembered:
        return None
    if remembered["after"] != text:
        raise DaemonConfigError(
            f"{path}: the change cannot be undone, because somebody has edited the file since. Nothing was changed. "
            "Correct the file by hand."
        )
    if remembered["text"] == text:
        return None
    return Former(remembered["text"], load_state(json.dumps(remembered["state"]), path))


def keep_keys(found: Former, text: str | None, state: State, keys: t.Iterable[str], path: str) -> Former:
    """Return what to restore, with the current values of `keys` in the file and in the record."""
    now, then = ({} if one is None else parse(one, path) for one in (text, found.text))
    kept = [key for key in keys if key in now and key in _differing_keys(now, then)]
    if not kept:
        return found
    record, former_record = state.record, found.state.record
    entries = {leaf: entry for leaf, entry in former_record.entries.items() if leaf.path[0] not in kept}
    entries.update({leaf: entry for leaf, entry in record.entries.items() if leaf.path[0] in kept})
    containers = {name for name in former_record.containers if name[0] not in kept}
    containers |= {name for name in record.containers if name[0] in kept}
    new = found.state._replace(
        record=ManagedRecord(entries, frozenset(containers)),
        original=found.state.original if former_record.entries else found.text,
        made_directory=state.made_directory,
    )
    return Former(dump({**then, **{key: now[key] for key in kept}}, found.text), new)


def _differing_keys(one: dict[str, t.Any], other: dict[str, t.Any]) -> set[str]:
    return {
        key
        for key in {*one, *other}
        if managed_keys.canonical_or_absent(one.get(key, ABSENT))
        != managed_keys.canonical_or_absent(other.get(key, ABSENT))
    }


def differing_names(one: t.Any, other: t.Any, path: managed_keys.Path = ()) -> list[str]:
    """Return the dotted names of the options that differ between two configurations."""
    nodes = [{} if node is ABSENT else node for node in (one, other)]
    if all(isinstance(node, dict) for node in nodes) and any(nodes) and not merge_policy().is_whole(path):
        names = (
            differing_names(*(node.get(key, ABSENT) for node in nodes), (*path, key))
            for key in sorted({*nodes[0], *nodes[1]})
        )
        return [name for found in names for name in found]
    return [] if managed_keys.canonical_or_absent(one) == managed_keys.canonical_or_absent(other) else [".".join(path)]


def undone_keys(now: ManagedRecord, then: ManagedRecord) -> dict[str, list[str]]:
    """Return the options that differ between two records, by manager."""
    found: dict[str, set[str]] = {}
    for leaf in {*now.entries, *then.entries}:
        entries = [record.entries.get(leaf) for record in (now, then)]
        for manager in {name for entry in entries if entry for name in entry.managers}:
            values = [
                managed_keys.canonical_or_absent(entry.value) if entry and manager in entry.managers else "not set"
                for entry in entries
            ]
            if values[0] != values[1]:
                found.setdefault(manager, set()).add(leaf.name)
    return {manager: sorted(names) for manager, names in sorted(found.items())}
