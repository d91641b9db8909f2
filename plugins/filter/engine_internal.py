# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of role container_engine."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import daemon_restart
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.rollback_report import report


def apply_plan(
    pending: dict[str, list[str]],
    config: dict[str, Any],
    info: dict[str, Any] | None = None,
    policy: str = "when_safe",
) -> dict[str, Any]:
    """Decide between a reload and a restart of Docker's daemon."""
    return plain(daemon_restart.apply_plan(pending, info, config, policy))


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
            "_engine_rollback_report": rollback_report,
        }
