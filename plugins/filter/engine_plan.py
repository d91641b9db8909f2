# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_plan
short_description: What is to be done so that a host has its container engine
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Resolves what role P(gpufleet.hosts.container_engine#role) does, from what role P(gpufleet.hosts.observe#role) saw
    of the host. A pure function.
positional: _input
options:
  _input:
    description: The host as C(gpufleet_host) describes it.
    type: dict
    required: true
  name:
    description: The engine that is wanted.
    type: str
    choices: [docker, podman, containerd]
    required: true
  source:
    description: Where it may come from where it is not there yet.
    type: str
    choices: [distribution, preinstalled]
    required: true
  docker_options:
    description: Options wanted in daemon.json, or a text of JSON that stands for them.
    type: dict
    default: {}
  docker_recommended:
    description: Whether to add the options that GPU hosts are better off with. A text such as V(no) stands for a value.
    type: bool
    default: true
  platforms:
    description: Packages and version of each engine on each platform.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Say what the role would do
  ansible.builtin.debug:
    msg: "{{ gpufleet_host | gpufleet.hosts.engine_plan(name='docker', source='distribution', platforms=known) }}"
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    problems:
      description: What speaks against doing anything, in words.
      type: list
      elements: str
    is_there:
      description: Whether an engine is there already, and is kept.
      type: bool
    packages:
      description: Packages to install.
      type: list
      elements: str
    options:
      description: Options that daemon.json is to have.
      type: dict
    config_needed:
      description: >-
        Whether daemon.json differs from that, or its daemon has not taken it up. True also where an option carries a
        password, which only M(gpufleet.hosts.docker_daemon_config) on the host can compare.
      type: bool
    service:
      description: The unit, and whether it has to be enabled or started. Null where there is none to care for.
      type: dict
    reason:
      description: Why, in words.
      type: str
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import plan as engine_plan


def plan(
    host: dict[str, t.Any],
    name: str,
    source: str,
    platforms: dict[str, t.Any],
    *,
    docker_options: t.Any = None,
    docker_recommended: t.Any = True,
) -> dict[str, t.Any]:
    try:
        settings = engine_plan.settings(name, source, docker_options, docker_recommended, platforms)
    except engine_plan.SettingsError as error:
        raise AnsibleFilterError(str(error)) from None  # its cause may show a password
    return engine_plan.plan(host, settings)


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"engine_plan": plan}
