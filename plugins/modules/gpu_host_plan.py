#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action plugin: plugins/action/gpu_host_plan.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_plan
short_description: Plan the changes that turn a host into a GPU host
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Checks the variables of the roles, observes the host with M(gpufleet.hosts.gpu_host_info), and plans the selected
    parts of a run from this one observation. It changes nothing.
  - Fails if a variable has an invalid value, if an unknown variable has a name that is close to a variable of a role,
    or if a part cannot be carried out on this host.
  - If the driver is to be installed, it queries the available versions once. A converged host uses no network.
  - The roles of this collection and playbook C(gpufleet.hosts.site) act on this plan.
extends_documentation_fragment:
  - gpufleet.hosts.attributes.controller
options:
  parts:
    description:
      - The parts to plan. Most have the name of their role. V(driver_volume) is the driver in a Docker volume,
        V(container_proof) shows that containers see the GPUs, and V(verify) checks that the GPUs are ready.
      - Without parts, the task only observes the host.
    type: list
    elements: str
    choices:
      - nvidia_driver
      - nvidia_persistenced
      - amd_driver
      - container_engine
      - nvidia_container_toolkit
      - neuron_driver
      - gaudi_driver
      - driver_volume
      - container_proof
      - verify
      - cuda_toolkit
    default: []
  requires_root:
    description: Fail unless the task runs as root.
    type: bool
    default: false
  collect_errors:
    description:
      - Whether the task succeeds if the parts cannot be carried out, and returns RV(errors). A playbook can then report
        all hosts before it fails some of them.
      - If there are errors, RV(changes) and RV(notes) are the only other results, and can be missing.
    type: bool
    default: false
  short:
    description:
      - Whether a host that needs nothing returns its observation as JSON text in RV(host_text), instead of RV(host) and
        RV(plan). Ansible copies each result several times, and a text faster than a dictionary.
      - The option serves the playbooks of this collection, and can change in any release.
    type: bool
    default: false
  first_plan:
    description:
      - Set this to V(false) if a part has already changed the host in this run.
      - Only the first plan waits for another package manager to finish (not in check mode), queries the available
        versions and reads the state of the GPUs.
    type: bool
    default: true
  drained:
    description:
      - Whether the host has been drained in this run. Before a drain, what uses the accelerators of AWS Neuron or Intel
        Gaudi does not prevent a change of their driver.
    type: bool
    default: false
  adopt:
    description:
      - Plan the adoption of a prepared image, as playbook C(gpufleet.hosts.dlami) does, and C(gpufleet.hosts.site) with
        C(site_adopt). The task fails if the host does not run an AWS Deep Learning AMI. On images that another program
        maintains, it plans no part.
    type: bool
    default: false
  image:
    description:
      - The kind of the image, if O(adopt=true) cannot detect it. One of C(dlami), C(eks), C(ecs), C(azure_hpc), C(dgx),
        C(gcp_deeplearning).
    type: str
    default: ""
  cloud_init_timeout:
    description:
      - Maximum seconds to wait for cloud-init before the observation. Only hosts where cloud-init is running wait. The
        task fails if it is still running after this time.
      - Without this option, the task does not wait, and RV(notes) says that cloud-init is running.
    type: int
    default: 0
  changes_before:
    description: RV(changes) of the plan that this run has carried out, for the report of O(adopt=true).
    type: list
    elements: dict
  held_before:
    description:
      - C(hold) in RV(adoption) of the plan that this run has carried out. An empty list stands for a run that held
        nothing.
    type: list
    elements: str
notes:
  - The variables of the roles are not options. The task reads them as a role does.
seealso:
  - module: gpufleet.hosts.gpu_host_info
  - module: gpufleet.hosts.package_transaction
"""

EXAMPLES = r"""
- name: Plan the driver and the container engine
  gpufleet.hosts.gpu_host_plan:
    parts: [nvidia_driver, container_engine]
  register: planned

- name: Show what the roles would change
  ansible.builtin.debug:
    msg: "{{ planned.changes }}"
"""

RETURN = r"""
drain:
  description:
    - How playbook C(site) or a role drains the host before its changes, from the variables C(site_drain_*). V(null) if
      nothing is drained.
    - If C(begins) is false, only the drain of an earlier run is ended.
  type: dict
  returned: success
  sample: {adapter: slurm, owner: gpufleet, reason: reboot, timeout: 3600, begins: true}
host:
  description: The observation, as RV(gpufleet.hosts.gpu_host_info#module:host).
  type: dict
  returned: success, unless O(short=true) and RV(converged) is V(true)
  sample: {uid: 0}
host_text:
  description: The observation as JSON text.
  type: str
  returned: success, if O(short=true) and RV(converged) is V(true)
  sample: '{"uid": 0}'
converged:
  description:
    - Whether playbook C(site) has nothing to do on the host. No part acts, nothing is drained, the GPUs are ready
      if the plan verifies them, and an adoption is recorded.
  type: bool
  returned: success
  sample: true
acting:
  description: The parts that have to act on the host. The list is empty on a converged host.
  type: list
  elements: str
  returned: success
  sample: [container_engine]
order:
  description:
    - The C(part)s in the order in which playbook C(site) applies their plans. The list is the same for all hosts.
    - C(role) is V(true) if a role of the same name applies the plan.
    - C(removal) is V(true) for the turn of a removal that comes before the changes of all other parts.
  type: list
  elements: dict
  returned: success
  sample: [{part: container_engine, role: true, removal: false}]
apply:
  description:
    - How playbook C(site) applies each part that has to act - V(planned), V(again) if the role plans again at its
      turn, or V(reported) if check mode can only report the changes.
  type: dict
  returned: success
  sample: {container_engine: planned}
removed_first:
  description: The parts whose removal comes before the changes of all other parts.
  type: list
  elements: str
  returned: success
  sample: []
changes:
  description:
    - What each part would change, in the order of the parts.
    - If the task fails, for example because a repository is unreachable, the list contains only the other parts whose
      changes are known.
  type: list
  elements: dict
  returned: success, and failure of a plan
  contains:
    part:
      description: Name of the part.
      type: str
      returned: always
      sample: container_engine
    changes:
      description: The changes. Empty if the part would change nothing.
      type: list
      elements: str
      returned: always
      sample: ["install docker.io, iptables"]
    reasons:
      description: Why the part would do this.
      type: list
      elements: str
      returned: always
      sample: ["docker is not installed; the role installs it from Debian GNU/Linux 12"]
    disruptions:
      description: What the part would interrupt on the host.
      type: list
      elements: dict
      returned: always
      contains:
        kind:
          description: V(reboot), V(driver_reload), V(engine_restart) or V(container_recreate).
          type: str
          sample: reboot
        state:
          description: >-
            V(required), V(possible) if only the run shows whether it is needed, or V(forbidden) if it is required but
            not allowed.
          type: str
          sample: forbidden
        forbidden_by:
          description: What forbids it, usually the name of a variable. Empty in other states.
          type: str
          sample: nvidia_driver_reboot_policy
        target:
          description: The unit that restarts. Empty for the host and its driver.
          type: str
          sample: docker.service
        count:
          description: The number of containers or processes that it stops.
          type: int
          sample: 0
        names:
          description: Those of them whose names are known.
          type: list
          elements: str
          sample: []
        reason:
          description: Why it is necessary.
          type: str
          sample: nouveau is bound to 0000:3b:00.0; only a reboot can unbind it
notes:
  description: What the user has to know about this plan.
  type: list
  elements: str
  returned: success, and failure of a plan
  sample: []
plan:
  description:
    - The plan of each part by its name, as the roles use it. Its keys may change in any release.
    - If it contains passwords, the result is hidden as with C(no_log).
  type: dict
  returned: success, unless O(short=true) and RV(converged) is V(true)
  sample: {container_engine: {packages: [docker.io]}}
reports:
  description: The reports of the roles that are already known before any change, by the name of the variable.
  type: dict
  returned: success
  sample: {nvidia_driver_report: {version: 550.163.01, source: distribution}}
has_secrets:
  description: Whether the plan contains passwords.
  type: bool
  returned: success
  sample: false
adoption:
  description: The result of O(adopt=true).
  type: dict
  returned: success, with O(adopt=true)
  contains:
    report:
      description:
        - The C(image), the C(instance) with its accelerators, and the C(parts). Each part has a C(state), which is
          C(adopted), C(completed) or C(left_alone), the C(version), and the C(reason).
      type: dict
      returned: always
      sample:
        parts: [{part: nvidia_driver, state: adopted, version: 595.71.05, reason: satisfies the request}]
    text:
      description: The report as the file on the host contains it.
      type: str
      returned: always
      sample: '{"parts": []}'
    is_written:
      description: Whether the host already has this file.
      type: bool
      returned: always
      sample: false
    table:
      description: The parts as lines of a table.
      type: list
      elements: str
      returned: always
      sample: ["PART           STATE    VERSION    REASON"]
    hold:
      description: The packages of CUDA, DCGM, EFA and the kept container toolkit that are not held yet.
      type: list
      elements: str
      returned: always
      sample: [datacenter-gpu-manager-4-core]
    install:
      description:
        - The package without which dnf cannot hold packages, if a part of this run installs it. In check mode, the
          simulation of the holds needs it.
      type: list
      elements: str
      returned: always
      sample: [python3-dnf-plugin-versionlock]
errors:
  description: Why the parts cannot be carried out on the host.
  type: list
  elements: str
  returned: failure, and success with O(collect_errors=true) if there are errors
  sample: ["nvidia_driver_branch is 58, which is not valid. Use the form 580."]
"""
