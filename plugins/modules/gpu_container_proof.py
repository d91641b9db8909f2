#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_container_proof
short_description: Prove that containers see the GPUs and can compute
version_added: 0.1.0
description:
  - Starts a container by each way in which an engine of the host gives GPUs to containers - Docker's C(--gpus all),
    NVIDIA's runtime, CDI, and the driver volume. In each container, NVML must show exactly the GPUs of the host, and
    CUDA must compute on each of them, like M(gpufleet.hosts.nvidia_cuda_probe) does. Then it removes the container.
  - With O(accelerator=neuron), each container must have exactly the device nodes of the usable AWS Neuron chips, and
    must be able to open them. The ways are CDI, the device nodes themselves, and the runtime of the vendor's hook.
    Nothing computes.
  - The image does not come from a registry. By default, the module builds it from the Python of the host and the
    libraries of this Python.
  - Playbook C(gpufleet.hosts.site) runs the module after changes, and after each boot.
extends_documentation_fragment:
  - gpufleet.hosts.attributes
attributes:
  check_mode:
    details:
      - In check mode, the module says whether it would run the proof. It starts no container.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - With O(key), the second run starts nothing. Without O(key), every run starts containers, and indicates no
        change.
options:
  state:
    description:
      - V(present) runs the proof.
      - V(absent) removes the record, the images that the module built, and the containers of an interrupted proof. It
        fails if an engine of the last proof is installed but does not answer.
    type: str
    choices: [present, absent]
    default: present
  engines:
    description:
      - The engines to test. An engine of this list that does not answer is an error. For Podman, which is often
        installed without being used, it is only a warning if another engine of the list answers.
      - By default, the module tests each engine that answers, and containerd only on a host without Docker.
      - The module uses containerd through its client C(ctr), in a namespace of its own.
    type: list
    elements: str
    choices: [docker, podman, containerd]
    default: []
  image:
    description:
      - An image that Docker or Podman already has. It needs C(sh) and the C library. If it has Python 3.9 or later,
        the module also checks the GPUs with CUDA. Otherwise it lists them with the driver's C(nvidia-smi).
      - By default, and for engines that do not have the image, the module builds an image on the host. With containerd,
        it always does.
    type: str
    default: ""
  isolations:
    description:
      - Isolations that an engine must offer. Other isolations are tested if an engine offers them.
      - V(device_requests) and V(volume) require O(accelerator=nvidia), and V(devices) requires O(accelerator=neuron).
    type: list
    elements: str
    choices: [cdi, device_requests, devices, runtime, volume]
    default: []
  accelerator:
    description:
      - Whose devices the containers must see. V(neuron) are the chips of AWS Inferentia and Trainium.
      - With V(neuron), O(image) and O(key) are errors. Every run starts containers, in an image that the
        module builds, and writes no record.
    type: str
    choices: [nvidia, neuron]
    default: nvidia
  key:
    description:
      - What the result depends on, such as the versions of driver and engine. If the last proof passed with the same
        key, the module starts nothing.
      - Without a key, the module runs the proof and writes no record.
    type: dict
notes:
  - The module requires root.
  - A proof uses each GPU for a short time. If other programs use all memory of a GPU or use it exclusively, the module
    does not check it with CUDA and does not fail.
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.gpu_container
  - module: gpufleet.hosts.nvidia_cuda_probe
"""

EXAMPLES = r"""
- name: Prove that the containers of all engines see the GPUs
  gpufleet.hosts.gpu_container_proof:
  register: proof

- name: Show each command, and what its container saw
  ansible.builtin.debug:
    msg: "{{ item.command }}: {{ item.devices | length }} devices, check {{ item.check }}"
  loop: "{{ proof.methods }}"
  loop_control:
    label: "{{ item.engine }} {{ item.isolation }}"

- name: Fail unless containers can get GPUs through CDI
  gpufleet.hosts.gpu_container_proof:
    engines: [podman]
    isolations: [cdi]

- name: Prove that containers see the chips of an inf2 instance, and fail unless they can get the device nodes
  gpufleet.hosts.gpu_container_proof:
    accelerator: neuron
    isolations: [devices]

- name: Remove what the proofs left on the host
  gpufleet.hosts.gpu_container_proof:
    state: absent
"""

RETURN = r"""
methods:
  description: The containers that were started, or would have been if the last proof had not passed with the same key.
  returned: with O(state=present), except in check mode
  type: list
  elements: dict
  contains:
    engine:
      description: The engine.
      type: str
      returned: always
      sample: docker
    isolation:
      description: How the container got its GPUs, as in M(gpufleet.hosts.gpu_container).
      type: str
      returned: always
      sample: device_requests
    command:
      description: The command line of the engine, without image and program.
      type: str
      returned: always
      sample: docker run --gpus all
    devices:
      description:
        - The UUIDs that NVML showed in the container. MIG devices stand for a GPU in MIG mode. For other accelerators,
          the stable IDs, as in M(gpufleet.hosts.accelerator_facts), of the chips whose device nodes the container has.
      type: list
      elements: str
      returned: always
      sample: [GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61]
    check:
      description:
        - Whether the container can use the devices - V(passed), or V(not probed) with the reason.
        - For NVIDIA's GPUs, the check computes with CUDA. For AWS Neuron's chips, it opens the device nodes.
      type: str
      returned: always
      sample: passed
    passed:
      description:
        - Whether the container saw the expected GPUs and CUDA did not fail. For AWS Neuron's chips, whether it has
          exactly the expected device nodes and can open all that the host can open.
      type: bool
      returned: always
      sample: true
obstacles:
  description: Why an engine does not offer an isolation, by engine and isolation.
  returned: if containers were started
  type: dict
  sample:
    docker cdi: no CDI specification in /etc/cdi, /var/run/cdi names GPU 0 (GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61)
problems:
  description: Why the proof failed.
  returned: on failure
  type: list
  elements: str
  sample: []
reason:
  description: Why the proof is necessary. Null if the last one passed with the same key, or without O(key).
  returned: with O(state=present)
  type: str
  sample: the host was booted
"""

import os
import sys
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    gather_all_vendors as accelerators_gather,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned, pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.masked_module import MaskedModule as AnsibleModule
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import is_root, needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.temporary_directories import (
    remove_abandoned,
    workspace,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.neuron.vendor import NeuronVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import NEURON, NVIDIA
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import (
    engines_on_host,
    engines_to_prove,
    last_proof_record,
    method_results,
    neuron_chips,
    options_allowed_for_accelerator,
    prove_methods,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.proof_containers import StartError
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.proof_image import REPOSITORY


def main() -> None:
    """Run the module."""
    pinned_environment.pin()
    strings = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "engines": {**strings, "choices": list(engines_on_host.ENGINES)},
            "image": {"type": "str", "default": ""},
            "isolations": {
                **strings,
                "choices": sorted(set().union(*options_allowed_for_accelerator.ISOLATIONS.values())),
            },
            "accelerator": {"type": "str", "choices": [NVIDIA, NEURON], "default": NVIDIA},
            "key": {"type": "dict", "no_log": False},
        },
        supports_check_mode=True,
    )
    if not is_root():
        module.fail_json(msg=needs_root(os.geteuid()))

    def run(argv: list[str]) -> tuple[int, str, str]:
        program = pinned_environment.find(argv[0])
        if program is None:
            return 127, "", f"{argv[0]} is not installed"
        # The program of the containers contains $ and ~.
        return module.run_command(
            [program, *argv[1:]], expand_user_and_vars=False, environ_update=pinned_environment.VARIABLES
        )

    fault = options_allowed_for_accelerator.fault(module.params)
    if fault:
        module.fail_json(msg=fault)
    try:
        if module.params["state"] == "absent":
            module.exit_json(**_absent(module, engines_on_host.ProofEngines(run)))
        module.exit_json(**_present(module, run))
    except (EngineError, StartError) as error:
        module.fail_json(msg=str(error))


def _present(module: AnsibleModule, run: Any) -> dict[str, Any]:
    params = module.params
    key = None if params["key"] is None else {name: str(value) for name, value in params["key"].items()}
    last = last_proof_record.read(engines_on_host.record_text())
    reason = None if key is None else last_proof_record.reason(last, key)
    if key is not None and reason is None and last is not None:
        return {"changed": False, "reason": None, "methods": last.methods}
    if module.check_mode:
        return {"changed": key is not None, "reason": reason}
    engines = engines_on_host.ProofEngines(run)
    with engines_on_host.locked():
        if key is not None:
            # An interrupted proof leaves this record, so that `absent` removes its image and its container.
            engines_on_host.write_record(last_proof_record.dump(last_proof_record.ProofRecord(key, None, [], [])))
        remove_abandoned()
        with workspace() as directory:
            host, subject = _subject(
                module, engines_on_host.host(run, sys.executable, directory, engines.offer), engines
            )
            clients = [
                engines.client(name) for name in engines_to_prove.choose(params["engines"], engines, module.warn)
            ]
            if clients:
                result = prove_methods.prove(clients, host, params["image"], params["isolations"], subject)
            else:
                result = method_results.ProofResult()
                module.warn(f"The proof in a container was skipped: {engines.obstacle('containerd')}.")
        if key is None and last is None:
            # Without a record, nothing says that the image is there.
            for client in clients:
                client.remove_images()
        elif key is not None:
            passed = not result.problems
            engines_on_host.write_record(
                last_proof_record.dump(last_proof_record.ProofRecord(key, passed, result.problems, result.methods()))
            )
    found = {"reason": reason, "methods": result.methods(), "obstacles": result.obstacles}
    if result.problems:
        module.fail_json(msg=" ".join(result.problems), problems=result.problems, **found)
    return {"changed": key is not None, **found}


def _subject(
    module: AnsibleModule, host: prove_methods.ProofHost, engines: engines_on_host.ProofEngines
) -> tuple[prove_methods.ProofHost, prove_methods.ProofSubject | None]:
    """Return the host with its methods, and what the containers must see. None means NVIDIA's GPUs."""
    if module.params["accelerator"] == NVIDIA:
        return host, None
    vendor = NeuronVendor(lambda: accelerators_gather.gather(dict, vendors=[NEURON]))
    subject = neuron_chips.ProofChips(vendor, host.run_program)
    return replace(host, offer=lambda client, units: engines.offer_chips(client, vendor, units)), subject


def _absent(module: AnsibleModule, engines: engines_on_host.ProofEngines) -> dict[str, Any]:
    if engines_on_host.record_text() is None:
        return {"changed": False}
    if not module.check_mode:
        with engines_on_host.locked():
            obstacles = {name: engines.obstacle(name) for name in engines_on_host.ENGINES}
            users = _engines_of_record()
            for name, obstacle in obstacles.items():
                if obstacle is not None and name in users and engines.is_installed(name):
                    raise EngineError(_image_left(name, obstacle))
            for name, obstacle in obstacles.items():
                if obstacle is None:
                    client = engines.client(name)
                    client.remove_containers()
                    client.remove_images()
            os.unlink(owned.CONTAINER_PROOF_RECORD)
    return {"changed": True}


def _engines_of_record() -> list[str]:
    """Return the engines that may have the image of the last proof. A damaged record does not name them."""
    last = last_proof_record.read(engines_on_host.record_text())
    return [name for name in engines_on_host.ENGINES if last is None or name in last.key]


def _image_left(engine: str, obstacle: str) -> str:
    return (
        f"The image of the proof cannot be removed from {engine}: {obstacle.rstrip('.')}. Start {engine} and try "
        f"again. To leave the image {REPOSITORY} in {engine}, delete {owned.CONTAINER_PROOF_RECORD}."
    )


if __name__ == "__main__":
    main()
