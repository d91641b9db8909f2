# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_apply_plan
short_description: Decide between a reload and a restart of Docker's daemon
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description: Internal filter of role P(gpufleet.hosts.container_engine#role).
positional: _input
options:
  _input:
    description: RV(gpufleet.hosts.docker_daemon_config#module:pending).
    type: dict
    required: true
  info:
    description: C(gpufleet_host.engines.docker.info).
    type: dict
  config:
    description: RV(gpufleet.hosts.docker_daemon_config#module:config).
    type: dict
    required: true
  policy:
    description: C(container_engine_restart_policy).
    type: str
    choices: [when_safe, always, never]
    default: when_safe
"""

EXAMPLES = r"""
- name: Decide between a reload and a restart
  ansible.builtin.debug:
    msg: "{{ changed.pending | gpufleet.hosts.engine_apply_plan(config=changed.config, policy='always') }}"
"""

RETURN = r"""
_value:
  description: The decision, with C(action), C(reload), C(restart) and C(reason).
  type: dict
"""

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import plan as engine_plan


def apply_plan(
    pending: dict[str, list[str]],
    config: dict[str, t.Any],
    info: dict[str, t.Any] | None = None,
    policy: str = "when_safe",
) -> dict[str, t.Any]:
    return engine_plan.apply_plan(pending, info, config, policy)


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"engine_apply_plan": apply_plan}
