# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_plan
short_description: Plan role container_engine
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description: Internal filter of role P(gpufleet.hosts.container_engine#role). The options are variables of the role.
positional: _input
options:
  _input:
    description: The host as described by C(gpufleet_host).
    type: dict
    required: true
  name:
    description: C(container_engine_name).
    type: str
    choices: [docker, podman, containerd]
    required: true
  source:
    description: C(container_engine_source).
    type: str
    choices: [distribution, preinstalled]
    required: true
  docker_options:
    description: C(container_engine_docker_options).
    type: dict
    default: {}
  docker_recommended:
    description: C(container_engine_docker_recommended).
    type: bool
    default: true
  platforms:
    description: Packages and versions of the engines by platform.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Plan the container engine
  ansible.builtin.debug:
    msg: "{{ gpufleet_host | gpufleet.hosts.engine_plan(name='docker', source='distribution', platforms=platforms) }}"
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
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
        raise AnsibleFilterError(str(error)) from None  # the cause may contain a password
    return engine_plan.plan(host, settings)


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"engine_plan": plan}
