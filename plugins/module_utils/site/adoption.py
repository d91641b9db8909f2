# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the adoption of a prepared image, and what its report says. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption import image, report
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import request as toolkit_request

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.site.plan import Context, Part, Values

_DRIVER, _TOOLKIT = "nvidia_driver", "nvidia_container_toolkit"


def plan(context: Context, selected: Collection[str]) -> dict[str, Part]:
    """Return the plans of the selected parts. If one of them installs dnf's plugin, the adopted driver is held, too."""
    parts = site_plan.plan(context, selected)
    driver = parts.get(_DRIVER)
    if driver is None or driver.plan.get("action") != "adopt" or not _installs_plugin(context.host, parts):
        return parts
    with_plugin = dataclasses.replace(context, host=image.with_versionlock(context.host))
    driver = site_plan.plan(with_plugin, [_DRIVER])[_DRIVER]
    todo = driver.plan["todo"]
    if todo["transaction"]["hold"] or todo["transaction"]["release"]:
        # The role of the driver runs first, so it installs the plugin, as for a driver that it installs itself.
        needs = [image.VERSIONLOCK]
        driver.plan = {**driver.plan, "hold_needs": needs, "todo": {**todo, "prerequisites": needs}}
    return {**parts, _DRIVER: driver}


def result(
    host: Host,
    adoption: image.Adoption,
    parts: Mapping[str, Part],
    values: Values,
    *,
    requested_kind: str,
    changes_before: Sequence[Mapping[str, Any]] | None,
    held_before: Sequence[str] | None,
) -> dict[str, Any]:
    """Return the report, and which packages the playbook still has to hold.

    `changes_before` and `held_before`: what this run has carried out, or None before it has changed anything.
    """
    request = toolkit_request.read(values.get(_TOOLKIT) or {})
    # A transaction of the role holds what it installs.
    has_no_work = _TOOLKIT in parts and parts[_TOOLKIT].plan.get("transaction", {}) is None
    is_kept = has_no_work and request.state == "present" and request.source != "none"
    not_held = image.not_held(host, toolkit=is_kept and request.hold) if adoption.parts else []
    installs_plugin = _installs_plugin(host, parts)
    hold = not_held if image.can_hold(host) or installs_plugin else []
    plans = {name: report.Part(part.changes, part.reasons) for name, part in parts.items()}
    if changes_before is not None:
        plans = {item["part"]: report.Part(item["changes"], item["reasons"]) for item in changes_before}
    found = report.build(
        host,
        adoption,
        plans,
        hold if held_before is None else held_before,
        not_held=[] if hold else not_held,
        requested_kind=requested_kind,
    )
    return {
        "report": found,
        "text": report.text(found),
        "is_written": report.is_written(host, found),
        "table": report.table(found),
        "hold": hold,
        "install": [image.VERSIONLOCK] if hold and installs_plugin else [],
    }


def _installs_plugin(host: Host, parts: Mapping[str, Part]) -> bool:
    """Return whether a part installs the plugin without which dnf cannot hold packages."""
    if image.can_hold(host):
        return False
    return any(
        image.VERSIONLOCK
        in [
            *(part.plan.get("transaction") or {}).get("install", []),
            *(part.plan.get("todo") or {}).get("prerequisites", []),
        ]
        for part in parts.values()
    )
