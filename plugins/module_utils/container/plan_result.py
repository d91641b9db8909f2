# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of the plan that module gpu_container returns for its action plugin, and the error without a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import engine_module_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Assignment


def existence(
    summary: dict[str, Any], exists: bool, is_running: bool, state: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the container before and after a task, as far as a stopped engine shows it. `state`: the option."""
    before = {**summary, "exists": exists, "running": is_running}
    running = {"started": True, "present": is_running}.get(state, False)
    return before, {**before, "exists": state != "absent", "running": running}


def build_plan(
    *,
    engine: str,
    name: str,
    module_args: dict[str, Any],
    assignment: Assignment,
    before: dict[str, Any],
    after: dict[str, Any],
    container_id: str | None,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Build the plan that the action plugin executes."""
    return {
        "engine": engine,
        "module": engine_module_options.MODULES[engine],
        "module_args": module_args,
        "nothing_to_do": False,
        "predicted": False,
        "gpu_changed": False,
        "image_id": None,
        "container_id": container_id,
        "driver_volume": None,
        "token": None,
        "gpu_diff": {"before": before, "after": after},
        "gpu_assignment": {
            "uuids": assignment.uuids,
            "indexes": assignment.indexes,
            "isolation": assignment.isolation,
            "engine": engine,
            "exclusive": assignment.exclusive,
            "reason": assignment.reason,
            "changes": [],
            # Ansible prints warnings apart from their task, so each warning names its container.
            "warnings": [f"container {name}: {text}" for text in (*warnings, *assignment.warnings)],
        },
    }


class PlanError(Exception):
    """A request that cannot be planned because of its name or its image."""
