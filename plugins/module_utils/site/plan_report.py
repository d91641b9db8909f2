# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report the plans of a fleet as data. Pure functions of the results of gpu_host_plan. The text is in plan_text.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import leftovers
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part

STATES = ("converged", "changes", "failed", "unreachable")


def report(results: Mapping[str, Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    """Return an entry per host, from the results of module gpu_host_plan by host. None stands for an unreachable host.

    Each entry has `host`, `state` (one of STATES), `errors`, and `changes`, a list of `part`, `changes`, `reasons`,
    `disruptions`. It has `notes` if there are any.
    """
    return [_entry(host, result) for host, result in results.items()]


def collected(failed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a failed plan as that of a task that succeeds and reports the errors."""
    return {**failed, "failed": False, "changed": False, "errors": failed.get("errors") or [failed["msg"]]}


def _entry(host: str, result: Mapping[str, Any] | None) -> dict[str, Any]:
    if result is None or result.get("unreachable"):
        return {"host": host, "state": "unreachable", "errors": [], "changes": []}
    notes = {"notes": list(result["notes"])} if result.get("notes") else {}
    if result.get("failed") or result.get("errors"):
        errors = list(result.get("errors") or [result.get("msg")])
        return {"host": host, "state": "failed", "errors": errors, **notes, "changes": list(result.get("changes", []))}
    changes = [dict(part) for part in result["changes"]]
    state = "changes" if any(part["changes"] for part in changes) else "converged"
    return {"host": host, "state": state, "errors": [], **notes, "changes": changes}


def leftover_notes(host: Host, parts: Mapping[str, Part]) -> list[str]:
    """Return what nvidia-docker left on the host. A part that migrates the host names it in its own changes."""
    if "nvidia_container_toolkit" not in parts or outcomes.toolkit(parts).migrates:
        return []
    return [f"{capitalized(text)}." for text in leftovers.notes(host)]
