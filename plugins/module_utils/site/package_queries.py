# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan of a host asks the package manager before it is complete, and which parts have no answer.

The callers run module package_transaction and plan the parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.package_query_timeouts import (
    LOCK_TIMEOUT,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import (
    Part,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.plan_of_all_parts import query, rejected_sources

# Runs module package_transaction with these options. Returns its result, or the text of its failure.
Run = Callable[[dict[str, Any]], "dict[str, Any] | str"]
# The options of a query that decide which repositories it reads.
_SOURCES = ("repositories", "archive_components", "module_streams", "files")


@dataclasses.dataclass(frozen=True)
class Known:
    """What is known from the package manager of a host."""

    # Its results by name: versions, streams, dependencies, hidden.
    answer: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Why the query of a part failed, by part.
    unanswered: dict[str, str] = dataclasses.field(default_factory=dict)
    # Sources of the driver whose repositories have no suitable version, with the reasons.
    rejected_sources: dict[str, str] = dataclasses.field(default_factory=dict)


def ask_all(
    parts: dict[str, Part],
    run: Run,
    replan: Callable[[Known], dict[str, Part]],
    has_conflict: Callable[[dict[str, Part], Known], bool],
) -> tuple[dict[str, Part], Known]:
    """Ask as long as a part has a query and no part has a conflict. Return the new plans and what is known then."""
    known = Known()
    question = None if has_conflict(parts, known) else query(parts)
    while question:
        known = ask(parts, run, known)
        parts = replan(known)
        if has_conflict(parts, known):
            break
        rejected = rejected_sources(parts)
        if rejected != known.rejected_sources:
            # The source has no suitable driver. The next one has other repositories.
            known = dataclasses.replace(known, answer={}, rejected_sources=rejected)
            parts = replan(known)
        # The distribution may have no suitable engine. Docker's repository is another question.
        asked, question = question, query(parts)
        question = None if question == asked else question
    return parts, known


def ask(parts: Mapping[str, Part], run: Run, known: Known) -> Known:
    """Ask for all parts at once. If that fails, ask each set of repositories alone."""
    answer = run(query(parts) or {})
    if not isinstance(answer, str):
        return dataclasses.replace(known, answer=_merged(known.answer, answer))
    groups = by_sources(parts)
    if len(groups) == 1:
        return dataclasses.replace(known, unanswered={**known.unanswered, **dict.fromkeys(groups[0], answer)})
    for group in groups:
        known = ask(group, run, known)
    return known


def by_sources(parts: Mapping[str, Part]) -> list[dict[str, Part]]:
    """Return the parts that have a query, in groups that ask the same repositories."""
    found: dict[str, dict[str, Part]] = {}
    for name, part in parts.items():
        if part.query:
            sources = repr([part.query.get(option) or None for option in _SOURCES])
            found.setdefault(sources, {})[name] = part
    return list(found.values())


def _merged(known: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers to two queries as one. The second query only has further packages."""
    names = ("versions", "streams", "dependencies", "hidden")
    return {name: {**(known.get(name) or {}), **(answer.get(name) or {})} for name in names}


def rehearsal(parts: Mapping[str, Part]) -> dict[str, Any] | None:
    """Return the options of module package_transaction that simulate all removals of the run, or None.

    They are simulated together before the first change, so that the last one cannot fail after the first one.
    """
    planned = (parts[name].removal for name in registry.removal_order() if name in parts and parts[name].acts)
    removals = [removal for removal in planned if removal]
    if not removals:
        return None
    return {"record": removals[0]["record"], "rehearse_removals": removals, "lock_timeout": LOCK_TIMEOUT}


def changes(parts: Mapping[str, Part]) -> list[dict[str, Any]]:
    """Return what each part would change, as module gpu_host_plan returns it."""
    return [
        {"part": name, "changes": part.changes, "reasons": part.reasons, "disruptions": plain(part.disruptions)}
        for name, part in parts.items()
    ]


def changes_of_failed(uid: int, parts: Mapping[str, Part], *, removals: bool) -> list[dict[str, Any]]:
    """Return what the parts without an error would change. Without root, the observation is incomplete.

    `removals`: whether packages can be removed.
    """
    if uid != 0:
        return []
    unknown = {name for name, part in parts.items() if part.errors or part.query or (part.removal and not removals)}
    return changes(
        {
            name: part
            for name, part in parts.items()
            if name not in unknown and unknown.isdisjoint(registry.BY_NAME[name].after)
        }
    )
