# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of playbook dlami returns: the report as text and table, and the packages to hold. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption import (
    allowed_on_image,
    holds_of_image_packages,
    report,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import (
    hold_support,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part, Values


def result(
    host: Host,
    adoption: allowed_on_image.Adoption,
    parts: Mapping[str, Part],
    values: Values,
    *,
    installs_plugin: bool,
    requested_kind: str,
    changes_before: Sequence[Mapping[str, Any]] | None,
    held_before: Sequence[str] | None,
) -> dict[str, Any]:
    """Return the report, and which packages the playbook still has to hold.

    `installs_plugin`: a part of the plan installs the plugin without which dnf cannot hold packages.
    `changes_before` and `held_before`: what this run has carried out, or None before it has changed anything.
    """
    is_toolkit_held = holds_of_image_packages.holds_toolkit(parts, values)
    not_held = holds_of_image_packages.not_held(host, toolkit=is_toolkit_held) if adoption.parts else []
    hold = holds_of_image_packages.to_hold(host, not_held, installs_plugin=installs_plugin)
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
