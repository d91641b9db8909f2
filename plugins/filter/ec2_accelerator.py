# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: ec2_accelerator
short_description: Return the accelerators of an EC2 instance type
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Returns which accelerators an EC2 instance type has, and the inventory groups of such an instance. The inventory
    file C(inventory/aws_ec2.yml) of this collection uses this filter.
  - The values come from a table in the collection. The filter makes no API calls.
  - A family that is newer than the table has the vendor V(unknown), and Ansible prints a warning with the instance
    type.
positional: _input
options:
  _input:
    description: The instance type, for example V(p5.48xlarge).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the number of GPUs of an instance type
  ansible.builtin.debug:
    msg: "{{ ('p5.48xlarge' | gpufleet.hosts.ec2_accelerator).count }}"
"""

RETURN = r"""
_value:
  description: The accelerators.
  type: dict
  contains:
    instance_type:
      description: The instance type.
      type: str
      sample: p5.48xlarge
    family:
      description: The family of the instance type.
      type: str
      sample: p5
    vendor:
      description:
        - One of V(nvidia), V(amd), V(neuron), V(gaudi), V(qualcomm), V(xilinx), V(unknown) and V(none).
        - V(xilinx) are FPGAs and video transcoders. V(none) is an instance type without accelerators.
      type: str
      sample: nvidia
    model:
      description: The model of the accelerators, as EC2's API spells it. Null if it is unknown.
      type: str
      sample: H100
    count:
      description: The number of accelerators that the instance has. Null if it is unknown.
      type: int
      sample: 8
    memory_gib:
      description: The memory of one accelerator in GiB. Null if it is unknown.
      type: float
      sample: 80
    fraction:
      description: The part of a GPU that the instance gets, for example V(0.125) on C(g6f.large). V(1) is a whole GPU.
      type: float
      sample: 1
    architecture:
      description: The architecture of the CPUs, V(x86_64) or V(arm64). Null if it is unknown.
      type: str
      sample: x86_64
    groups:
      description:
        - The inventory groups. NVIDIA GPUs are in V(gpu_hosts) and in a group by model, Neuron devices in
          V(neuron_hosts) and in a group by model, other accelerators in a group by vendor.
        - An unknown family is only in V(gpu_unknown).
      type: list
      elements: str
      sample: [gpu_hosts, gpu_h100]
    message:
      description: What is unknown and what to do about it. Empty if everything is known.
      type: str
      sample: ""
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible.utils.display import Display

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.aws import instance_families, inventory_groups

_display = Display()


def ec2_accelerator(instance_type: t.Any) -> dict[str, t.Any]:
    """Describe the accelerators of an instance type."""
    if not isinstance(instance_type, str) or not instance_type:
        raise AnsibleFilterError(
            f"gpufleet.hosts.ec2_accelerator got {instance_type!r} instead of an EC2 instance type. Pass a string "
            "such as p5.48xlarge."
        )
    result = inventory_groups.with_groups(str(instance_type), instance_families.describe(instance_type))
    if result["message"]:
        _display.warning(result["message"])
    return result


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"ec2_accelerator": ec2_accelerator}
