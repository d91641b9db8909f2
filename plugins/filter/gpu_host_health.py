# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_host_health
short_description: Check whether a host can run GPU work
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Evaluates the observation of role P(gpufleet.hosts.observe#role) and the facts of the GPUs. Playbook
    C(gpufleet.hosts.verify) uses this filter.
positional: _input
options:
  _input:
    description: The observation of the host, C(gpufleet_host).
    type: dict
    required: true
  facts:
    description: The facts of M(gpufleet.hosts.nvidia_gpu_facts). Empty on a host without NVIDIA GPUs.
    type: dict
    required: true
  volume:
    description: The result of M(gpufleet.hosts.nvidia_driver_volume) in check mode.
    type: dict
  pcie_width:
    description:
      - The number of lanes that the PCIe link of every GPU must have. A narrower link is a problem.
      - If unset, a link that is narrower than the GPU supports is reported as a note.
    type: int
    choices: [1, 2, 4, 8, 16]
  expected_gpus:
    description:
      - The number of NVIDIA GPUs that the host must have on its PCI bus. GPUs that are assigned to virtual machines do
        not count. Any other number is a problem.
      - If unset, a host without NVIDIA GPUs is reported as a note.
    type: int
  requires_engine:
    description: Whether a host without a container engine is a problem.
    type: bool
    default: true
  proof:
    description:
      - The result of M(gpufleet.hosts.gpu_container_proof), also of a failed task.
      - If unset, the record of the last proof counts.
    type: dict
  toolkit:
    description:
      - The variables O(toolkit.state), O(toolkit.source), O(toolkit.isolations) and O(toolkit.default_runtime) of role
        P(gpufleet.hosts.nvidia_container_toolkit#role), without the prefix of their names. Missing ones have their
        defaults.
      - They decide which specification, runtime and units the host must have.
    type: dict
    suboptions:
      state:
        description: Whether the role installs the toolkit.
        type: str
      source:
        description: The source of the toolkit.
        type: str
      isolations:
        description: The isolations that containers of the host use.
        type: list
        elements: str
      default_runtime:
        description: Whether runtime nvidia is the default.
        type: bool
"""

EXAMPLES = r"""
- name: Stop on a host that cannot run GPU work
  ansible.builtin.assert:
    that: (gpufleet_host | gpufleet.hosts.gpu_host_health(ansible_facts)).problems | length == 0
"""

RETURN = r"""
_value:
  description: Problems and notes as full sentences.
  type: dict
  contains:
    problems:
      description: What prevents GPU work now or after the next reboot.
      type: list
      elements: str
      sample: ["GPU 0000:3b:00.0 is not in persistence mode. Start nvidia-persistenced."]
    notes:
      description: What does not prevent GPU work but may need attention.
      type: list
      elements: str
      sample: ["A reboot is required: kernel 6.1.0-49-amd64 is running, but kernel 6.1.0-56-amd64 boots next."]
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import health_variables, host_health
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import variables as toolkit_request


def gpu_host_health(
    host: dict[str, t.Any],
    facts: dict[str, t.Any],
    volume: dict[str, t.Any] | None = None,
    pcie_width: t.Any = None,
    expected_gpus: t.Any = None,
    *,
    requires_engine: bool = True,
    proof: dict[str, t.Any] | None = None,
    toolkit: dict[str, t.Any] | None = None,
) -> dict[str, list[str]]:
    """Check a host. `pcie_width` and `expected_gpus` may be text, as from the command line."""
    try:
        return host_health.judge(
            host,
            facts,
            volume,
            health_variables.pcie_width(pcie_width),
            health_variables.gpu_count(expected_gpus),
            requires_engine=requires_engine,
            proof=proof,
            toolkit=toolkit_request.read(toolkit or {}),
        )
    except VariableError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"gpu_host_health": gpu_host_health}
