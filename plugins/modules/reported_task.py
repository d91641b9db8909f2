#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action plugin: plugins/action/reported_task.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reported_task
short_description: Run a long task, and report what it does
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Runs M(ansible.builtin.command) or M(ansible.builtin.reboot), and returns its result. While it runs, every half
    minute a line says what the hosts do and for how long. Hosts that do the same share a line.
  - The roles of this collection use it. In check mode, it prints nothing.
options:
  module:
    description: The module to run.
    type: str
    choices: [ansible.builtin.command, ansible.builtin.reboot]
    required: true
  arguments:
    description: The options of the module.
    type: dict
    required: true
  text:
    description: What the task does, for example C(rebooting).
    type: str
    required: true
attributes:
  check_mode:
    description: As the module that it runs.
    support: full
  diff_mode:
    description: As the module that it runs.
    support: none
seealso:
  - module: gpufleet.hosts.package_transaction
"""

EXAMPLES = r"""
- name: Reboot, and say every half minute that the host reboots
  gpufleet.hosts.reported_task:
    module: ansible.builtin.reboot
    arguments:
      reboot_timeout: 1800
    text: rebooting
"""

RETURN = r"""
rc:
  description: The exit status of the command. The other values are those of the module, too.
  type: int
  returned: with C(ansible.builtin.command)
  sample: 0
"""
