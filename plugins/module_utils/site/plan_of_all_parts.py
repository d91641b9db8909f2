# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan all parts of a run for one host. Pure functions of its observation and of the user's variables.

A part is a role, or a step of playbook `site`. `registry.py` lists their declarations, which have the functions that
return the plans.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import is_driver_wanted
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vendor_names
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import (
    hold_support,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part, Values
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.registry import BY_NAME

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def plan(context: Context, parts: Collection[str]) -> dict[str, Part]:
    """Return the plans of the selected parts by name, in the order in which they act."""
    found: dict[str, Part] = {}
    for name in (name for name in BY_NAME if name in parts):
        planner = BY_NAME[name].plan
        if name in context.unanswered:
            found[name] = _unanswered(planner, context, found, context.unanswered[name])
        else:
            found[name] = planner(context, found)
    if outcomes.driver(found).adopts and "nvidia_driver" not in context.unanswered:
        _hold_adopted_driver(context, found)
    return found


def _unanswered(planner: Planner, context: Context, parts: Mapping[str, Part], error: str) -> Part:
    """Return a part whose query failed. Parts that depend on it are planned as if it had not been asked yet."""
    part = planner(dataclasses.replace(context, versions=None, streams=None, dependencies=None), parts)
    return dataclasses.replace(part, changes=[], reasons=[], errors=[error], query=None, report=None, disruptions=[])


def _hold_adopted_driver(context: Context, parts: dict[str, Part]) -> None:
    """Hold the packages of the adopted driver if another part installs dnf's plugin for holds."""
    if not installs_versionlock(context.host, parts):
        return
    with_plugin = dataclasses.replace(context, host=hold_support.with_versionlock(context.host))
    driver = BY_NAME["nvidia_driver"].plan(with_plugin, {})
    todo = driver.plan["todo"]
    if todo["transaction"]["hold"] or todo["transaction"]["release"]:
        # The role of the driver runs first, so it installs the plugin, as for a driver that it installs itself.
        needs = [hold_support.VERSIONLOCK]
        driver.plan = {**driver.plan, "hold_needs": needs, "todo": {**todo, "prerequisites": needs}}
    parts["nvidia_driver"] = driver


def installs_versionlock(host: Host, parts: Mapping[str, Part]) -> bool:
    """Return whether a part installs the plugin without which dnf cannot hold packages."""
    if hold_support.can_hold(host):
        return False
    return any(hold_support.VERSIONLOCK in part.packages for part in parts.values())


def needs_facts(host: Host, values: Values, parts: Mapping[str, Part]) -> bool:
    """Return whether the plan depends on the GPU facts. A driver that is to be loaded makes them worthless."""
    loaded = vendor_names.nvidia_driver(host)["loaded"]
    if not is_driver_wanted(host, values) or outcomes.driver(parts).changes(loaded):
        return False
    return (any(BY_NAME[name].needs_facts for name in parts) and bool(loaded)) or (
        "verify" in parts and driver_request.read(values["nvidia_driver"]).activate
    )


def reloads_driver(parts: Mapping[str, Part]) -> bool:
    """Return whether the run reloads the driver, so that the plan depends on the settings of the GPUs."""
    return outcomes.driver(parts).reloads


def can_need_facts(parts: Iterable[str]) -> bool:
    """Return whether a plan of these parts can depend on the GPU facts."""
    return any(name == "verify" or BY_NAME[name].needs_facts for name in parts)


def query(parts: Mapping[str, Part]) -> dict[str, Any] | None:
    """Return the options of one query for all parts."""
    wanted = [part.query for part in parts.values() if part.query]
    if not wanted:
        return None
    merged = dict(wanted[0])
    for options in wanted[1:]:
        for name, value in options.items():
            if isinstance(value, list):
                known = merged.get(name) or []
                merged[name] = [*known, *(item for item in value if item not in known)]
    for name in ("lock_timeout", "download_timeout"):
        merged[name] = max(options.get(name, 0) for options in wanted)
    return merged


def rejected_sources(parts: Mapping[str, Part]) -> Mapping[str, str]:
    """Return the sources of the driver that have no suitable version. The next source needs another query."""
    return outcomes.driver(parts).rejected_sources


def errors(host: Host, parts: Mapping[str, Part], requires_root: bool) -> list[str]:
    """Return what prevents the run, each cause once."""
    found = [error for part in parts.values() for error in part.errors]
    if requires_root and host["uid"] != 0:
        found.insert(0, needs_root(host["uid"]))
    return list(dict.fromkeys(found))
