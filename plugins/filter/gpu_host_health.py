# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_host_health
short_description: What keeps a host from being a GPU host
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Judges from what role P(gpufleet.hosts.observe#role) saw of the host and from what NVML says of its GPUs. A pure
    function, which playbook C(gpufleet.hosts.verify) uses.
positional: _input
options:
  _input:
    description: The host as C(gpufleet_host) describes it.
    type: dict
    required: true
  facts:
    description: Facts of M(gpufleet.hosts.nvidia_gpu_facts). Empty on a host without NVIDIA GPUs.
    type: dict
    required: true
  volume:
    description: Result of M(gpufleet.hosts.nvidia_driver_volume) in check mode.
    type: dict
  pcie_width:
    description:
      - How many lanes the PCIe link of every GPU must have. A GPU with fewer is a problem.
      - Without this option, a link that is narrower than the GPU allows is a note.
    type: int
    choices: [1, 2, 4, 8, 16]
"""

EXAMPLES = r"""
- name: Stop on a host that cannot run GPU work
  ansible.builtin.assert:
    that: (gpufleet_host | gpufleet.hosts.gpu_host_health(ansible_facts)).problems | length == 0
"""

RETURN = r"""
_value:
  description: The judgement, in words.
  type: dict
  contains:
    problems:
      description: What keeps GPU work from running, now or after the next reboot.
      type: list
      elements: str
      sample: ["GPU 0000:3b:00.0 is lost: it has fallen off the bus"]
    notes:
      description: What is worth knowing and keeps nothing from running.
      type: list
      elements: str
      sample: ["a reboot is owed: kernel 6.1.0-49-amd64 is running, and the next boot takes 6.1.0-56-amd64"]
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import health

_WIDTHS = (1, 2, 4, 8, 16)


def gpu_host_health(
    host: dict[str, t.Any], facts: dict[str, t.Any], volume: dict[str, t.Any] | None = None, pcie_width: t.Any = None
) -> dict[str, list[str]]:
    """Judge a host; the command line gives `pcie_width` as text."""
    if pcie_width in (None, ""):
        return health.judge(host, facts, volume)
    if str(pcie_width) not in map(str, _WIDTHS):
        raise AnsibleFilterError(
            f"verify_expected_pcie_width is {pcie_width!r}, which is not a number of PCIe lanes. Use one of "
            f"{', '.join(map(str, _WIDTHS))}, or remove the setting."
        )
    return health.judge(host, facts, volume, int(pcie_width))


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"gpu_host_health": gpu_host_health}
