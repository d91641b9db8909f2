# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: cuda_toolkit_plan
short_description: Plan the installation of CUDA toolkits
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Returns the changes that role P(gpufleet.hosts.cuda_toolkit#role) makes, from the observation of the host by role
    P(gpufleet.hosts.observe#role).
positional: request, distributions, branches
options:
  _input:
    description: The host, in the format of C(gpufleet_host).
    type: dict
    required: true
  request:
    description: The role's variables. The keys are their names without C(cuda_toolkit_).
    type: dict
    required: true
  distributions:
    description: Packages and version of the distribution's toolkit, by platform.
    type: dict
    required: true
  branches:
    description: The driver branch of each CUDA version.
    type: dict
    required: true
  offered:
    description: Available versions by package, from M(gpufleet.hosts.package_versions).
    type: dict
"""

EXAMPLES = r"""
- name: Show what the role would do
  ansible.builtin.debug:
    msg: "{{ (gpufleet_host | gpufleet.hosts.cuda_toolkit_plan({'source': 'preinstalled'}, {}, {})).summary }}"
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    problems:
      description: Problems that prevent any change.
      type: list
      elements: str
    warnings:
      description: Limitations of the toolkits on this host.
      type: list
      elements: str
    reasons:
      description: Reasons for the decisions.
      type: list
      elements: str
    acts:
      description: Whether there are changes.
      type: bool
    summary:
      description: Description of the changes.
      type: list
      elements: str
    toolkits:
      description: Each toolkit with C(version), C(directory), C(nvcc), and how to verify it.
      type: list
      elements: dict
    packages:
      description: Packages to install.
      type: list
      elements: str
    query:
      description: Packages to query the available versions of.
      type: list
      elements: str
    look:
      description: The repository to query, and the repository files to ignore in the query.
      type: dict
    repository:
      description: The repository to add, or null.
      type: dict
    files:
      description: Repository files to write or remove.
      type: list
      elements: dict
    profile:
      description: State and content of the profile that sets PATH, or null without a change.
      type: dict
    untried:
      description: Directories of toolkits that the role installed and that were not verified yet.
      type: list
      elements: str
    finish:
      description: Whether to record what an interrupted run installed.
      type: bool
    unseen:
      description: Files to observe before the plan is complete.
      type: list
      elements: str
"""

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import plan as cuda_plan


def plan(
    host: dict[str, t.Any],
    request: dict[str, t.Any],
    distributions: dict[str, t.Any],
    branches: dict[str, int],
    *,
    offered: dict[str, list[str]] | None = None,
) -> dict[str, t.Any]:
    return cuda_plan.plan(host, request, distributions, branches, offered=offered)


class FilterModule:
    """The filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"cuda_toolkit_plan": plan}
