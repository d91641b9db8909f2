#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe the accelerators of a host to Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_slurm_config
short_description: Describe the GPUs and accelerators of a host to Slurm
version_added: 0.1.0
description:
  - Writes the lines of F(gres.conf) for all GPUs, MIG devices and accelerators of the host, constrains jobs to their
    own devices, and lets slurmd wait for the device nodes at boot.
  - In F(gres.conf) and F(cgroup.conf), the module owns a marked block and changes nothing else.
  - The module never changes F(slurm.conf), which must be the same on all nodes. It returns the line of the node.
  - Role C(gpu_slurm_node) runs this module, drains the node before its GPUs change, and restarts slurmd.
extends_documentation_fragment:
  - gpufleet.hosts.options
options:
  state:
    description: Whether the lines exist.
    type: str
    choices: [present, absent]
    default: present
  gather:
    description:
      - Whether to only read the node, and return RV(findings) and RV(notes). Files of others are then no error, and the
        types of the devices may differ from those that this module would choose.
    type: bool
    default: false
  node:
    description: Slurm's name of this host. The default is the host name without its domain.
    type: str
  detect:
    description:
      - V(off) writes lines with the device nodes. Otherwise, slurmd detects the devices with this plugin, for example
        V(nvml) or V(rsmi), which must be installed.
    type: str
    default: 'off'
  types:
    description:
      - Slurm types by model or generation, for example C({'Tesla T4':'small'}). The default is derived from the model,
        for example C(h100) or C(mi300x).
      - A name that no device of the host has is an error, unless all devices of the host have a type here.
    type: dict
    default: {}
  constrain_devices:
    description:
      - Whether F(cgroup.conf) constrains jobs to their own devices. F(slurm.conf) must then have
        C(TaskPlugin=task/cgroup).
    type: bool
    default: true
  directory:
    description: Directory of Slurm's configuration.
    type: path
    default: /etc/slurm
  programs:
    description: Directory of C(scontrol), if it is not in the system's search path.
    type: path
attributes:
  check_mode:
    description: Returns the changes, and writes nothing.
    support: full
  diff_mode:
    description: Returns the lines of the files.
    support: full
  idempotent:
    description: When run twice, the second run changes nothing.
    support: full
notes:
  - Requires root.
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.accelerator_facts
  - module: gpufleet.hosts.gpu_workload
"""

EXAMPLES = r"""
- name: Show the lines of gres.conf and slurm.conf for this host
  gpufleet.hosts.gpu_slurm_config:
  check_mode: true
  register: slurm_gpus

- name: Show the line of each node on the controller
  ansible.builtin.debug:
    msg: "{{ slurm_gpus.node_line }}"
"""

RETURN = r"""
gres_lines:
  description: The lines of F(gres.conf).
  returned: success
  type: list
  elements: str
  sample: ["NodeName=gpu1 Name=gpu Type=h100 File=/dev/nvidia[0-7] Flags=nvidia_gpu_env"]
node_gres:
  description: The value of Gres in the line of the node. Empty for a host without devices.
  returned: success
  type: str
  sample: gpu:h100:8
node_line:
  description: The line of the node for F(slurm.conf), with the hardware that C(slurmd -C) found.
  returned: success
  type: str
  sample: NodeName=gpu1 CPUs=128 Boards=1 SocketsPerBoard=2 CoresPerSocket=64 ThreadsPerCore=1 Gres=gpu:h100:8
node:
  description: Slurm's name of this host.
  returned: success
  type: str
  sample: gpu1
changes:
  description: What changes, or would change in check mode.
  returned: success
  type: list
  elements: str
  sample: [add the managed lines of node gpu1 in /etc/slurm/gres.conf, restart slurmd.service]
gres_changes:
  description: Whether the devices of the node change, so that a node with jobs must be drained before.
  returned: success
  type: bool
  sample: true
restart:
  description: Whether slurmd runs and must restart to read the files.
  returned: success
  type: bool
  sample: true
daemon_reload:
  description: Whether systemd must read the changed unit.
  returned: success
  type: bool
  sample: true
skipped:
  description: Devices that are not in the lines, with the C(device) and the C(reason).
  returned: success
  type: list
  elements: dict
  sample: [{device: GPU-5a6f3c1e, reason: MIG is enabled, but the GPU has no MIG devices}]
findings:
  description: What is wrong with the node in the controller's view, and with settings that the module does not change.
  returned: success
  type: list
  elements: str
  sample: []
drain_owner:
  description: Who drained the host with M(gpufleet.hosts.gpu_workload). V(null) if nobody did.
  returned: success
  type: str
  sample: null
is_registered:
  description: Whether slurmd answers the controller. V(true) if the controller does not know the node.
  returned: success
  type: bool
  sample: true
notes:
  description: What to know about the node, for example why it is drained.
  returned: if O(gather=true)
  type: list
  elements: str
  sample: ["Slurm gives node gpu1 no job (drain+idle): bad disk."]
slurm_node:
  description: The node in the controller's view. V(null) if the controller does not know it or does not answer.
  returned: success
  type: dict
  sample: {states: [IDLE], reason: null, gres: gpu:h100:8}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import module_call as accelerators_call
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import runner
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import is_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import VENDORS
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import (
    configuration_files,
    file_writing_order,
    node_files_plan,
    node_findings,
    node_observation,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_drain_and_resume import SlurmError
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import WorkloadError
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_record import WorkloadRecords

OPTIONS = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "gather": {"type": "bool", "default": False},
    "node": {"type": "str"},
    "detect": {"type": "str", "default": "off"},
    "types": {"type": "dict", "default": {}},
    "constrain_devices": {"type": "bool", "default": True},
    "directory": {"type": "path", "default": "/etc/slurm"},
    "programs": {"type": "path"},
    **{name: accelerators_call.OPTIONS[name] for name in ("timeout", "driver_root", "_nvml_binding_path")},
}


def main() -> None:
    """Plan the files, and write them."""
    pinned_environment.pin()
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    if not is_root():
        module.fail_json(msg="This module needs root to write Slurm's files. Set become: true.")
    try:
        host, problems = _observe(module)
        record = WorkloadRecords().read()
    except (SlurmError, WorkloadError) as error:
        module.fail_json(msg=str(error))
    if module.params["gather"]:
        found, notes = node_findings.health(host)
        module.exit_json(findings=found, notes=notes, slurm_node=node_observation.described(host.node), node=host.name)
    types = {str(model): str(kind) for model, kind in module.params["types"].items()}
    wrong = [model for model, kind in types.items() if kind == "None" or not configuration_files.is_type(kind)]
    if wrong:
        module.fail_json(
            msg=f"types has no usable Slurm type for {', '.join(map(repr, wrong))}. A type has letters, digits, '_', "
            "'.' and '-', for example 'h100'."
        )
    request = node_files_plan.SlurmRequest(
        present=module.params["state"] == "present",
        detect="off" if module.params["detect"] in ("off", "False", "false", "no") else module.params["detect"],
        types=types,
        constrain_devices=module.params["constrain_devices"],
    )
    plan = node_files_plan.plan(host, request)
    problems += plan.problems
    if problems:
        module.fail_json(msg=" ".join(problems), problems=problems)
    for note in plan.notes:
        module.warn(note)
    if plan.writes and not module.check_mode:
        file_writing_order.write(plan, host)
    module.exit_json(
        changed=bool(plan.changes),
        changes=plan.changes,
        gres_lines=plan.gres_lines,
        node_gres=plan.node_gres,
        node_line=plan.node_line,
        node=host.name,
        gres_changes=plan.gres_changes,
        restart=plan.restart,
        daemon_reload=plan.daemon_reload,
        skipped=plan.skipped,
        findings=plan.findings,
        slurm_node=node_observation.described(host.node),
        is_registered=host.unanswered is None and (host.node is None or not host.node.is_silent),
        drain_owner=record.owner if record else None,
        diff=file_writing_order.diff(plan, host),
    )


def _observe(module: AnsibleModule) -> tuple[node_files_plan.SlurmHost, list[str]]:
    params = module.params
    devices, problems = [], []
    if params["state"] == "present":
        options = {**params, "vendors": list(VENDORS), "read_ras": False}
        result = accelerators_call.result(options, module.run_command)
        if result.get("nvml_binding_missing"):
            module.fail_json(
                msg=result["ansible_facts"]["accelerator_vendors"]["nvidia"]["reason"], nvml_binding_missing=True
            )
        if result.get("failed"):
            module.fail_json(**result)
        devices = result["ansible_facts"]["accelerators"]
        problems = node_findings.not_ready(result["ansible_facts"]["accelerator_vendors"])
    # slurmd's own default: the host name without the domain.
    node = params["node"] or os.uname().nodename.partition(".")[0]
    host = node_observation.observe(
        runner(module), devices, node=node, directory=params["directory"].rstrip("/"), programs=params["programs"]
    )
    return host, problems


if __name__ == "__main__":
    main()
