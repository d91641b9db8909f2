# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: persistenced_plan
short_description: What is to be done so that NVIDIA's persistence daemon is effective
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Resolves what role P(gpufleet.hosts.nvidia_persistenced#role) does, from what role P(gpufleet.hosts.observe#role)
    saw of the host. A pure function.
positional: _input
options:
  _input:
    description: The host as C(gpufleet_host) describes it.
    type: dict
    required: true
  packages:
    description: The daemon's packages by platform, as in C(gpufleet_host.os.key).
    type: dict
    required: true
  timeout:
    description: Seconds that the GPUs are given to come up.
    type: int
    default: 30
  offered:
    description: The versions on offer of the packages that C(query) names, newest first, once they have been asked for.
    type: dict
"""

EXAMPLES = r"""
- name: Say what the role would do
  ansible.builtin.debug:
    msg: "{{ gpufleet_host | gpufleet.hosts.persistenced_plan(packages={'debian-12': ['nvidia-persistenced']}) }}"
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    wanted:
      description: Whether the host has an NVIDIA GPU at all.
      type: bool
    problems:
      description: What speaks against doing anything, in words.
      type: list
      elements: str
    packages:
      description: Packages to install, with a version where that matters.
      type: list
      elements: str
    query:
      description: Packages whose versions on offer have to be known, so that one is taken that goes with the driver.
      type: list
      elements: str
    user:
      description: System user to make for a unit of ours, or null.
      type: str
    files:
      description: Unit files to write, by path. Null removes one.
      type: dict
    enable:
      description: Whether the unit has to be enabled.
      type: bool
    start:
      description: Whether the daemon has to be started.
      type: bool
    verify:
      description: Whether NVML can be asked for the outcome.
      type: bool
    retries:
      description: How often the GPUs are asked, once every two seconds, to come up within the timeout.
      type: int
    reason:
      description: Why, in words.
      type: str
"""

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import persistenced


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"persistenced_plan": persistenced.plan}
