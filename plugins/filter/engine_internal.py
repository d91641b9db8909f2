# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of role container_engine. They can change in any release."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variables import VariableError, plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import plan as engine_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import request as engine_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.rollback_report import report


def plan(host: dict[str, Any], request: dict[str, Any], platforms: dict[str, Any]) -> dict[str, Any]:
    """Return the changes that install and configure the engine, and the reason."""
    try:
        wanted = engine_request.read(request)
    except VariableError as error:
        raise AnsibleFilterError(str(error)) from None  # the cause may contain a password
    return plain(engine_plan.plan(host, wanted, platforms))


def apply_plan(
    pending: dict[str, list[str]],
    config: dict[str, Any],
    info: dict[str, Any] | None = None,
    policy: str = "when_safe",
) -> dict[str, Any]:
    """Decide between a reload and a restart of Docker's daemon."""
    return plain(engine_plan.apply_plan(pending, info, config, policy))


def rollback_report(
    journal: str,
    failure: str,
    config: dict[str, Any],
    undone: dict[str, Any],
    *,
    was_restarted: bool,
    is_up: bool,
    applied: dict[str, Any] | None = None,
) -> str:
    """Return why Docker's daemon did not apply its options."""
    return report(journal, failure, config, undone, applied or {}, was_restarted=was_restarted, is_up=is_up)


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {
            "_engine_apply_plan": apply_plan,
            "_engine_plan": plan,
            "_engine_rollback_report": rollback_report,
        }
