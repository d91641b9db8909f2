# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_rollback_report
short_description: Report why Docker's daemon did not apply its options
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description: Internal filter of role P(gpufleet.hosts.container_engine#role).
positional: _input
options:
  _input:
    description: The daemon's journal since the change.
    type: str
    required: true
  failure:
    description: The error of the failed task. It is reported if the journal contains no error.
    type: str
    required: true
  config:
    description: Result of M(gpufleet.hosts.docker_daemon_config) for the change.
    type: dict
    required: true
  undone:
    description: Result of M(gpufleet.hosts.docker_daemon_config) for the rollback.
    type: dict
    required: true
  applied:
    description: Result of the reload or restart after the rollback.
    type: dict
  was_restarted:
    description: Whether the change was applied with a restart.
    type: bool
    required: true
  is_up:
    description: Whether the daemon is running.
    type: bool
    required: true
"""

EXAMPLES = r"""
- name: Fail with the cause
  ansible.builtin.fail:
    msg: >-
      {{ journal.stdout | gpufleet.hosts.engine_rollback_report(
         failure='the restart failed', config=changed, undone=undone, was_restarted=true, is_up=true) }}
"""

RETURN = r"""
_value:
  description: The report.
  type: str
"""

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import rollback


def report(
    journal: str,
    failure: str,
    config: dict[str, t.Any],
    undone: dict[str, t.Any],
    *,
    was_restarted: bool,
    is_up: bool,
    applied: dict[str, t.Any] | None = None,
) -> str:
    return rollback.report(journal, failure, config, undone, applied or {}, was_restarted=was_restarted, is_up=is_up)


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"engine_rollback_report": report}
