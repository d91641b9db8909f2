# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of the adoption of a prepared image: its report, and the packages that it has to hold. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption import allowed_on_image, report
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import (
    hold_support,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import variables as toolkit_request

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part, Values

_TOOLKIT = "nvidia_container_toolkit"


def result(
    host: Host,
    adoption: allowed_on_image.Adoption,
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
    has_no_work = outcomes.toolkit(parts).keeps_packages
    is_kept = has_no_work and request.state == "present" and request.source != "none"
    not_held = allowed_on_image.not_held(host, toolkit=is_kept and request.hold) if adoption.parts else []
    installs_plugin = site_plan.installs_versionlock(host, parts)
    hold = not_held if hold_support.can_hold(host) or installs_plugin else []
    plans = {name: report.AdoptionPart(part.changes, part.reasons) for name, part in parts.items()}
    if changes_before is not None:
        plans = {item["part"]: report.AdoptionPart(item["changes"], item["reasons"]) for item in changes_before}
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
        "install": [hold_support.VERSIONLOCK] if hold and installs_plugin else [],
    }
