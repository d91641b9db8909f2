# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record on the host: the keys that each manager set in daemon.json, the replaced values, pending changes."""

from __future__ import annotations

import json
import os
import typing as t
from urllib.parse import quote

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import managed_keys
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import (
    ABSENT,
    Leaf,
    ManagedEntry,
    ManagedRecord,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.secret_masking import (
    masked,
    masked_file,
    masked_tree,
)

DEFAULT_STATE_DIRECTORY = owned.STATE_DIRECTORY


class State(t.NamedTuple):
    """The content of the record of one daemon.json.

    `original` is the text before the first change, None if there was no file. `written` describes the last change: its
    time (microseconds of the monotonic clock), the boot, the keys that need a reload or restart, and in `former` the
    text and the record that `state=undone` restores.
    """

    record: ManagedRecord
    original: str | None = None
    made_directory: bool = False
    written: dict[str, t.Any] | None = None


def state_path(state_directory: str, path: str) -> str:
    """Return the path of the record of the configuration file `path`."""
    return os.path.join(state_directory, owned.DAEMON_JSON_RECORDS, quote(path, safe="") + ".json")


def load_state(text: str | None, path: str) -> State:
    """Parse the text of a record."""
    if text is None:
        return State(managed_keys.EMPTY_RECORD)
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
        entries = {
            Leaf(_path(item["path"]), _text_or_none(item.get("item"))): ManagedEntry(
                item.get("value", ABSENT), item.get("previous", ABSENT), _texts(item["managers"])
            )
            for item in data["entries"]
        }
        containers = frozenset(_path(item) for item in data["containers"])
        original, made = _text_or_none(data["original"]), _of(bool, data["made_directory"])
        return State(ManagedRecord(entries, containers), original, made, _written(data["written"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DaemonConfigError(
            f"{path}: the record of the keys set in daemon.json cannot be read: {error!r}. Remove this file. The keys "
            "then stay in daemon.json until you remove them by hand."
        ) from error


def _refuse_constant(name: str) -> t.Any:
    raise ValueError(f"{name} is not valid JSON")


def _of(kind: type, value: t.Any) -> t.Any:
    """Return the value if it has the type that the module writes."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{managed_keys.shown(value)[:60]} is not of type {kind.__name__}")
    return value


def _text_or_none(value: t.Any) -> str | None:
    return None if value is None else _of(str, value)


def _texts(value: t.Any) -> tuple[str, ...]:
    return tuple(_of(str, item) for item in _of(list, value))


def _path(value: t.Any) -> tuple[str, ...]:
    if not value:
        raise ValueError("a path without keys")
    return _texts(value)


def _written(value: t.Any) -> dict[str, t.Any] | None:
    if value is None:
        return None
    former = _of(dict, value).get("former")
    if former is not None:
        former = {
            "text": _text_or_none(_of(dict, former)["text"]),
            "after": _text_or_none(former["after"]),
            "state": _of(dict, former["state"]),
        }
    return {
        "at": _of(int, value["at"]),
        "boot_id": _of(str, value["boot_id"]),
        "reload": list(_texts(value["reload"])),
        "restart": list(_texts(value["restart"])),
        **({"former": former} if "former" in value else {}),
    }


def dump_state(state: State) -> str:
    """Return the text of a record."""
    entries = []
    for leaf, entry in sorted(state.record.entries.items(), key=lambda pair: (pair[0].path, pair[0].item or "")):
        item: dict[str, t.Any] = {"path": list(leaf.path), "managers": list(entry.managers)}
        if leaf.item is not None:
            item["item"] = leaf.item
        if entry.value is not ABSENT:
            item["value"] = entry.value
        if entry.previous is not ABSENT:
            item["previous"] = entry.previous
        entries.append(item)
    data = {
        "entries": entries,
        "containers": sorted(list(path) for path in state.record.containers),
        "original": state.original,
        "made_directory": state.made_directory,
        "written": state.written,
    }
    return managed_keys.encodable(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def masked_record(text: str, path: str) -> str:
    """Mask the text of a record. The values in it are not next to their keys, so `masked_file` would miss some."""
    try:
        state = load_state(text, path)
    except DaemonConfigError:
        return masked_file(text)
    entries = {
        leaf._replace(item=None if leaf.item is None else masked(leaf.item)): entry._replace(
            value=masked_tree(entry.value, leaf.path[-1]), previous=masked_tree(entry.previous, leaf.path[-1])
        )
        for leaf, entry in state.record.entries.items()
    }
    original = None if state.original is None else masked_file(state.original)
    written = {**state.written, "former": None} if state.written else None
    record = state.record._replace(entries=entries)
    return dump_state(state._replace(record=record, original=original, written=written))


def owned_keys(record: ManagedRecord, manager: str) -> list[str]:
    """Return the dotted names of the options that belong to `manager`."""
    return sorted({leaf.name for leaf, entry in record.entries.items() if manager in entry.managers})


def taken_over_keys(before: ManagedRecord, after: ManagedRecord) -> list[str]:
    """Return the options in which a change replaced or removed a value that this module had not set."""
    found = set()
    for leaf, entry in after.entries.items():
        known = before.entries.get(leaf)
        if entry.previous is not ABSENT and (known is None or known.previous != entry.previous):
            found.add(leaf.name)
    return sorted(found)
