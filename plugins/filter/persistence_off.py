# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: persistence_off
short_description: Name the GPUs whose persistence mode is off
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Picks from the facts of M(gpufleet.hosts.nvidia_gpu_facts) the GPUs of which NVML says that persistence mode is off.
    GPUs that do not have the mode are not among them. A pure function.
positional: _input
options:
  _input:
    description: The facts, C(ansible_facts).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: All GPUs stay initialised
  ansible.builtin.assert:
    that: ansible_facts | gpufleet.hosts.persistence_off | length == 0
"""

RETURN = r"""
_value:
  description: Address and name of each such GPU.
  type: list
  elements: str
  sample: ["0000:3b:00.0 (NVIDIA A100-SXM4-40GB)"]
"""

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import persistenced


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"persistence_off": persistenced.gpus_without}
