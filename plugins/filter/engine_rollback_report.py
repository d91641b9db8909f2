# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_rollback_report
short_description: Why Docker's daemon does not take up its options, and what to do
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Finds the cause in the daemon's journal and the option that it names, and says what is in daemon.json and what runs
    now. Passwords are masked. A pure function.
positional: _input
options:
  _input:
    description: Messages of the daemon's journal since the change, one a line.
    type: str
    required: true
  failure:
    description: What the task that failed said, for a journal that says nothing.
    type: str
    required: true
  config:
    description: Result of M(gpufleet.hosts.docker_daemon_config) that had set the options.
    type: dict
    required: true
  undone:
    description: Result of M(gpufleet.hosts.docker_daemon_config) that went back.
    type: dict
    required: true
  told:
    description: Result of the reload or restart after that. Empty where there was none.
    type: dict
  was_restarted:
    description: Whether the daemon had been restarted for the options, and not reloaded.
    type: bool
    required: true
  is_up:
    description: Whether the daemon runs now.
    type: bool
    required: true
"""

EXAMPLES = r"""
- name: Say why the daemon does not take the options
  ansible.builtin.fail:
    msg: >-
      {{ journal.stdout | gpufleet.hosts.engine_rollback_report(
         failure='the restart failed', config=daemon_config, undone=undone, told=restarted,
         was_restarted=true, is_up=true) }}
"""

RETURN = r"""
_value:
  description: The cause, the option, what is there now and what to do, a line each.
  type: str
  sample: |-
    Docker does not start with the changed /etc/docker/daemon.json: failed to start daemon: unknown log opt 'x'
    The daemon names log-opts.x.
    The former daemon.json is back, and the daemon runs with it.
    Correct log-opts.x in container_engine_docker_options, and run again.
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
    told: dict[str, t.Any] | None = None,
) -> str:
    return rollback.report(journal, failure, config, undone, told or {}, was_restarted=was_restarted, is_up=is_up)


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"engine_rollback_report": report}
