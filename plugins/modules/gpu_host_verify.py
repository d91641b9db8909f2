#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action plugin: plugins/action/gpu_host_verify.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_verify
short_description: Check whether a host can run GPU work
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Observes the host, reads its GPU facts, predicts changes of the driver volume, and returns the problems and notes
    that P(gpufleet.hosts.gpu_host_health#filter) finds. It changes nothing.
  - The task succeeds also if it finds problems, so that a playbook can report all hosts first. Playbook
    C(gpufleet.hosts.verify) then fails the hosts that have problems.
extends_documentation_fragment:
  - gpufleet.hosts.attributes.controller
options:
  container:
    description:
      - Whether to start containers, and to compare their GPUs or AWS Neuron chips with those of the host, as
        M(gpufleet.hosts.gpu_container_proof) does. By default, the result of the last proof counts.
    type: bool
    default: false
notes:
  - The task needs root.
  - It reads variables C(verify_expected_gpus) and C(verify_expected_pcie_width), and those of the roles
    P(gpufleet.hosts.container_engine#role) and P(gpufleet.hosts.nvidia_container_toolkit#role). They are not options.
seealso:
  - module: gpufleet.hosts.gpu_host_plan
  - plugin: gpufleet.hosts.gpu_host_health
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Check the host
  gpufleet.hosts.gpu_host_verify:
  register: checked

- name: Stop on a host that cannot run GPU work
  ansible.builtin.assert:
    that: checked.health.problems | length == 0
    fail_msg: "{{ checked.health.problems | join(' ') }}"
"""

RETURN = r"""
health:
  description: Problems and notes as full sentences.
  type: dict
  returned: success
  contains:
    problems:
      description: What prevents GPU work now or after the next reboot.
      type: list
      elements: str
      returned: always
      sample: ["GPU 0000:3b:00.0 is not in persistence mode. Start nvidia-persistenced."]
    notes:
      description: What does not prevent GPU work but may need attention.
      type: list
      elements: str
      returned: always
      sample: []
host:
  description: The observation, as RV(gpufleet.hosts.gpu_host_info#module:host).
  type: dict
  returned: success
  sample: {uid: 0}
ansible_facts:
  description: The facts of M(gpufleet.hosts.nvidia_gpu_facts). Empty on a host without NVIDIA GPUs.
  type: dict
  returned: success
  sample: {nvidia_gpu_state: ready}
"""
