# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan returns to playbook site, and its short form for a host that needs nothing.

Ansible copies each result several times in its main process. It copies a text faster than the same observation as a
dictionary of thousands of values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.site import package_queries, registry, turns_of_parts

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part


def of_parts(parts: dict[str, Part], *, check_mode: bool) -> dict[str, Any]:
    """Return what playbook site needs to know about the parts."""
    return {
        "plan": {name: part.plan for name, part in parts.items()},
        "acting": [name for name, part in parts.items() if part.acts],
        "order": registry.order(),
        "apply": turns_of_parts.apply(parts, check_mode=check_mode),
        "removed_first": turns_of_parts.removed_first(parts),
        "changes": package_queries.changes(parts),
        "reports": {f"{name}_report": part.report for name, part in parts.items() if part.report},
        "has_secrets": any(part.has_secrets for part in parts.values()),
    }


def shortened(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result with the observation as text, and without the plan, which changes nothing."""
    rest = {name: value for name, value in result.items() if name not in ("host", "plan")}
    return {**rest, "host_text": json.dumps(result["host"])}


def host(result: Mapping[str, Any]) -> Any:
    """Return the observation in the result of a plan."""
    return result["host"] if "host" in result else json.loads(result["host_text"])
