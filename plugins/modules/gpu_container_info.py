#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_container_info
short_description: Show what holds which GPU, and which GPUs are free
version_added: 0.1.0
description:
  - Lists the GPUs and MIG devices of a host with the containers, pods and processes that hold them, and the containers
    of Docker and Podman that have GPUs. Any tool may have started them.
  - The module recognizes holders as M(gpufleet.hosts.gpu_container) does for
    O(gpufleet.hosts.gpu_container#module:exclusive=true).
  - The module succeeds on a host without GPUs, driver or engine, so one task can report a whole fleet.
  - The module only reads. It starts no engine and reserves no GPU. A GPU in RV(free) can be assigned to a container at
    any time.
extends_documentation_fragment:
  - gpufleet.hosts.attributes.reader
  - gpufleet.hosts.options
options:
  accelerator:
    description: Vendor of the GPUs or accelerators, as in O(gpufleet.hosts.gpu_container#module:accelerator).
    type: str
    choices: [auto, nvidia, amd, neuron, gaudi]
    default: auto
  docker_host:
    description:
      - Address of the Docker API, C(unix:///path) or C(tcp://address:port) of this host without TLS.
      - The default is the environment variable E(DOCKER_HOST), else C(unix:///var/run/docker.sock).
    type: str
requirements:
  - pynvml on the host or on the controller, for a host with a driver
notes:
  - Run this module as root. Other users only see the containers of the engines that they can access.
    RV(unseen) says what is missing.
  - A privileged container that requested no GPU is not listed, although it can access all GPUs.
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.gpu_container
  - module: gpufleet.hosts.nvidia_gpu_facts
"""

EXAMPLES = r"""
- name: Read the use of the GPUs
  gpufleet.hosts.gpu_container_info:
  register: gpu_use

- name: Show the GPUs and their holders
  ansible.builtin.debug:
    msg: >-
      GPU {{ item.index }} {{ item.name }}:
      {{ item.unusable_reason or item.holders | map(attribute='name') | join(', ') or 'free' }}
  loop: "{{ gpu_use.gpus }}"
  loop_control:
    label: "{{ item.uuid }}"

- name: Fail before a maintenance while a GPU is held
  ansible.builtin.assert:
    that: gpu_use.gpus | selectattr('holders') | length == 0
    fail_msg: "{{ gpu_use.gpus | map(attribute='holders') | flatten | map(attribute='name') | unique | join(', ') }}"

- name: Show how many GPUs of the fleet are free
  ansible.builtin.debug:
    msg: >-
      {{ ansible_play_hosts | map('extract', hostvars, 'gpu_use') | map(attribute='free') | flatten | length }}
      GPUs are free
  run_once: true
"""

RETURN = r"""
gpus:
  description:
    - The GPUs and MIG devices that can be assigned to containers, in the order of their indexes. A GPU in MIG mode is
      represented by its MIG devices.
    - Empty if NVML shows no GPU. RV(nvidia_gpu_state) then says why.
  returned: success
  type: list
  elements: dict
  contains:
    uuid:
      description: UUID of the GPU or MIG device.
      type: str
      returned: always
      sample: GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61
    index:
      description: Current index. A GPU has a number, a MIG device C(gpu:mig).
      type: raw
      returned: always
      sample: 2
    gpu_uuid:
      description: UUID of the whole GPU.
      type: str
      returned: always
      sample: GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61
    name:
      description: Product name of the GPU.
      type: str
      returned: always
      sample: NVIDIA H100 80GB HBM3
    pci_bus_id:
      description: PCI address of the GPU.
      type: str
      returned: always
      sample: "0000:3b:00.0"
    mig_profile:
      description: Profile of the MIG device. V(null) for a whole GPU.
      type: str
      returned: always
      sample: 1g.10gb
    memory_total_mib:
      description: Memory of the GPU or MIG device in MiB.
      type: int
      returned: always
      sample: 81559
    health:
      description: Health of the GPU, V(ok), V(degraded) or V(lost), as in M(gpufleet.hosts.nvidia_gpu_facts).
      type: str
      returned: always
      sample: ok
    unusable_reason:
      description: Why M(gpufleet.hosts.gpu_container) does not select the GPU for a count. V(null) if it is usable.
      type: str
      returned: always
      sample: null
    free:
      description: Whether the GPU is usable and has no holder.
      type: bool
      returned: always
      sample: false
    exclusive:
      description: Whether a holder uses the GPU exclusively.
      type: bool
      returned: always
      sample: true
    holders:
      description: What holds the GPU or MIG device. The holder of a GPU also holds its MIG devices, and vice versa.
      type: list
      elements: dict
      returned: always
      contains:
        name:
          description:
            - Name of the container, C(namespace/name) of the pod, or command of the process. A container of an engine
              other than Docker and Podman can have the beginning of its identifier here.
          type: str
          returned: always
          sample: trainer
        kind:
          description:
            - V(container), V(pod), V(process) or V(job). A process is one outside containers. A job is one of Slurm,
              and has its GPUs exclusively even while it does not use them.
          type: str
          returned: always
          sample: container
        engine:
          description: Engine of the container, V(kubernetes) for a pod, V(null) for a process.
          type: str
          returned: always
          sample: docker
        user:
          description: User of the process or of the rootless engine, else V(null).
          type: str
          returned: always
          sample: null
        pid:
          description: Process ID of the process, else V(null).
          type: int
          returned: always
          sample: null
        exclusive:
          description: Whether the container requested exclusive use, or Kubernetes gave the GPU to this pod only.
          type: bool
          returned: always
          sample: true
        detail:
          description:
            - The state of a stopped container that still holds the GPU, a note that a running task has reserved the
              GPU, or the process whose container did not request the GPU.
            - V(null) for other holders.
          type: str
          returned: always
          sample: exited, restart policy always
free:
  description: UUIDs of the GPUs and MIG devices that are usable and have no holder.
  returned: success
  type: list
  elements: str
  sample: [GPU-9c2d7b4c-6e1f-4a38-b5d7-0f8a1c3e5b92]
containers:
  description: The containers of Docker and Podman that have GPUs, running or not. Those of other engines, and of other
    users' rootless engines, are only in RV(gpus[].holders).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the container.
      type: str
      returned: always
      sample: trainer
    id:
      description: Identifier of the container.
      type: str
      returned: always
      sample: f1d2d2f924e986ac86fdf7b36c94bcdf32beec15b38a1d6b7e0c4f3a2b1c0d9e
    engine:
      description: Engine of the container.
      type: str
      returned: always
      sample: docker
    image:
      description: Image of the container.
      type: str
      returned: always
      sample: registry.example.com/trainer:7
    state:
      description: State of the container, as the engine names it.
      type: str
      returned: always
      sample: running
    holds_gpus:
      description:
        - Whether the container holds its GPUs. A stopped container holds them only if the engine starts it again.
      type: bool
      returned: always
      sample: true
    exclusive:
      description: Whether M(gpufleet.hosts.gpu_container) started the container for exclusive use.
      type: bool
      returned: always
      sample: true
    isolation:
      description: How the container gets access to its GPUs.
      type: str
      returned: always
      sample: cdi
    uuids:
      description: UUIDs of the GPUs. A GPU that the host no longer has is named as the container names it.
      type: list
      elements: str
      returned: always
      sample: [GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61]
    indexes:
      description: Current indexes of the GPUs that the host has.
      type: list
      elements: raw
      returned: always
      sample: [2]
engines:
  description: The engines C(docker) and C(podman).
  returned: success
  type: dict
  contains:
    docker:
      description: Docker. C(podman) has the same keys.
      type: dict
      returned: always
      contains:
        listed:
          description: Whether the containers of the engine are listed.
          type: bool
          returned: always
          sample: true
        reason:
          description: Why the containers are not listed, for example because the engine is not installed.
          type: str
          returned: always
          sample: null
        version:
          description: Version of the engine.
          type: str
          returned: always
          sample: 28.5.1
        rootless:
          description: Whether the engine runs without root.
          type: bool
          returned: always
          sample: false
unseen:
  description:
    - What the module cannot see although it may hold GPUs, for example the containers of an engine that fails. The task
      also shows these sentences as warnings.
  returned: success
  type: list
  elements: str
  sample: []
nvidia_gpu_state:
  description: State of the host's GPUs, as M(gpufleet.hosts.nvidia_gpu_facts) returns it.
  returned: success
  type: str
  sample: ready
nvidia_gpu_state_reason:
  description: The reason for the state, and what to do.
  returned: success
  type: str
  sample: NVML shows 8 GPUs.
"""

import contextlib
import os

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import option_limits as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.masked_module import MaskedModule as AnsibleModule
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import runner
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import is_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import engine_choice, slurm_jobs, vendor_of_host
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import (
    ReservationError,
    Reservations,
    directory_for,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.required_readings import PROCESSES
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import stopped_engine
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    Docker,
    Podman,
    UnavailableEngine,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import pynvml_kept_until_boot as nvml_binding
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing
from ansible_collections.gpufleet.hosts.plugins.module_utils.usage import gpu_usage_report as usage_report

# What the report needs of a vendor, and the same of nvidia_gpu_facts. NVLinks belong to the health of a GPU.
SELECTED = (PROCESSES,)
SUBSETS = frozenset({"min", "identity", "nvlink", "processes"})


def main() -> None:
    """Read the GPUs, then the engines."""
    pinned_environment.pin()
    module = AnsibleModule(
        argument_spec={
            "accelerator": {"type": "str", "choices": list(vendor_of_host.OPTIONS), "default": vendor_of_host.AUTO},
            "docker_host": {"type": "str"},
            "driver_root": {"type": "path"},
            "timeout": {"type": "float", "default": 10},
            "_nvml_binding_path": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    fault = base_options.timeout_fault(params["timeout"]) or base_options.driver_root_fault(params["driver_root"])
    if fault:
        module.fail_json(msg=fault)
    try:
        engines = {"docker": _docker(params["docker_host"]), "podman": _podman(module)}
        facts = facts_gather.gather(
            SUBSETS,
            run=module.run_command,
            timeout=params["timeout"],
            binding_path=params["_nvml_binding_path"] or (nvml_binding.remembered() if is_root() else None),
            driver_root=params["driver_root"],
        )["facts"]
    except BindingMissing as error:
        module.fail_json(**error.result())
    except EngineError as error:
        module.fail_json(msg=str(error))
    host = vendor_of_host.VendorHost(
        {**params, "cdi_kind": None, "driver_root": None}, module.run_command, lambda _subsets: facts
    )
    try:
        accelerator = vendor_of_host.create(host)
    except SelectionError as error:
        module.fail_json(msg=str(error))
    with contextlib.suppress(SelectionError):  # The state of the GPUs is in the result.
        accelerator.observe(SELECTED)
    user = os.geteuid()
    try:
        result = usage_report.report(
            engines,
            accelerator,
            Reservations(directory_for(user, os.environ)),
            user=user,
            jobs=lambda inventory: slurm_jobs.find(runner(module), inventory),
        )
    except ReservationError as error:
        module.fail_json(msg=str(error))
    for sentence in result["unseen"]:
        module.warn(sentence)
    module.exit_json(
        changed=False,
        nvidia_gpu_state=facts["nvidia_gpu_state"],
        nvidia_gpu_state_reason=facts["nvidia_gpu_state_reason"],
        **result,
    )


def _docker(option: str | None) -> Docker | UnavailableEngine:
    options = {"docker_host": option}
    host = engine_choice.docker_host(options, os.environ)
    remote = engine_choice.remote_docker(host, options, os.environ)
    if remote:
        raise EngineError(remote)
    docker = Docker(host)
    if docker.socket and stopped_engine.is_socket_activated(docker.socket):
        return UnavailableEngine("docker", "docker is not running")
    return docker


def _podman(module: AnsibleModule) -> Podman | UnavailableEngine:
    if stopped_engine.podman() is not None:
        # The first call would create Podman's storage.
        return UnavailableEngine("podman", "podman has no containers of this user")
    return Podman(module.run_command, module.get_bin_path("podman"))


if __name__ == "__main__":
    main()
