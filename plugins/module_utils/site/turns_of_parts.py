# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How playbook `site` applies the plans of a host. Pure functions of the plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry

# The plan is applied as it is; the role plans again at its turn; check mode only reports the changes.
PLANNED, AGAIN, REPORTED = "planned", "again", "reported"


def apply(parts: Mapping[str, Part], *, check_mode: bool) -> dict[str, str]:
    """Return how each acting part is applied, by name."""
    return {name: _how(part, check_mode=check_mode) for name, part in parts.items() if part.acts}


def _how(part: Part, *, check_mode: bool) -> str:
    if check_mode:
        return REPORTED if part.is_only_reported else PLANNED
    return AGAIN if part.plans_again else PLANNED


def removed_first(parts: Mapping[str, Part]) -> list[str]:
    """Return the parts whose removal comes before the changes of all other parts."""
    return [name for name, part in parts.items() if part.removes and registry.BY_NAME[name].removed_first]


def turns(order: Sequence[Mapping[str, Any]], plans: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the turns of `order` in which at least one host acts. `plans`: the results of gpu_host_plan of all hosts.

    All hosts get the same list, because Ansible keeps their tasks in step. A turn in which no host acts would only be
    shown as skipped.
    """
    return [turn for turn in order if any(task_file(turn, plan) for plan in plans)]


def task_file(turn: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Return the file with the tasks of a host in its turn, or an empty text if the host does not act."""
    how = plan["apply"].get(turn["part"])
    if how is None:
        return ""
    if how == REPORTED:
        return "turn_only_reports.yml" if plan["plan"][turn["part"]].get("changes") else ""
    if not turn["role"]:
        return f"parts/{turn['part']}.yml"
    return "turn_runs_role.yml" if turn["removal"] == (turn["part"] in plan["removed_first"]) else ""
