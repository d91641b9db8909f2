# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nvidia_driver_fabric_waiting
short_description: Name the GPUs that are not in the NVLink fabric
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Picks from the facts of M(gpufleet.hosts.nvidia_gpu_facts), subset V(fabric), the GPUs whose registration with the
    NVLink fabric is not completed or failed. GPUs that know no such registration are not among them. A pure function.
positional: _input
options:
  _input:
    description: The facts, C(ansible_facts).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: All GPUs are in the fabric
  ansible.builtin.assert:
    that: ansible_facts | gpufleet.hosts.nvidia_driver_fabric_waiting | length == 0
"""

RETURN = r"""
_value:
  description: Each such GPU and what keeps it out.
  type: list
  elements: str
  sample: ["GPU 0000:3b:00.0: the registration with the NVLink fabric is in progress. Check nvidia-fabricmanager"]
"""

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import fabric


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"nvidia_driver_fabric_waiting": fabric.waiting}
