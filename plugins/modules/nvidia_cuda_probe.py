#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_cuda_probe
short_description: Let each GPU compute, without a CUDA toolkit
version_added: 0.1.0
description:
  - Asks CUDA which GPUs there are, and lets each of them work. Bytes go to its memory, are copied there and come back,
    and a small kernel runs whose result is compared with the CPU's.
  - Needs the driver's C(libcuda.so.1) and C(libnvidia-ptxjitcompiler.so.1) and nothing else, neither a toolkit nor a
    framework nor a Python package. The driver compiles the kernel for each GPU.
  - A GPU's result is C(PASS) or the error in words, with what to do about it.
  - The work is done in a child process. A driver that hangs or crashes is a result like any other, and the remaining
    GPUs are probed by a new process.
attributes:
  check_mode:
    support: full
    description: Can run in check_mode and return changed status prediction without modifying target.
    details:
      - Nothing is ever changed, so check mode does the same.
  diff_mode:
    support: none
    description: Will return details on what has changed (or possibly needs changing in check_mode), when in diff mode.
  idempotent:
    support: full
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no change.
options:
  gpus:
    description:
      - The GPUs to probe, each by index in the order of nvidia-smi, by UUID or the beginning of one, or a MIG device by
        its UUID.
      - Without it every GPU that CUDA shows. Of a GPU with MIG on CUDA shows one MIG device at most, so name these.
    type: list
    elements: str
  memory_mib:
    description: Size of the memory round trip in MiB. It takes twice as much of the GPU's memory.
    type: int
    default: 8
  timeout:
    description:
      - Seconds that the driver is waited for, all GPUs together, before it counts as hung. More than 0 and at most
        3600.
    type: float
    default: 60
  driver_root:
    description: Root of the driver's files where they are not the host's own, for example V(/run/nvidia/driver).
    type: path
    default: /
  library:
    description: Path of C(libcuda.so.1), where it is neither known to the loader nor in a usual directory.
    type: path
  fail_on_error:
    description:
      - Whether the task fails when a GPU does not pass, or CUDA shows none.
      - With V(false) the result says so, in RV(passed).
    type: bool
    default: true
notes:
  - A GPU's memory and compute units are used for some milliseconds, in its primary context. No setting is changed.
  - A GPU in compute mode C(Exclusive_Process) that another process uses does not pass. The result says so.
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.nvidia_gpu_facts
"""

EXAMPLES = r"""
- name: Every GPU has to compute
  gpufleet.hosts.nvidia_cuda_probe:

- name: Look, and decide later
  gpufleet.hosts.nvidia_cuda_probe:
    fail_on_error: false
  register: cuda

- name: Say what the GPUs answered
  ansible.builtin.debug:
    msg: "{{ item.index }} {{ item.name }}: {{ item.result }}"
  loop: "{{ cuda.gpus }}"
  loop_control:
    label: "{{ item.uuid }}"

- name: One GPU with half a gibibyte, after its exchange
  gpufleet.hosts.nvidia_cuda_probe:
    gpus: [GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61]
    memory_mib: 512
"""

RETURN = r"""
passed:
  description: Whether there is a GPU and every one that was probed passed.
  returned: always
  type: bool
  sample: true
cuda_version:
  description: The newest CUDA that the driver serves.
  returned: always
  type: str
  sample: "13.0"
library:
  description: The library that was loaded, a path or the name that the loader found it by.
  returned: always
  type: str
  sample: libcuda.so.1
device_count:
  description: How many GPUs CUDA shows, probed or not.
  returned: always
  type: int
  sample: 1
error:
  description: What kept the probe from being made, in words. Null if it was made.
  returned: always
  type: str
  sample: "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803), system has unsupported display driver / cuda driver \
    combination; libcuda and the loaded kernel module are of different versions; reload the module or reboot"
error_code:
  description: The CUresult of RV(error), null where it is not from CUDA.
  returned: always
  type: int
  sample: 803
gpus:
  description: The GPUs that were probed, and those that were asked for and are not there.
  returned: always
  type: list
  elements: dict
  contains:
    index:
      description: Index in the order of nvidia-smi.
      type: int
      returned: always
      sample: 0
    uuid:
      description: UUID as nvidia-smi writes it.
      type: str
      returned: always
      sample: GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61
    name:
      description: Product name.
      type: str
      returned: always
      sample: NVIDIA H200
    pci_bus_id:
      description: PCI address as the kernel writes it.
      type: str
      returned: always
      sample: "0000:3b:00.0"
    compute_capability:
      description: Compute capability.
      type: str
      returned: always
      sample: "9.0"
    memory_total_mib:
      description: Memory in MiB that CUDA can use, less than what the board has.
      type: int
      returned: always
      sample: 143155
    attributes:
      description:
        - What deviceQuery prints besides, each with its unit in the name. Null where the driver does not know it.
      type: dict
      returned: always
      sample:
        multiprocessors: 132
        clock_rate_khz: 1980000
        memory_bus_width_bits: 6016
        l2_cache_bytes: 62914560
        warp_size: 32
        ecc_enabled: true
        compute_mode: default
    memory_round_trip:
      description: Whether the bytes came back as they were. Null if it did not come to that.
      type: bool
      returned: always
      sample: true
    memory_round_trip_ms:
      description: Milliseconds that it took.
      type: float
      returned: always
      sample: 31.2
    kernel:
      description: Whether the kernel's result is the CPU's. Null if it did not come to that.
      type: bool
      returned: always
      sample: true
    kernel_ms:
      description: Milliseconds that compiling, running and comparing took.
      type: float
      returned: always
      sample: 34.5
    passed:
      description: Whether all of it went well.
      type: bool
      returned: always
      sample: true
    result:
      description: C(PASS), or what went wrong and what to do about it.
      type: str
      returned: always
      sample: PASS
    error_code:
      description: The CUresult of the error, null without one.
      type: int
      returned: always
      sample: null
"""

import re

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import options as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import libcuda

MEMORY_MIB_MAX = 16384
GPU = re.compile(r"(\d+|GPU-[0-9a-f]+[0-9a-f-]*|MIG-[0-9A-Za-z/-]+)", re.IGNORECASE)


def objection(params: dict) -> str | None:
    """Say what is wrong with the options, None if nothing is."""
    if params["gpus"] is not None and not params["gpus"]:
        return "gpus is an empty list: name a GPU, or leave the option out to probe all of them"
    for gpu in params["gpus"] or ():
        if not GPU.fullmatch(gpu):
            return (
                f"gpus: '{gpu}' is neither an index (0), nor a GPU's UUID or its beginning (GPU-5a6f3c1e), nor a MIG "
                f"device's UUID (MIG-…)"
            )
    if not 1 <= params["memory_mib"] <= MEMORY_MIB_MAX:
        return f"memory_mib={params['memory_mib']} is not between 1 and {MEMORY_MIB_MAX}"
    return base_options.timeout_fault(params["timeout"]) or base_options.driver_root_fault(params["driver_root"])


def complaint(result: dict) -> str:
    """Say in one line what did not pass."""
    if result["error"]:
        return f"CUDA cannot be used: {result['error']}"
    failed = [gpu for gpu in result["gpus"] if not gpu["passed"]]
    names = [f"GPU {gpu['uuid'] if gpu['index'] is None else gpu['index']}: {gpu['result']}" for gpu in failed]
    return f"{len(failed)} of {len(result['gpus'])} GPUs did not pass. {' | '.join(names)}"


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "gpus": {"type": "list", "elements": "str"},
            "memory_mib": {"type": "int", "default": 8},
            "timeout": {"type": "float", "default": 60},
            "driver_root": {"type": "path", "default": "/"},
            "library": {"type": "path"},
            "fail_on_error": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    problem = objection(params)
    if problem:
        module.fail_json(msg=problem)
    result = libcuda.probe(
        params["gpus"],
        library=params["library"],
        driver_root=params["driver_root"],
        memory_mib=params["memory_mib"],
        timeout=params["timeout"],
    )
    if params["fail_on_error"] and not result["passed"]:
        module.fail_json(msg=complaint(result), **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
