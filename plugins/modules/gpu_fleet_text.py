#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action plugin: plugins/action/gpu_fleet_text.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_fleet_text
short_description: Print the state of a fleet after a run
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Prints a table of all hosts in the colors of Ansible, then the failed tasks, problems and notes, and a line with
    counts. Texts that several hosts have in common stand once, with the names of the first five hosts and the number of
    the others. With more than 20 hosts, equal rows of the table stand once.
  - For hosts with a prepared image, it also prints what was adopted, completed and left alone.
  - Playbooks C(gpufleet.hosts.site) and C(gpufleet.hosts.verify) use it. It runs on the controller and reads no host.
  - With a stdout callback whose output is data, such as C(ansible.posix.json), it prints nothing. RV(lines) then has
    the text.
options:
  hosts:
    description:
      - The entries of the hosts, as playbook C(gpufleet.hosts.verify) writes them to C(verify_file).
    type: list
    elements: dict
    required: true
attributes:
  check_mode:
    description: The task changes nothing. The text says that the hosts have not changed.
    support: full
  diff_mode:
    description: The task changes nothing.
    support: none
seealso:
  - module: gpufleet.hosts.gpu_plan_text
"""

EXAMPLES = r"""
- name: Print the state of a fleet that playbook verify has written
  gpufleet.hosts.gpu_fleet_text:
    hosts: "{{ lookup('ansible.builtin.file', 'fleet.json') | from_json }}"
  run_once: true
"""

RETURN = r"""
lines:
  description: The lines of the text.
  type: list
  elements: str
  returned: success
  sample: ["2 hosts: 2 pass"]
"""
