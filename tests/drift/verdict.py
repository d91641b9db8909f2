# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a run: it changed what its plan predicted, and nothing else. Pure functions of the record of the run."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record
from ansible_collections.gpufleet.hosts.tests.drift.items import (
    Item,
    is_intact,
    is_unknown,
    may_name,
    names,
    without_items,
)

_COLLECTION = "gpufleet.hosts."
# Tasks of the playbook that change the host without a role.
_PART_OF_ACTION = {f"{_COLLECTION}nvidia_driver_volume": "driver_volume"}
_RECORD = re.compile(rf"files\.{re.escape(owned.STATE_DIRECTORY)}/\w+\.json\.content")
_DAEMON_RECORD = record.state_path(owned.STATE_DIRECTORY, owned.DAEMON_JSON)
# The dotted names of values that differ after every repair: times, processes, sizes of links, and the value that an
# option had before the repair, which `state: absent` restores.
_VOLATILE = (
    f"files.{_DAEMON_RECORD}.content.entries.*.previous",
    "services.*.active_since_us",
    "holders.*.pid",
    "accelerators.nvidia.driver.in_use",
    "driver_volume.volume.hard_linked_bytes",
    "driver_volume.volume.copied_bytes",
)


@dataclasses.dataclass
class Run:
    """A run of ansible-playbook on one host: the entries of callback drift_record."""

    entries: list[dict[str, Any]]
    seconds: float = 0.0

    @property
    def plan(self) -> dict[str, Any]:
        """Return the first plan, with the observation of the host before all changes."""
        return next(entry["plan"] for entry in self.entries if "plan" in entry)

    @property
    def predicted(self) -> dict[str, list[str]]:
        """Return the predicted changes by part, without parts that change nothing."""
        return predicted(self.plan["changes"])

    @property
    def changed(self) -> dict[str, list[str]]:
        """Return the names of the changed tasks by part."""
        found: dict[str, list[str]] = {}
        for entry in self.entries:
            if entry["result"] == "changed":
                found.setdefault(part_of(entry), []).append(entry["task"].rpartition(" : ")[2])
        return found


def predicted(changes: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the changes of a plan by part, without parts that change nothing."""
    return {part["part"]: list(part["changes"]) for part in changes if part["changes"]}


def part_of(entry: Mapping[str, Any]) -> str:
    """Return the part of the run that a changed task belongs to, or the name of the task."""
    role, colon, _name = entry["task"].partition(" : ")
    if colon and role.startswith(_COLLECTION):
        return role[len(_COLLECTION) :]
    return _PART_OF_ACTION.get(entry["action"], entry["task"])


def broken(known: Iterable[Item], host: Mapping[str, Any], converged: Mapping[str, Any]) -> set[Item]:
    """Return the items that differ from the converged host, as far as the observation tells."""
    return {item for item in known if not is_intact(item, host, converged) and not is_unknown(item, host, converged)}


def prediction_faults(
    run: Run, known: Collection[Item], gone: Collection[Item], converged: Mapping[str, Any]
) -> list[str]:
    """Compare the first plan of a run with the items that were missing, and with the changed tasks."""
    texts, host = run.predicted, run.plan["host"]
    named = {item for item in known for text in texts.get(item.part, []) if names(item, text)}
    surplus = sorted(item for item in named - set(gone) if not is_unknown(item, host, converged))
    faults = [f"predicts a change of {item}, which is in place" for item in surplus]
    faults += [
        f"does not predict the repair of {item}"
        for item in sorted(set(gone) - named)
        if not any(may_name(item, text) for text in texts.get(item.part, []))
    ]
    faults += [
        f"predicts '{text}' ({part}), which names no known item. Add it to tests/drift/items.py"
        for part, changes in texts.items()
        for text in changes
        if without_items(text, known)
    ]
    changed = run.changed
    faults += [f"predicts changes of {part}, but changes none: {texts[part]}" for part in texts if part not in changed]
    faults += [
        f"changes {part} without a prediction, in tasks {tasks}" for part, tasks in changed.items() if part not in texts
    ]
    failed = [entry["task"] for entry in run.entries if entry["result"] == "failed"]
    return faults + [f"has a failed task: {task}" for task in failed]


def drift_faults(targets: Collection[Item], others: Collection[str], gone: Collection[Item]) -> list[str]:
    """Check that the test broke each item, and with them only items of the kinds in `others`."""
    faults = [f"the host shows no drift of {item}" for item in targets if item not in gone]
    extra = sorted(item for item in set(gone) - {*targets} if item.kind not in others)
    return faults + ([f"{', '.join(map(str, extra))} drifted, too"] if extra else [])


def unchanged_faults(run: Run) -> list[str]:
    """Check a run on a converged host."""
    faults = [f"the next run changes {part} in tasks {tasks}" for part, tasks in run.changed.items()]
    acting = run.plan["acting"]
    return faults + ([f"the next run acts on {', '.join(acting)}"] if acting else [])


def differences(before: Any, after: Any, place: str = "", may_own: Collection[str] = ()) -> list[str]:
    """Return the differences of two observations, except volatile values.

    A role owns the packages that it has installed again: those of `may_own` may be new in its record.
    """
    if _is_volatile(place):
        return []
    if place == f"files.{_DAEMON_RECORD}.content":
        before, after = (_without_times(text) for text in (before, after))
    elif _RECORD.fullmatch(place):
        before, after = (json.loads(text) if text else {} for text in (before, after))
        known = before.get("packages", [])
        names = after.get("packages", [])
        after |= {"packages": [name for name in names if name in known or name not in may_own]} if names else {}
    elif place == f"files.{owned.DAEMON_JSON}.content":
        # The keys of an object have no order. A key that is written again comes last.
        before, after = (json.loads(text) if text else text for text in (before, after))
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = sorted({*before, *after})
        return [
            text
            for key in keys
            for text in differences(before.get(key), after.get(key), f"{place}.{key}" if place else key, may_own)
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after))
        return [text for index, (one, two) in pairs for text in differences(one, two, f"{place}.{index}", may_own)]
    return [] if before == after else [f"{place} was {_shown(before)} and is {_shown(after)}"]


def _is_volatile(place: str) -> bool:
    for pattern in _VOLATILE:
        head, star, tail = pattern.partition("*")
        if place == pattern or (star and place.startswith(head) and place.endswith(tail)):
            return True
    return False


def _without_times(text: str | None) -> Any:
    return {**json.loads(text), "written": None} if text else text


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"
