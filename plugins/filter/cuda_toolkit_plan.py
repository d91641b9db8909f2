# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: cuda_toolkit_plan
short_description: What is to be done so that a host has a CUDA toolkit
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Resolves what role P(gpufleet.hosts.cuda_toolkit#role) does, from what role P(gpufleet.hosts.observe#role) saw of
    the host. A pure function.
positional: _input
options:
  _input:
    description: The host as C(gpufleet_host) describes it.
    type: dict
    required: true
  source:
    description: Where the toolkit comes from.
    type: str
    choices: [distribution, preinstalled]
    required: true
  version:
    description: The version that is wanted; empty for the only one there is.
    type: str
    default: ""
  path:
    description: Where a preinstalled toolkit lies.
    type: str
    default: /usr/local/cuda
  environment:
    description: Whether its programs are to be on PATH.
    type: bool
    default: true
  platforms:
    description: Packages and version of the toolkit by platform.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Say what the role would do
  ansible.builtin.debug:
    msg: "{{ gpufleet_host | gpufleet.hosts.cuda_toolkit_plan(source='preinstalled', platforms={}) }}"
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
    packages:
      description: Packages to install.
      type: list
      elements: str
    nvcc:
      description: The compiler.
      type: str
    profile:
      description: State and content of the file for PATH, or null where it is right.
      type: dict
    reason:
      description: Why, in words.
      type: str
"""

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils import cuda_toolkit_plan


def plan(
    host: dict[str, t.Any],
    source: str,
    platforms: dict[str, t.Any],
    *,
    version: str = "",
    path: str = "/usr/local/cuda",
    environment: bool = True,
) -> dict[str, t.Any]:
    return cuda_toolkit_plan.plan(
        host, source=source, version=version, path=path, environment=environment, platforms=platforms
    )


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"cuda_toolkit_plan": plan}
