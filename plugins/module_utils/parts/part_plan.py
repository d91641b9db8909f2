# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every part returns as its plan, and what the plans depend on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.package_query_timeouts import (
    LOCK_TIMEOUT,
    package_query,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step, disruptions, texts

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes

Values = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass
class Part:
    """What a part of the run does on the host, and why."""

    # What the role reads.
    plan: dict[str, Any] = dataclasses.field(default_factory=dict)
    acts: bool = False
    # Imperative texts, in the order of the steps. Empty if the part does nothing.
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    # Why the part cannot do its work. They prevent every change on the host.
    errors: list[str] = dataclasses.field(default_factory=list)
    # Options of module package_transaction that query the available versions before the part can be planned.
    query: dict[str, Any] | None = None
    # The options of module package_transaction that remove the packages of the part.
    removal: dict[str, Any] | None = None
    # The variable that the role sets when it has finished.
    report: dict[str, Any] | None = None
    has_secrets: bool = False
    # Whether the part removes what it has installed and written.
    removes: bool = False
    # Whether the role plans again at its turn, because an earlier part changes what it depends on.
    plans_again: bool = False
    # Whether check mode can only report the changes, because an earlier part has not changed the host.
    is_only_reported: bool = False
    # What the part does, if its plan consists of steps. The changes and the interruptions are derived from them.
    steps: tuple[Step, ...] = ()
    # Packages to install, as name or name=version.
    packages: tuple[str, ...] = ()
    # What the part tells the parts after it.
    outcome: (
        outcomes.DriverOutcome | outcomes.EngineOutcome | outcomes.PersistenceOutcome | outcomes.ToolkitOutcome | None
    ) = None
    # Whether packages of another vendor's driver change. What that interrupts is not known in all cases.
    changes_driver: bool = False
    # What the part interrupts on the host.
    disruptions: list[Disruption] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Context:
    """What the plan depends on."""

    host: Host
    # The user's variables by role, without the role's prefix.
    values: Values
    # The data of each role that depends on the platform: of `nvidia_driver` for this host's platform, or None, of the
    # other roles for all platforms.
    platforms: Mapping[str, Any]
    is_controller: bool = False
    # The answer of the package manager: available versions by package, streams by dnf module, dependencies by package.
    versions: dict[str, list[str]] | None = None
    streams: dict[str, Any] | None = None
    dependencies: dict[str, dict[str, str]] | None = None
    # The sources of the driver whose repositories have no suitable version, with the reasons.
    rejected_sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Whether the run drains the host before its first change, so that what now holds the devices ends before.
    drains: bool = False
    # Why the query of a part failed, by part.
    unanswered: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The GPU facts of this run. They are read only if the driver stays as it is.
    facts: dict[str, Any] | None = None
    # The GPU facts before a planned reload of the driver, with the settings that it drops.
    settings: dict[str, Any] | None = None
    # Returns the digest of the program that writes the CDI specification. The controller builds it only if needed.
    cdi_program: Callable[[], str | None] = lambda: None
    # Returns the digest of the program that writes the CDI specification of another vendor's accelerators, for options.
    accelerator_program: Callable[[dict[str, Any]], str] = str


class RolePlan(Protocol):
    """What the plans of most roles have in common."""

    acts: bool
    changes: list[str]
    reason: str
    problems: list[str]


class RoleRemoval(Protocol):
    """What the plans of most removals have in common. `record`: whether the role has installed packages."""

    acts: bool
    changes: list[str]
    reasons: list[str]
    problems: list[str]
    packages: list[str]
    record: bool


def interruptions(parts: Mapping[str, Part]) -> list[Disruption]:
    """Return what the plan of a host interrupts, in the order of the parts, each interruption once.

    Each has its `count` of workloads and their `names`, as far as they are known. Interruptions that a policy or the
    host forbids are in the list, too: their state is FORBIDDEN.
    """
    return list(dict.fromkeys(one for part in parts.values() if part.acts for one in part.disruptions))


def package_removal(
    record: str, packages: list[str], *, exists: bool, keep: Iterable[str] = (), together_with: Iterable[str] = ()
) -> dict[str, Any] | None:
    """Return the options of module package_transaction that remove packages, or None if there is no record."""
    if not exists:
        return None
    return {"record": record, "together_with": [*together_with], "remove": packages, "keep": [*keep]}


def of_role(role: str, result: RolePlan, download_timeout: int = LOCK_TIMEOUT) -> Part:
    """Return the part for the plan of a role, whose class may have further fields: `query`, `disruptions` ..."""
    query = getattr(result, "query", None)
    transaction = getattr(result, "transaction", None)
    return Part(
        plan=plain(result),
        acts=result.acts,
        changes=result.changes,
        reasons=[result.reason],
        errors=result.problems,
        query=package_query(role, query, download_timeout) if query and not result.problems else None,
        has_secrets=getattr(result, "has_secrets", False),
        packages=tuple(transaction.install) if transaction else (),
        steps=tuple(getattr(result, "steps", ())),
        disruptions=getattr(result, "disruptions", []),
    )


def of_steps(steps: Sequence[Step], **more: Any) -> Part:
    """Return the part that applies these steps. Its changes and its interruptions are derived from them.

    `more`: the other fields of the part. Its plan has the steps besides what `plan` contains.
    """
    plan = {**more.pop("plan", {}), "steps": plain(list(steps)), "changes": texts(steps)}
    return Part(
        plan=plan, acts=bool(steps), changes=texts(steps), disruptions=disruptions(steps), steps=tuple(steps), **more
    )


def of_removal(role: str, removal: RoleRemoval) -> Part:
    """Return the part for the removal of what a role has installed and written."""
    return Part(
        plan=plain(removal),
        acts=removal.acts,
        changes=removal.changes,
        reasons=removal.reasons,
        errors=removal.problems,
        removal=package_removal(role, removal.packages, exists=removal.record),
        steps=tuple(getattr(removal, "steps", ())),
        disruptions=getattr(removal, "disruptions", []),
        removes=True,
    )
