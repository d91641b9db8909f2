#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep work away from a GPU host before a disruption."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_workload
short_description: Drain a GPU host before a disruption, and give it work again afterwards
version_added: 0.1.0
description:
  - Keeps new work away from a host, and waits for the work that runs, for example before a new driver is loaded.
    Afterwards, the host gets work again.
  - The module records on the host who drained it. It never ends or overwrites a drain of somebody else. It continues a
    drain of a run that was interrupted, and starts again exactly what that run stopped.
options:
  verb:
    description:
      - V(begin) gives the host no new work, and stops what the adapter may stop. It does not wait for running work.
      - V(poll) waits up to O(wait) seconds until no work runs. Repeat the task until RV(ready) or RV(expired).
      - V(abort) undoes the drain. Use it before the first change, for example if RV(expired) is true. After
        O(failed_step) was reported, V(abort) keeps the host drained.
      - V(end) undoes the drain after a success. With O(failed_step), the host stays drained, and the next successful
        run of the same owner ends the drain.
    type: str
    choices: [begin, poll, abort, end]
    required: true
  adapter:
    description:
      - How the host is drained. Its option has the same name.
      - V(none) drains nothing.
      - V(docker) and V(podman) wait for the containers that have accelerators. Only those of root's Podman are found.
      - V(systemd) stops units.
      - V(command) starts programs of yours.
      - V(slurm) drains the node of Slurm and waits for all its jobs. Jobs are never stopped.
      - V(kubernetes) cordons the node of Kubernetes and evicts its pods, again and again while a disruption budget
        refuses. It runs where C(kubectl) and a login to the cluster are, usually with C(delegate_to).
    type: str
    choices: [none, docker, podman, systemd, command, slurm, kubernetes]
    required: true
  owner:
    description:
      - Who drains the host. All verbs of one drain need the same owner. Two tools, or two playbooks that can run at the
        same time, need different owners.
    type: str
    default: gpufleet
  reason:
    description: What the drain is for. Schedulers show it behind the O(owner). For O(verb=begin).
    type: str
    default: maintenance
  failed_step:
    description:
      - Which step failed, so that the host must stay drained. For O(verb=end). The reason of the scheduler names it.
    type: str
  timeout:
    description: Seconds until RV(expired), counted from O(verb=begin). At most 604800, which is one week.
    type: int
    default: 3600
  wait:
    description: Maximum seconds to wait. For O(verb=poll).
    type: int
    default: 0
  docker:
    description: Options of O(adapter=docker).
    type: dict
    default: {}
    suboptions:
      stop:
        description: Whether to stop the containers that have GPUs. They are started again at the end.
        type: bool
        default: false
      docker_host:
        description: Address of the Docker API. The default is C(unix:///var/run/docker.sock).
        type: str
  podman:
    description: Options of O(adapter=podman).
    type: dict
    default: {}
    suboptions:
      stop:
        description: Whether to stop the containers that have GPUs. They are started again at the end.
        type: bool
        default: false
  systemd:
    description: Options of O(adapter=systemd).
    type: dict
    suboptions:
      units:
        description: Full names of the units to stop. Units that do not run are not started at the end.
        type: list
        elements: str
        required: true
  command:
    description:
      - Options of O(adapter=command). The programs run without a shell.
    type: dict
    suboptions:
      view:
        description:
          - Program and arguments that show the state of the host. The exit status V(0) means that the host gets new
            work, V(10) that it gets none and is idle, V(75) that it gets none and work still runs.
          - With V(10) and V(75), the first line of the output is the reason of the drain, and each further line names
            work that runs. Without a reason, a drain of this module looks like that of another user. A reason that
            differs from E(GPUFLEET_REASON) is of somebody else.
        type: list
        elements: str
        required: true
      close:
        description:
          - Program and arguments that keep new work away. The environment variable E(GPUFLEET_REASON) is the reason.
        type: list
        elements: str
        required: true
      reopen:
        description: Program and arguments that give the host new work again.
        type: list
        elements: str
        required: true
      environment:
        description: Further environment variables of the programs. Their values are not shown.
        type: dict
        default: {}
      timeout:
        description: Maximum seconds for one program.
        type: int
        default: 60
  slurm:
    description: Options of O(adapter=slurm).
    type: dict
    default: {}
    suboptions:
      node:
        description: Slurm's name of this host. The default is the host name without its domain.
        type: str
      programs:
        description: Directory of C(scontrol) and C(squeue), if it is not in the system's search path.
        type: path
  kubernetes:
    description:
      - Options of O(adapter=kubernetes). The user of the cluster needs the rights to get and patch nodes, to list pods
        in all namespaces, and to create C(pods/eviction).
      - Pods of DaemonSets and static pods stay. If they hold accelerators, the drain waits for them, and they are named
        in RV(waiting_for).
    type: dict
    default: {}
    suboptions:
      node:
        description:
          - Name of the node in the cluster. The default is the name of the machine that runs the module, so set it with
            C(delegate_to).
        type: str
      kubectl:
        description: Program and first arguments, for example C([k3s, kubectl]).
        type: list
        elements: str
        default: [kubectl]
      kubeconfig:
        description: File with the login. The default is that of C(kubectl).
        type: path
      context:
        description: Context of the kubeconfig. The default is its current one.
        type: str
      gpus_only:
        description:
          - Whether only pods that hold accelerators must end. Enough for a reload of the driver, not for a reboot.
        type: bool
        default: false
      delete_emptydir:
        description: Whether to evict pods with C(emptyDir) volumes. An eviction deletes the data in them.
        type: bool
        default: false
      delete_unmanaged:
        description: Whether to evict pods without a controller. Nothing starts them again.
        type: bool
        default: false
      ignore_daemonsets:
        description:
          - Whether pods of DaemonSets may stay even if they hold accelerators, for example those of a device plugin.
          - Enough for a reboot, which ends them. A driver cannot be reloaded while they run.
        type: bool
        default: false
      labels:
        description:
          - Labels of the node during the drain. The former labels are restored at the end.
          - >-
            With V({nvidia.com/gpu.deploy.operands: "false"}), the GPU Operator removes its pods, which use the driver.
        type: dict
        default: {}
  _nvml_binding_path:
    description: Private. Do not set.
    type: path
attributes:
  check_mode:
    description: Says whether the verb would change anything, and changes nothing. V(poll) does not wait.
    support: full
  diff_mode:
    description: Returns no diff.
    support: none
  idempotent:
    description: A verb that has nothing to do changes nothing.
    support: full
notes:
  - Requires root, except with O(adapter=kubernetes).
  - The record is F(/var/lib/gpufleet/workload_drain.json). With O(adapter=kubernetes), it is the annotation
    C(gpufleet.github.io/drain) of the node.
  - Kubernetes does not show who cordoned a node. A cordon without the annotation C(gpufleet.github.io/drain-reason) is
    that of somebody else, and stays.
  - The task is changed if work was kept away, stopped, started or let in again. The record alone is no change.
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.gpu_container_info
"""

EXAMPLES = r"""
- name: Give the Slurm node no new job
  gpufleet.hosts.gpu_workload:
    verb: begin
    adapter: slurm
    reason: new firmware
    timeout: 14400

- name: Wait until its jobs have ended
  gpufleet.hosts.gpu_workload:
    verb: poll
    adapter: slurm
    wait: 60
  register: drain
  until: drain.ready or drain.expired
  retries: 250
  delay: 1

- name: Resume the node if the jobs did not end in time
  gpufleet.hosts.gpu_workload:
    verb: abort
    adapter: slurm
  when: drain.expired

- name: Resume the node after the maintenance
  gpufleet.hosts.gpu_workload:
    verb: end
    adapter: slurm
  when: drain.ready

- name: Cordon a node of Kubernetes and evict its pods
  gpufleet.hosts.gpu_workload:
    verb: begin
    adapter: kubernetes
    kubernetes:
      node: "{{ inventory_hostname }}"
    timeout: 3600
  delegate_to: localhost
  become: false

- name: Evict the pods that a disruption budget keeps, until all have ended
  gpufleet.hosts.gpu_workload:
    verb: poll
    adapter: kubernetes
    kubernetes:
      node: "{{ inventory_hostname }}"
    wait: 60
  delegate_to: localhost
  become: false
  register: drain
  until: drain.ready or drain.expired
  retries: 65
  delay: 1

- name: Uncordon the node if its pods did not end in time
  gpufleet.hosts.gpu_workload:
    verb: abort
    adapter: kubernetes
    kubernetes:
      node: "{{ inventory_hostname }}"
  delegate_to: localhost
  become: false
  when: drain.expired

- name: Uncordon the node after the maintenance
  gpufleet.hosts.gpu_workload:
    verb: end
    adapter: kubernetes
    kubernetes:
      node: "{{ inventory_hostname }}"
  delegate_to: localhost
  become: false
  when: drain.ready
"""

RETURN = r"""
state:
  description:
    - V(none) if this collection has not drained the host, V(waiting) while work runs, V(drained) if no work runs, and
      V(foreign) if somebody else drained the host.
  returned: success
  type: str
  sample: waiting
ready:
  description: Whether the disruption can begin. The host is drained, by anybody, and no work runs.
  returned: success
  type: bool
  sample: false
waiting_for:
  description: The work that runs.
  returned: success
  type: list
  elements: str
  sample: [job 4711 of alice (RUNNING)]
expired:
  description: Whether work still runs after the time limit.
  returned: success
  type: bool
  sample: false
seconds_left:
  description: Seconds until the time limit. V(null) without a drain.
  returned: success
  type: int
  sample: 3540
owner:
  description: Who drained the host with this module. V(null) if nobody did.
  returned: success
  type: str
  sample: gpufleet
reason:
  description: The reason that the scheduler shows. V(null) if it shows none.
  returned: success
  type: str
  sample: "gpufleet: new firmware"
foreign:
  description: Who else drained the host, and why. This drain is kept. V(null) if nobody else did.
  returned: success
  type: str
  sample: "root: bad disk"
failed_step:
  description: The step that failed in an earlier run. V(null) if none did.
  returned: success
  type: str
  sample: null
stopped:
  description: What was stopped, and is started again at the end.
  returned: success
  type: list
  elements: str
  sample: [inference.service]
started:
  description: What V(end) or V(abort) started again.
  returned: success
  type: list
  elements: str
  sample: []
gaps:
  description: How new work can start although the host is drained.
  returned: success
  type: list
  elements: str
  sample: []
notes:
  description: What could not be undone, and why.
  returned: success
  type: list
  elements: str
  sample: []
"""

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.masked_module import MaskedModule as AnsibleModule
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.option_limits import LONGEST_DRAIN
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import runner
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import is_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.kubectl_client import KubernetesError
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_drain_and_resume import SlurmError
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload import adapter_list
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_options import OPTIONS, without_effect
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import WorkloadError
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_begin_end_and_owner import WorkloadDrain


def main() -> None:
    """Run one verb."""
    pinned_environment.pin()
    options = {
        name: {"type": "dict", "options": spec, **({} if _requires(spec) else {"default": {}})}
        for name, spec in OPTIONS.items()
        if spec
    }
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "choices": ["begin", "poll", "abort", "end"], "required": True},
            "adapter": {"type": "str", "choices": list(OPTIONS), "required": True},
            "owner": {"type": "str", "default": "gpufleet"},
            "reason": {"type": "str", "default": "maintenance"},
            "failed_step": {"type": "str"},
            "timeout": {"type": "int", "default": 3600},
            "wait": {"type": "int", "default": 0},
            **options,
            "_nvml_binding_path": {"type": "path"},
        },
        required_if=[("adapter", name, [name]) for name, spec in OPTIONS.items() if _requires(spec)],
        supports_check_mode=True,
    )
    params = module.params
    for name, least in (("timeout", 1), ("wait", 0)):
        if not least <= params[name] <= LONGEST_DRAIN:
            module.fail_json(msg=f"{name} is {params[name]}, but must be between {least} and {LONGEST_DRAIN} seconds.")
    mistake = without_effect(params)
    if mistake:
        module.fail_json(msg=mistake)
    if not params["owner"].strip():
        module.fail_json(msg="owner is empty. Name who drains the host.")
    if params["adapter"] not in ("none", "kubernetes") and not is_root():
        module.fail_json(msg="This module needs root to drain a host. Set become: true.")
    try:
        result = _result(module)
    except BindingMissing as error:
        module.fail_json(**error.result())
    except (WorkloadError, SlurmError, KubernetesError) as error:
        module.fail_json(msg=str(error))
    for sentence in result["notes"]:
        module.warn(sentence)
    module.exit_json(**result)


def _requires(spec: dict) -> bool:
    return any(option.get("required") for option in spec.values())


def _result(module: AnsibleModule) -> dict:
    params = module.params
    tools = adapter_list.WorkloadTools(runner(module), params["_nvml_binding_path"])
    adapter = adapter_list.build(params["adapter"], params.get(params["adapter"]) or {}, tools)
    records = adapter_list.records(params["adapter"], params.get(params["adapter"]) or {}, tools)
    drain = WorkloadDrain(adapter, records, params["owner"], check=module.check_mode)
    if params["verb"] == "begin":
        return drain.begin(params["reason"], params["timeout"])
    if params["verb"] == "poll":
        return drain.poll(params["wait"])
    if params["verb"] == "abort":
        return drain.abort()
    return drain.end(params["failed_step"] or "")


if __name__ == "__main__":
    main()
