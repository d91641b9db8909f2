#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_cuda_probe
short_description: Check that every GPU computes correctly, without a CUDA toolkit
version_added: 0.1.0
description:
  - Lists the GPUs with CUDA and runs two checks on each of them. The first check copies data to the GPU's memory and
    back and compares it. The second check runs a small kernel and compares the result with the CPU's.
  - Requires only the driver's C(libcuda.so.1) and C(libnvidia-ptxjitcompiler.so.1). It requires no toolkit, framework
    or Python package. The driver compiles the kernel for each GPU.
  - The result of a GPU is C(PASS), or an error message with its remedy.
  - The checks run in a child process. If the driver hangs or crashes, the module reports it and probes the remaining
    GPUs in a new process.
extends_documentation_fragment:
  - gpufleet.hosts.attributes.reader
options:
  gpus:
    description:
      - The GPUs to probe. Each item is an index in the order of nvidia-smi, a GPU's UUID or the beginning of a UUID, or
        the UUID of a MIG device.
      - By default, the module probes every GPU that CUDA lists. CUDA lists at most one MIG device of a GPU in MIG mode,
        so name the MIG devices to probe.
    type: list
    elements: str
  memory_mib:
    description: Size of the memory check in MiB. The check allocates twice as much GPU memory.
    type: int
    default: 8
  matrix_size:
    description:
      - Rows and columns of two matrices. If set, the module also measures the product of these matrices on each GPU, to
        find GPUs that are slower than others of the same model. The value must be a multiple of 64.
      - The product uses a kernel of this module, so its speed is not comparable with that of libraries.
      - Processes that use the GPU at the same time are slowed down.
    type: int
  matrix_repetitions:
    description: How often to measure the matrix product, after two products that do not count.
    type: int
    default: 10
  timeout:
    description:
      - Seconds to wait for the driver, for all GPUs together. If a GPU hangs, the probe of the remaining GPUs gets the
        same time again. The value must be above 0 and at most 3600.
    type: float
    default: 60
  driver_root:
    description: Root directory of the driver's files, for example V(/run/nvidia/driver) for a driver container.
    type: path
    default: /
  library:
    description:
      - Path of C(libcuda.so.1). Set it if neither the dynamic loader nor the usual directories provide the library.
    type: path
  fail_on_error:
    description:
      - Whether the task fails if a GPU does not pass or CUDA lists no GPU.
      - With V(false), check RV(passed) instead.
    type: bool
    default: true
notes:
  - The module uses each GPU for a few milliseconds, in its primary context. It changes no GPU setting.
  - A GPU in compute mode C(Exclusive_Process) does not pass while another process uses it.
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.nvidia_gpu_facts
"""

EXAMPLES = r"""
- name: Fail if a GPU does not compute correctly
  gpufleet.hosts.nvidia_cuda_probe:

- name: Probe all GPUs without failing
  gpufleet.hosts.nvidia_cuda_probe:
    fail_on_error: false
  register: cuda

- name: Show the result of each GPU
  ansible.builtin.debug:
    msg: "{{ item.index }} {{ item.name }}: {{ item.result }}"
  loop: "{{ cuda.gpus }}"
  loop_control:
    label: "{{ item.uuid }}"

- name: Probe a replacement GPU, and check 512 MiB of its memory
  gpufleet.hosts.nvidia_cuda_probe:
    gpus: [GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61]
    memory_mib: 512

- name: Measure a matrix product, to find a slow GPU
  gpufleet.hosts.nvidia_cuda_probe:
    matrix_size: 4096
  register: cuda

- name: Show the speed of each GPU
  ansible.builtin.debug:
    msg: "{{ item.name }}: {{ item.matrix.tflops }} TFLOP/s, {{ item.matrix.note }}"
  loop: "{{ cuda.gpus }}"
  loop_control:
    label: "{{ item.uuid }}"
"""

RETURN = r"""
passed:
  description: Whether at least one GPU was probed and all probed GPUs passed.
  returned: always
  type: bool
  sample: true
cuda_version:
  description: The newest CUDA version that the driver supports.
  returned: always
  type: str
  sample: "13.0"
library:
  description: The library that was loaded, as a path or as a name that the dynamic loader resolved.
  returned: always
  type: str
  sample: libcuda.so.1
device_count:
  description: Number of GPUs that CUDA lists. Null if O(gpus) names only MIG devices.
  returned: always
  type: int
  sample: 1
error:
  description: Why no GPU could be probed. Null if GPUs were probed.
  returned: always
  type: str
  sample: "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803), system has unsupported display driver / cuda driver \
    combination. libcuda and the loaded kernel module have different versions. Reload the module or reboot."
error_code:
  description: The CUresult of RV(error). Null if the error is not from CUDA.
  returned: always
  type: int
  sample: 803
gpus:
  description: The probed GPUs, and the GPUs in O(gpus) that CUDA does not list.
  returned: always
  type: list
  elements: dict
  contains:
    index:
      description: Index in the order of nvidia-smi. Null for a MIG device, which RV(gpus[].uuid) identifies.
      type: int
      returned: always
      sample: 0
    uuid:
      description: UUID in the format of nvidia-smi.
      type: str
      returned: always
      sample: GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61
    name:
      description: Product name.
      type: str
      returned: always
      sample: NVIDIA H200
    pci_bus_id:
      description: PCI address in the format of the kernel.
      type: str
      returned: always
      sample: "0000:3b:00.0"
    compute_capability:
      description: Compute capability.
      type: str
      returned: always
      sample: "9.0"
    memory_total_mib:
      description: Memory in MiB that CUDA can use. It is less than the board's memory.
      type: int
      returned: always
      sample: 143155
    attributes:
      description:
        - The other values that deviceQuery prints. Each name contains the unit. A value that the driver does not
          support is null.
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
      description: Whether the copied data was unchanged. Null if the check did not start.
      type: bool
      returned: always
      sample: true
    memory_round_trip_ms:
      description: Duration of the memory check in milliseconds.
      type: float
      returned: always
      sample: 31.2
    kernel:
      description: Whether the kernel's result equals the CPU's. Null if the check did not start.
      type: bool
      returned: always
      sample: true
    kernel_ms:
      description: Time to compile and run the kernel and to compare its result, in milliseconds.
      type: float
      returned: always
      sample: 34.5
    matrix:
      description: The matrix product. Null without O(matrix_size), and if a check failed before.
      type: dict
      returned: always
      contains:
        size:
          description: Rows and columns of the matrices.
          type: int
          returned: always
          sample: 4096
        dtype:
          description: Type of the elements, always V(float32).
          type: str
          returned: always
          sample: float32
        seconds:
          description: Duration of each repetition.
          type: list
          elements: float
          returned: always
          sample: [0.0051233, 0.0051198]
        tflops:
          description: Median speed in 10^12 floating-point operations per second.
          type: float
          returned: always
          sample: 26.84
        note:
          description: What the speed must not be compared with.
          type: str
          returned: always
          sample: not comparable with libraries
    passed:
      description: Whether the GPU passed all checks.
      type: bool
      returned: always
      sample: true
    result:
      description: C(PASS), or the error with its remedy.
      type: str
      returned: always
      sample: PASS
    error_code:
      description: The CUresult of the error. Null if the error is not from CUDA or the GPU passed.
      type: int
      returned: always
      sample: null
"""

import re

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import option_limits as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import probe as cuda_probe
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import probe_matrix_speed

MEMORY_MIB_MAX = 16384
GPU = re.compile(r"(\d+|GPU-[0-9a-f]+[0-9a-f-]*|MIG-[0-9A-Za-z/-]+)", re.IGNORECASE)


def option_error(params: dict) -> str | None:
    """Return the error message for the first invalid option, or None."""
    if params["gpus"] is not None and not params["gpus"]:
        return "gpus is an empty list. Name a GPU, or omit the option to probe all GPUs."
    for gpu in params["gpus"] or ():
        if not GPU.fullmatch(gpu):
            return (
                f"gpus contains '{gpu}', which does not identify a GPU. Use an index (0), a GPU's UUID or its "
                "beginning (GPU-5a6f3c1e), or the UUID of a MIG device (MIG-\u2026)."
            )
    if not 1 <= params["memory_mib"] <= MEMORY_MIB_MAX:
        return f"memory_mib={params['memory_mib']} is invalid. Use a value from 1 to {MEMORY_MIB_MAX}."
    size, repetitions = params["matrix_size"], params["matrix_repetitions"]
    if size is not None and (
        not probe_matrix_speed.SIZE_MIN <= size <= probe_matrix_speed.SIZE_MAX or size % probe_matrix_speed.TILE
    ):
        return (
            f"matrix_size={size} is invalid. Use a multiple of {probe_matrix_speed.TILE} from "
            f"{probe_matrix_speed.SIZE_MIN} to {probe_matrix_speed.SIZE_MAX}."
        )
    if not 1 <= repetitions <= probe_matrix_speed.REPETITIONS_MAX:
        return (
            f"matrix_repetitions={repetitions} is invalid. Use a value from 1 to {probe_matrix_speed.REPETITIONS_MAX}."
        )
    return base_options.timeout_fault(params["timeout"]) or base_options.driver_root_fault(params["driver_root"])


def title(gpu: dict) -> str:
    """Return the name of a GPU or a MIG device."""
    if gpu["index"] is not None:
        return f"GPU {gpu['index']}"
    return gpu["uuid"] if cuda_probe.is_mig_uuid(gpu["uuid"]) else f"GPU {gpu['uuid']}"


def failure_message(result: dict) -> str:
    """Return why the task fails, in one line."""
    if result["error"]:
        return f"CUDA is not usable: {result['error']}"
    failed = [gpu for gpu in result["gpus"] if not gpu["passed"]]
    names = [f"{title(gpu)}: {gpu['result']}" for gpu in failed]
    return f"{len(failed)} of {len(result['gpus'])} GPUs did not pass. {' | '.join(names)}"


def main() -> None:
    """Run the module."""
    pinned_environment.pin()
    module = AnsibleModule(
        argument_spec={
            "gpus": {"type": "list", "elements": "str"},
            "memory_mib": {"type": "int", "default": 8},
            "matrix_size": {"type": "int"},
            "matrix_repetitions": {"type": "int", "default": 10},
            "timeout": {"type": "float", "default": 60},
            "driver_root": {"type": "path", "default": "/"},
            "library": {"type": "path"},
            "fail_on_error": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    error = option_error(params)
    if error:
        module.fail_json(msg=error)
    result = cuda_probe.probe(
        params["gpus"],
        library=params["library"],
        driver_root=params["driver_root"],
        memory_mib=params["memory_mib"],
        matrix_size=params["matrix_size"],
        matrix_repetitions=params["matrix_repetitions"],
        timeout=params["timeout"],
    )
    if params["fail_on_error"] and not result["passed"]:
        module.fail_json(msg=failure_message(result), **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
