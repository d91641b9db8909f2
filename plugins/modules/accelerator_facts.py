#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: accelerator_facts
short_description: Gather facts about the GPUs and accelerators of all vendors
version_added: 0.1.0
description:
  - Returns the GPUs and accelerators of NVIDIA, AMD, AWS Neuron, Intel Gaudi and Intel in one schema, and a state for
    each vendor. No tool of a vendor is required.
  - The module succeeds in every state of a host. Without a driver, it returns what the PCI bus shows.
  - NVIDIA's devices have the values of M(gpufleet.hosts.nvidia_gpu_facts). They are read through pynvml. If the host
    has none, the controller sends its own copy (C(pip install nvidia-ml-py)) and removes it after the call. Hosts
    without an NVIDIA driver need no pynvml.
  - AMD's GPUs are read from sysfs. Each partition of a partitioned GPU is a device.
  - AWS Neuron's chips are read from sysfs. Their PCI addresses come from C(neuron-ls), from the kernel log, or from the
    driver. To ask the driver, the module opens the device node of the chip for writing only, and writes nothing.
  - Intel Gaudi's accelerators are read from sysfs. Their device nodes are never opened, because the driver resets an
    accelerator when its node is closed.
  - Of Intel, only the PCI bus is read.
  - The module never writes to sysfs.
extends_documentation_fragment:
  - gpufleet.hosts.attributes.reader
  - gpufleet.hosts.options
attributes:
  facts:
    support: full
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
options:
  vendors:
    description: Vendors to read.
    type: list
    elements: str
    choices: [nvidia, amd, neuron, gaudi, intel]
    default: [nvidia, amd, neuron, gaudi, intel]
  read_ras:
    description:
      - Whether to read the error counters of AMD's MI200 GPUs (MI210, MI250, MI250X). On these GPUs, reading clears the
        error status in the hardware, so that other programs miss the errors.
      - The counters of AMD's other GPUs are always read.
    type: bool
    default: false
  timeout:
    description:
      - Seconds to wait for NVIDIA's driver, at the start and for each GPU. The value must be above 0 and at most 3600.
    type: float
    default: 10
  driver_root:
    description: >-
      Directory that contains the user-space libraries of NVIDIA's driver. See M(gpufleet.hosts.nvidia_gpu_facts).
    type: path
notes:
  - A value that was not read is V(null), never 0.
  - Some values are readable only with C(become=true).
seealso:
  - module: gpufleet.hosts.nvidia_gpu_facts
author:
  - gpufleet maintainers (@gpufleet)
"""

EXAMPLES = r"""
- name: Gather facts about all accelerators
  gpufleet.hosts.accelerator_facts:
  become: true

- name: Show the devices that are not healthy
  ansible.builtin.debug:
    msg: "{{ item.vendor }} {{ item.stable_id }} is {{ item.health.state }}: {{ item.health.reasons | join('; ') }}"
  loop: "{{ ansible_facts.accelerators | rejectattr('health.state', 'equalto', 'ok') }}"

- name: Group hosts by the vendors whose devices are usable
  ansible.builtin.group_by:
    key: "accelerators_{{ item.key }}"
  loop: "{{ ansible_facts.accelerator_vendors | dict2items | selectattr('value.state', 'equalto', 'ready') }}"

- name: Read AMD's GPUs only, with the error counters of MI200
  gpufleet.hosts.accelerator_facts:
    vendors: [amd]
    read_ras: true
  become: true
"""

RETURN = r"""
ansible_facts:
  description: Facts of the host.
  returned: always
  type: dict
  contains:
    accelerators:
      description: GPUs, partitions and accelerators, in the order of the vendors and their indexes.
      returned: always
      type: list
      elements: dict
      contains:
        vendor:
          description: V(nvidia), V(amd), V(neuron), V(gaudi) or V(intel).
          returned: always
          type: str
          sample: amd
        kind:
          description: V(gpu) or V(accelerator).
          returned: always
          type: str
          sample: gpu
        generation:
          description: Generation, as the vendor names it.
          returned: always
          type: str
          sample: gfx942
        model:
          description: Product name.
          returned: always
          type: str
          sample: AMD Instinct MI300X OAM
        pci_address:
          description: Address of the PCI function. Partitions have the address of their GPU.
          returned: always
          type: str
          sample: "0000:05:00.0"
        pci_id:
          description: Vendor ID and device ID of the PCI function.
          returned: always
          type: str
          sample: "1002:74a1"
        index:
          description: Number in the vendor's own order. V(null) for a MIG device and for a device without a driver.
          returned: always
          type: int
          sample: 0
        stable_id:
          description: >-
            Identity of the device. For a partition of AMD, it ends with V(/) and the number of the partition.
          returned: always
          type: str
          sample: e3a9c0ffee123456
        stable_id_kind:
          description: >-
            Kind of RV(ansible_facts.accelerators[].stable_id): V(uuid), V(unique_id), V(module_id) or V(pci_address).
          returned: always
          type: str
          sample: unique_id
        numa_node:
          description: NUMA node.
          returned: always
          type: int
          sample: 0
        nodes:
          description: Device nodes. V(null) if they are not known.
          returned: always
          type: list
          elements: dict
          contains:
            path:
              description: Path of the node.
              returned: always
              type: str
              sample: /dev/dri/renderD128
            role:
              description: >-
                Use of the node. V(control) cannot compute. NVIDIA's and AMD's is shared by all devices. V(device),
                V(render), V(card) and V(rdma) belong to one device.
              returned: always
              type: str
              sample: render
            gid:
              description: ID of the node's group on the host. V(null) if the node does not exist.
              returned: always
              type: int
              sample: 992
        memory_total_mib:
          description: Total memory in MiB.
          returned: always
          type: int
          sample: 196592
        memory_used_mib:
          description: Used memory in MiB.
          returned: always
          type: int
          sample: 512
        temperature_c:
          description: Temperature in degrees Celsius.
          returned: always
          type: int
          sample: 41
        power_w:
          description: Power draw in watts.
          returned: always
          type: float
          sample: 142.0
        utilization_percent:
          description: Utilization in percent.
          returned: always
          type: int
          sample: 7
        errors:
          description: Errors since the driver was loaded. For a partition, those of its GPU.
          returned: always
          type: dict
          contains:
            corrected:
              description: Corrected errors.
              returned: always
              type: int
              sample: 0
            uncorrected:
              description: Uncorrected errors.
              returned: always
              type: int
              sample: 0
            pending:
              description: Whether the next reset of the device repairs or retires memory.
              returned: always
              type: bool
              sample: false
        links:
          description: Connections to other devices. V(null) if they were not read.
          returned: always
          type: dict
          contains:
            fabric:
              description: Equal for the devices of a host in the same fabric, such as an XGMI hive.
              returned: always
              type: str
              sample: d2ca1ad46147c377
            peers:
              description: Stable IDs of the devices with a direct link.
              returned: always
              type: list
              elements: str
              sample: ["093fe3a1b2c4d5e6"]
        partition:
          description: Partition mode, and for a partition its number and its GPU.
          returned: always
          type: dict
          contains:
            mode:
              description: Partition mode of the GPU, such as V(SPX), V(CPX) or V(mig). For a MIG device, its profile.
              returned: always
              type: str
              sample: CPX
            id:
              description: Number of the partition within its GPU. V(null) for a whole GPU.
              returned: always
              type: int
              sample: 3
            parent:
              description: Stable ID of the GPU of a partition.
              returned: always
              type: str
              sample: e3a9c0ffee123456
        cores:
          description: Number of units that the vendor can assign separately. For AMD, the accelerator complex dies.
          returned: always
          type: int
          sample: 8
        driver_version:
          description: Version of the kernel driver. For a driver of the kernel itself, the version of the kernel.
          returned: always
          type: str
          sample: 6.16.13
        firmware:
          description: Firmware versions by name.
          returned: always
          type: dict
          sample: {mec: "0x000000a8", vbios: 113-M3000100-102}
        health:
          description: Health of the device.
          returned: always
          type: dict
          contains:
            state:
              description: V(ok), V(degraded), V(lost) or V(unknown).
              returned: always
              type: str
              sample: ok
            reasons:
              description: Why the device is not healthy, and what to do.
              returned: always
              type: list
              elements: str
              sample: []
        unread:
          description: Why values could not be read, by key.
          returned: always
          type: dict
          sample: {power_w: "power1_average: the device has no data (ENODATA)"}
    accelerator_vendors:
      description: State of each vendor.
      returned: always
      type: dict
      contains:
        nvidia:
          description: State of NVIDIA.
          returned: if O(vendors) contains V(nvidia)
          type: dict
          contains: &vendor_state
            state:
              description: >-
                V(ready), V(no_hardware), V(no_driver), V(driver_not_loaded), V(version_mismatch) or V(error).
              returned: always
              type: str
              sample: ready
            reason:
              description: The reason for the state, and what to do.
              returned: always
              type: str
              sample: NVML shows 8 GPUs.
            driver_version:
              description: Version of the loaded driver.
              returned: always
              type: str
              sample: 580.95.05
            devices:
              description: Number of the vendor's devices in RV(ansible_facts.accelerators).
              returned: always
              type: int
              sample: 8
            skipped:
              description: PCI functions of the vendor that are not counted as devices.
              returned: always
              type: list
              elements: dict
              contains:
                pci_address:
                  description: Address of the PCI function.
                  returned: always
                  type: str
                  sample: "0000:0a:00.0"
                reason:
                  description: Why the function is not counted.
                  returned: always
                  type: str
                  sample: no KFD node, so not a GPU that computes
        amd:
          description: State of AMD.
          returned: if O(vendors) contains V(amd)
          type: dict
          contains: *vendor_state
        neuron:
          description: State of AWS Neuron.
          returned: if O(vendors) contains V(neuron)
          type: dict
          contains: *vendor_state
        gaudi:
          description: State of Intel Gaudi.
          returned: if O(vendors) contains V(gaudi)
          type: dict
          contains: *vendor_state
        intel:
          description: State of Intel.
          returned: if O(vendors) contains V(intel)
          type: dict
          contains: *vendor_state
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import module_call as accelerators_call
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment


def main() -> None:
    """Run the module."""
    pinned_environment.pin()
    module = AnsibleModule(argument_spec=accelerators_call.OPTIONS, supports_check_mode=True)
    result = accelerators_call.result(module.params, module.run_command)
    if result.get("failed"):
        module.fail_json(**result)
    if result.get("nvml_binding_missing"):
        module.warn(result["ansible_facts"]["accelerator_vendors"]["nvidia"]["reason"])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
