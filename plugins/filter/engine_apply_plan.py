# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_apply_plan
short_description: How changed daemon.json options become effective without stopping anybody's containers
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Decides between a reload, a restart and waiting, from what the daemon has not taken up yet and from what it says of
    its containers. A pure function.
positional: _input
options:
  _input:
    description: RV(gpufleet.hosts.docker_daemon_config#module:pending) of M(gpufleet.hosts.docker_daemon_config).
    type: dict
    required: true
  info:
    description: What the daemon says of itself, C(engines.docker.info) of C(gpufleet_host); null where it does not.
    type: dict
  config:
    description: What is in daemon.json now.
    type: dict
    required: true
  policy:
    description: What the user allows.
    type: str
    choices: [when_safe, always, never]
    default: when_safe
"""

EXAMPLES = r"""
- name: Decide
  ansible.builtin.set_fact:
    decision: >-
      {{ daemon_config.pending | gpufleet.hosts.engine_apply_plan(
         info=gpufleet_host.engines.docker.info, config=daemon_config.config) }}
"""

RETURN = r"""
_value:
  description: The decision.
  type: dict
  contains:
    action:
      description: V(none), V(reload), V(restart), V(reload_then_restart) or V(wait).
      type: str
    reload:
      description: Whether the daemon is to be reloaded.
      type: bool
    restart:
      description: Whether it is to be restarted, after the reload if there is one.
      type: bool
    reason:
      description: Why, in words.
      type: str
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
