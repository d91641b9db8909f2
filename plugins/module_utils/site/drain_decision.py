# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run drains the host before it interrupts GPU work, and how. Pure functions of the plan.

A drain of an earlier run that failed is ended by the next successful run, also if that run changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import disruptions, owned, variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.option_limits import LONGEST_DRAIN
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError, plain, variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import interruptions
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload import drain_of_another_owner
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload import drain_record as workload_record
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_options import OPTIONS

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.site.plan_of_all_parts import Part

NONE, KUBERNETES = "none", "kubernetes"
PREFIX = "site_drain"


@dataclasses.dataclass(frozen=True)
class SiteDrainRequest:
    """The user's variables, without the prefix."""

    adapter: str = variable(NONE, choices=tuple(OPTIONS))
    options: dict[str, Any] = variable({}, form="", sample="{units: [inference.service]}")
    owner: str = variable("gpufleet")
    timeout: int = variable(3600, minimum=1, maximum=LONGEST_DRAIN)
    delegate: str = variable("")


@dataclasses.dataclass(frozen=True)
class SiteDrain:
    """A drain, without the options of the adapter, which can have secrets.

    `begins`: the host is drained before the first change. Otherwise the run only ends an earlier drain.
    """

    adapter: str
    owner: str
    reason: str
    timeout: int
    begins: bool
    # The inventory host on which module gpu_workload runs. Empty: the host itself.
    delegate: str = ""


def read(values: Mapping[str, Any]) -> SiteDrainRequest:
    """Return the user's variables, converted and checked."""
    request = variable_fields.read(SiteDrainRequest, PREFIX, values)
    if request.delegate and request.adapter != KUBERNETES:
        raise VariableError(
            f"{PREFIX}_delegate is {request.delegate}, but adapter {request.adapter} drains the host itself. Only "
            f"adapter {KUBERNETES} can run on another machine. Remove the variable."
        )
    if request.adapter != NONE:
        _check_options(request)
    elif request.options:
        raise VariableError(f"{PREFIX}_options is set, but {PREFIX}_adapter is none. Set the adapter, too.")
    return request


def given(names: Container[str], value: Callable[[str], Any], errors: list[str]) -> dict[str, Any]:
    """Return the variables that the user has set. `value` returns one. Add what is invalid to `errors`."""
    full = {name: f"{PREFIX}_{name}" for name in variable_fields.table(SiteDrainRequest)}
    found = {name: value(variable_) for name, variable_ in full.items() if variable_ in names}
    try:
        read(found)
    except VariableError as error:
        errors.append(str(error))
    return found


def precedes(values: Mapping[str, Any]) -> bool:
    """Return whether a run with these variables drains a host before it interrupts GPU work."""
    return str(values.get("adapter") or NONE).strip() != NONE


def _check_options(request: SiteDrainRequest) -> None:
    known = OPTIONS[request.adapter]
    unknown = sorted(set(map(str, request.options)) - set(known))
    missing = [name for name, rule in known.items() if rule.get("required") and not request.options.get(name)]
    if unknown or missing:
        what = f"has the unknown option {unknown[0]}" if unknown else f"lacks the option {missing[0]}"
        names = ", ".join(known) or "none"
        raise VariableError(f"{PREFIX}_options {what} for adapter {request.adapter}. Its options: {names}.")
    wrong = ArgumentSpecValidator(known).validate(dict(request.options)).error_messages
    if wrong:
        raise VariableError(f"{PREFIX}_options cannot be used with adapter {request.adapter}: {'; '.join(wrong)}")


def plan(
    request: SiteDrainRequest,
    found: Iterable[disruptions.Disruption],
    files: Mapping[str, Mapping[str, Any]],
    *,
    replaces_driver: bool = False,
) -> SiteDrain | None:
    """Return the drain of a run, None if it needs none.

    `replaces_driver`: the packages of a vendor's driver change. Not all that they interrupt can be predicted: NVIDIA's
    may need a reboot, and other vendors do not publish what the scripts of theirs do.
    """
    if request.adapter == NONE:
        return None
    kinds = [one.title() for one in found if one.state != disruptions.FORBIDDEN]
    kinds += ["new driver"] if replaces_driver and not kinds else []
    kept = earlier(files)
    is_ours = kept is not None and (kept.owner, kept.adapter) == (request.owner, request.adapter)
    if not kinds and not is_ours:
        return None
    problem = drain_of_another_owner.problem(kept, request.adapter, request.owner, prefix=PREFIX)
    if problem:
        raise VariableError(problem)
    reason = ", ".join(dict.fromkeys(kinds)) or "maintenance"
    return SiteDrain(
        request.adapter, request.owner, reason, request.timeout, begins=bool(kinds), delegate=request.delegate
    )


def earlier(files: Mapping[str, Mapping[str, Any]]) -> workload_record.WorkloadRecord | None:
    """Return the drain that a run left on the host."""
    text = (files.get(owned.DRAIN_RECORD) or {}).get("content")
    return workload_record.parse(text) if text else None


def notes(request: SiteDrainRequest, drain: SiteDrain | None, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what the user must know: what is drained for how long, and a drain that this run does not end."""
    kept = earlier(files)
    if drain is not None and drain.begins:
        return [
            f"Before the first change, adapter {drain.adapter} drains the host ({drain.reason}) and waits for its "
            f"work, for at most {drain.timeout} seconds."
        ]
    if drain is not None:
        return [f"The run ends the drain of an earlier run with adapter {drain.adapter}."]
    if kept is not None:
        failed = f" after this failed: {kept.failed_step}" if kept.failed_step else ""
        return [
            f"{kept.owner} drained this host with adapter {kept.adapter}{failed}. This run does not end the drain: "
            f"{PREFIX}_adapter is {request.adapter}, {PREFIX}_owner is {request.owner}."
        ]
    return []


def of_run(
    values: Mapping[str, Any], parts: Mapping[str, Part], files: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the drain of a run for its tasks, and its notes."""
    request = read(values)
    nvidia = "nvidia_driver" in parts and parts["nvidia_driver"].acts and outcomes.driver(parts).installs
    replaces = nvidia or any(part.acts and part.changes_driver for part in parts.values())
    drain = plan(request, interruptions(parts), files, replaces_driver=replaces)
    return (None if drain is None else plain(drain)), notes(request, drain, files)
