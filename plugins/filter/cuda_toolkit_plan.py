# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: cuda_toolkit_plan
short_description: What is to be done so that a host has the CUDA toolkits that are asked for
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Resolves what role P(gpufleet.hosts.cuda_toolkit#role) does, from what role P(gpufleet.hosts.observe#role) saw of
    the host. A pure function.
positional: request, distributions, branches
options:
  _input:
    description: The host as C(gpufleet_host) describes it.
    type: dict
    required: true
  request:
    description: What is asked for. The keys are the role's variables without C(cuda_toolkit_).
    type: dict
    required: true
  distributions:
    description: Packages and version of the toolkit that a distribution has, by platform.
    type: dict
    required: true
  branches:
    description: The driver branch that each version of CUDA is made for.
    type: dict
    required: true
  platform:
    description: What role P(gpufleet.hosts.nvidia_driver#role) knows of the platform, the repository included.
    type: dict
  offered:
    description: Versions that the repositories offer, by package, as M(gpufleet.hosts.package_versions) returns them.
    type: dict
"""

EXAMPLES = r"""
- name: Say what the role would do
  ansible.builtin.debug:
    msg: "{{ (gpufleet_host | gpufleet.hosts.cuda_toolkit_plan({'source': 'preinstalled'}, {}, {})).summary }}"
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
    warnings:
      description: What is limited, in words.
      type: list
      elements: str
    reasons:
      description: Why it is what it is, in words.
      type: list
      elements: str
    acts:
      description: Whether anything is to be done.
      type: bool
    summary:
      description: What is to be done, in words.
      type: list
      elements: str
    toolkits:
      description: Each toolkit with C(version), C(directory), C(nvcc), and how it is tried.
      type: list
      elements: dict
    packages:
      description: Packages to install.
      type: list
      elements: str
    query:
      description: Packages whose versions the repository is to be asked for first.
      type: list
      elements: str
    look:
      description: The repository that is to be looked into first, and the files of entries that are taken for absent.
      type: dict
    repository:
      description: The repository to add, or null.
      type: dict
    files:
      description: Files of the repository to write or remove.
      type: list
      elements: dict
    profile:
      description: State and content of the file for PATH, or null where it is right.
      type: dict
    untried:
      description: Directories of toolkits that came by the role and have not worked yet.
      type: list
      elements: str
    finish:
      description: Whether a run that was cut off has left it open what came.
      type: bool
    unseen:
      description: Files that have to be looked at before the plan holds.
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
    platform: dict[str, t.Any] | None = None,
    offered: dict[str, list[str]] | None = None,
) -> dict[str, t.Any]:
    return cuda_plan.plan(host, request, distributions, branches, platform=platform or None, offered=offered)


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"cuda_toolkit_plan": plan}
