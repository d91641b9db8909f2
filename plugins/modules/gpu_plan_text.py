#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action plugin: plugins/action/gpu_plan_text.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_plan_text
short_description: Print the plans of a fleet
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Prints the plans of all hosts as text, in the colors of Ansible. Changes that several hosts have in common stand
    once, with the names of the first five hosts and the number of the others.
  - Playbook C(gpufleet.hosts.plan) uses it. It runs on the controller and reads no host.
  - With a stdout callback whose output is data, such as C(ansible.posix.json), it prints nothing. RV(lines) then has
    the text.
extends_documentation_fragment:
  - gpufleet.hosts.attributes.controller
options:
  plans:
    description:
      - The plans of the hosts, as playbook C(gpufleet.hosts.plan) writes them to C(plan_file).
    type: list
    elements: dict
    required: true
  reasons:
    description: Whether to print why each part changes something.
    type: bool
    default: false
seealso:
  - module: gpufleet.hosts.gpu_host_plan
"""

EXAMPLES = r"""
- name: Print a plan that playbook plan has written
  gpufleet.hosts.gpu_plan_text:
    plans: "{{ lookup('ansible.builtin.file', 'plan.json') | from_json }}"
    reasons: true
  run_once: true
"""

RETURN = r"""
lines:
  description: The lines of the text.
  type: list
  elements: str
  returned: success
  sample: ["2 hosts: 2 converged"]
"""
