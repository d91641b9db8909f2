# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put cases that do not disturb each other into one run, and the runs into shards. Pure functions.

A run costs the same for one broken item and for ten. The checks stay per item: each must be missing, predicted by name
and repaired. A batch has items of one part only, so that a change of another part is a change without a prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.gpufleet.hosts.tests.drift.ways import Case

# These kinds are broken one at a time: a module or a build takes others with it, and a restart for one option, service
# or volume would repair another one that the role forgot.
_ALONE = ("build", "module", "option", "service", "volume", "registration")
# The shards: each is a scenario with a host of its own. What is in no list belongs to the last one.
SHARDS: dict[str, tuple[str, ...]] = {"packages": ("package", "build", "module"), "settings": ()}


def batches(cases: Iterable[Case], removals: Mapping[str, Iterable[str]]) -> list[list[Case]]:
    """Return the cases in batches, each of one part, kind and way. An item is in a batch at most once.

    `removals` has the packages that are removed with a package. No package of a batch removes another one of it.
    """
    found: dict[tuple[str, ...], list[list[Case]]] = {}
    for case in cases:
        key = (case.item.part, case.item.kind, case.way)
        found.setdefault(key, [])
        fitting = (batch for batch in found[key] if _fits(case, batch, removals))
        batch = None if case.item.kind in _ALONE else next(fitting, None)
        if batch is None:
            found[key].append([case])
        else:
            batch.append(case)
    return [batch for group in found.values() for batch in group]


def _fits(case: Case, batch: Iterable[Case], removals: Mapping[str, Iterable[str]]) -> bool:
    name = case.item.name
    pairs = [pair for other in batch for pair in ((name, other.item.name), (other.item.name, name))]
    return not any(one == other or other in removals.get(one, ()) for one, other in pairs)


def shard_of(case: Case) -> str:
    """Return the shard of a case."""
    return next((name for name, kinds in SHARDS.items() if case.item.kind in kinds), [*SHARDS][-1])


def shard(cases: Iterable[Case], name: str) -> list[Case]:
    """Return the cases of a shard, or all for an empty name."""
    return [case for case in cases if name in ("", shard_of(case))]


def title(batch: Iterable[Case]) -> str:
    """Return kind, names and way of the cases of a batch."""
    cases = list(batch)
    return f"{cases[0].item.kind} {', '.join(case.item.name for case in cases)} {cases[0].way}"
