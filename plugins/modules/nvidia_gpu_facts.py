#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_gpu_facts
short_description: Gather facts about the NVIDIA GPUs of a host
version_added: 0.1.0
description:
  - Returns everything that provisioning, scheduling and health checks need about NVIDIA GPUs, in one call.
  - The module succeeds in every state of a host. RV(ansible_facts.nvidia_gpu_state) is the state, for example a missing
    driver or a version mismatch. RV(ansible_facts.nvidia_gpu_state_reason) says what to do. The PCI functions are
    returned in every state.
  - The module reads GPUs through pynvml. If the host has none, the controller sends its own copy (C(pip install
    nvidia-ml-py)) and removes it after the call. A host without a driver needs no pynvml.
  - Ansible's C(gather_facts) runs this module if C(FACTS_MODULES) contains it, but cannot send pynvml. Install pynvml
    on the hosts for this use. Otherwise, RV(ansible_facts.nvidia_gpu_state) is V(error) on a host with a driver.
  - A separate process calls NVML. A driver that hangs or crashes delays the module by at most O(timeout).
extends_documentation_fragment:
  - gpufleet.hosts.attributes.reader
  - gpufleet.hosts.options
attributes:
  facts:
    support: full
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
options:
  gather_subset:
    description:
      - Subsets to gather. The module always gathers V(min), which contains the identity of a GPU, its memory, its MIG
        devices and its health.
      - V(all) selects every subset. V(!name) excludes a subset. V(!all) excludes all subsets except V(min) and those
        that are listed explicitly.
      - The other subsets are V(identity), V(pci), V(memory), V(ecc), V(mig), V(power), V(clocks), V(temperature),
        V(utilization), V(nvlink), V(fabric), V(processes), V(throughput) and V(topology). The return values
        below name the subset of each field.
      - The default excludes V(processes), which shows processes of other users, and V(throughput) and V(topology),
        which are slow.
    type: list
    elements: str
    default: [all, "!processes", "!throughput", "!topology"]
  timeout:
    description:
      - Seconds to wait for the driver, at the start and for each GPU. The value must be above 0 and at most 3600.
      - After this time, RV(ansible_facts.nvidia_gpu_state) is V(error), and the GPUs that answered are returned.
      - Without the persistence daemon, a GPU takes about two seconds to initialize.
    type: float
    default: 10
  driver_root:
    description:
      - Directory that contains the driver's user-space libraries, for example in C(lib64) or C(usr/lib64).
      - If unset, the dynamic loader finds the libraries. If it does not, the module searches the usual directories of
        driver containers and cloud images, for example C(/usr/local/nvidia) and C(/run/nvidia/driver).
    type: path
notes:
  - A value is V(null) if the product, the driver or pynvml does not support it.
  - Unless stated otherwise, the values come from NVML, like those of C(nvidia-smi -q -x).
seealso:
  - name: NVML API reference
    description: The meaning of each value.
    link: https://docs.nvidia.com/deploy/nvml-api/
author:
  - gpufleet maintainers (@gpufleet)
"""

EXAMPLES = r"""
- name: Gather facts about the GPUs
  gpufleet.hosts.nvidia_gpu_facts:

- name: Fail unless the GPUs are usable
  ansible.builtin.assert:
    that: ansible_facts.nvidia_gpu_state in ["ready", "no_hardware"]
    fail_msg: "{{ ansible_facts.nvidia_gpu_state_reason }}"

- name: Gather only the minimum, for a large fleet
  gpufleet.hosts.nvidia_gpu_facts:
    gather_subset: [min]

- name: Show the unhealthy GPUs
  ansible.builtin.debug:
    msg: "{{ item.pci_bus_id }} {{ item.uuid }} is {{ item.health.state }}: {{ item.health.reasons | join('; ') }}"
  loop: "{{ ansible_facts.nvidia_gpus | rejectattr('health.state', 'equalto', 'ok') }}"

- name: Gather the topology and the GPU processes
  gpufleet.hosts.nvidia_gpu_facts:
    gather_subset: [topology, processes]

- name: Use the driver libraries of another directory
  gpufleet.hosts.nvidia_gpu_facts:
    driver_root: /opt/nvidia/driver
"""

RETURN = r"""
ansible_facts:
  description: Facts of the host.
  returned: always
  type: dict
  contains:
    nvidia_gpu_state:
      description: >-
        State of the host's GPUs. V(ready), V(no_hardware), V(no_driver), V(driver_not_loaded), V(version_mismatch) or
        V(error).
      returned: always
      type: str
      sample: ready
    nvidia_gpu_state_reason:
      description: The reason for the state, and what to do.
      returned: always
      type: str
      sample: NVML shows 8 GPUs.
    nvidia_driver:
      description: The driver. Without a driver, the values that describe it are V(null).
      returned: always
      type: dict
      contains:
        version:
          description: Version of the loaded kernel module.
          returned: always
          type: str
          sample: "580.95.05"
        library_version:
          description: Version of the user-space library.
          returned: always
          type: str
          sample: "580.95.05"
        library_path:
          description: Path of the user-space library C(libnvidia-ml.so).
          returned: always
          type: str
          sample: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05
        cuda_version:
          description: CUDA version that the driver supports.
          returned: always
          type: str
          sample: "13.0"
        nvml_version:
          description: Version of NVML.
          returned: always
          type: str
          sample: "13.580.95.05"
        kernel_module_flavor:
          description: Flavor of the loaded kernel module, V(open) or V(proprietary).
          returned: always
          type: str
          sample: open
        running_kernel:
          description: Release of the running kernel.
          returned: always
          type: str
          sample: "6.1.0-40-amd64"
        next_kernel:
          description: Release of the kernel for the next boot.
          returned: always
          type: str
          sample: "6.1.0-41-amd64"
        on_disk_version:
          description: Version of the module file for the running kernel.
          returned: always
          type: str
          sample: "580.95.05"
        on_disk_next_version:
          description: Version of the module file for the kernel of the next boot.
          returned: always
          type: str
          sample: "580.95.05"
        firmware_mode:
          description: Whether the GPUs run the driver's firmware, V(gsp), V(none) or V(mixed).
          returned: always
          type: str
          sample: gsp
        persistence_daemon:
          description: Whether nvidia-persistenced runs.
          returned: always
          type: bool
          sample: true
        wsl:
          description: Whether the host runs in Windows Subsystem for Linux (WSL2), which uses the Windows driver.
          returned: always
          type: bool
          sample: false
    nvidia_gpus:
      description: The GPUs in NVML's order. Empty if NVML does not answer.
      returned: always
      type: list
      elements: dict
      contains:
        index:
          description: NVML's number of the GPU, in the order of the PCI bus.
          returned: always
          type: int
          sample: 0
        minor:
          description: Number in the name of the device node, C(/dev/nvidia<minor>).
          returned: always
          type: int
          sample: 0
        uuid:
          description: UUID of the GPU.
          returned: always
          type: str
          sample: GPU-2678d89a-e400-594e-907f-6792b6bbbb68
        name:
          description: Name of the product.
          returned: always
          type: str
          sample: NVIDIA H100 80GB HBM3
        pci_bus_id:
          description: Address of the PCI function, as the kernel writes it.
          returned: always
          type: str
          sample: "0000:3b:00.0"
        pci_device_id:
          description: Device ID of the PCI function, hexadecimal.
          returned: always
          type: str
          sample: "0x2330"
        numa_node:
          description: NUMA node that the GPU is attached to.
          returned: always
          type: int
          sample: 0
        architecture:
          description: >-
            Architecture, one of V(kepler), V(maxwell), V(pascal), V(volta), V(turing), V(ampere), V(ada), V(hopper),
            V(blackwell) and V(rubin).
          returned: always
          type: str
          sample: hopper
        compute_capability:
          description: CUDA compute capability.
          returned: always
          type: str
          sample: "9.0"
        memory_total_mib:
          description: Memory of the GPU in MiB.
          returned: always
          type: int
          sample: 81559
        memory_free_mib:
          description: Free memory in MiB.
          returned: always
          type: int
          sample: 81004
        memory_used_mib:
          description: Used memory in MiB, without the reserved memory if the driver returns that separately.
          returned: always
          type: int
          sample: 4
        mig:
          description: Multi-instance GPU.
          returned: always
          type: dict
          contains:
            enabled:
              description: Whether MIG mode is on. V(null) if the GPU does not support MIG.
              returned: always
              type: bool
              sample: true
            pending:
              description: Whether MIG mode will be on after the next reset of the GPU.
              returned: always
              type: bool
              sample: true
            devices:
              description: MIG devices, ordered by slot.
              returned: always
              type: list
              elements: dict
              contains:
                index:
                  description: Slot of the MIG device.
                  returned: always
                  type: int
                  sample: 0
                uuid:
                  description: UUID of the MIG device.
                  returned: always
                  type: str
                  sample: MIG-050dfd51-ce21-5ff6-a56b-d6fdea227084
                profile:
                  description: Profile of the MIG device.
                  returned: always
                  type: str
                  sample: "1g.10gb"
                gi:
                  description: ID of its GPU instance.
                  returned: always
                  type: int
                  sample: 7
                ci:
                  description: ID of its compute instance.
                  returned: always
                  type: int
                  sample: 0
                memory_total_mib:
                  description: Its memory in MiB.
                  returned: always
                  type: int
                  sample: 9984
                memory_slices:
                  description: Share of the GPU's memory, in eighths.
                  returned: always
                  type: int
                  sample: 1
                gpu_slices:
                  description: Compute slices of its GPU instance.
                  returned: always
                  type: int
                  sample: 1
                compute_slices:
                  description: Compute slices of its compute instance.
                  returned: always
                  type: int
                  sample: 1
                name:
                  description: Its name.
                  returned: when the subset V(mig) is gathered
                  type: str
                  sample: NVIDIA H100 80GB HBM3 MIG 1g.10gb
                memory_free_mib:
                  description: Its free memory in MiB.
                  returned: when the subset V(mig) is gathered
                  type: int
                  sample: 9972
                memory_used_mib:
                  description: Its used memory in MiB.
                  returned: when the subset V(mig) is gathered
                  type: int
                  sample: 12
                multiprocessors:
                  description: Its streaming multiprocessors.
                  returned: when the subset V(mig) is gathered
                  type: int
                  sample: 16
                copy_engines:
                  description: Its copy engines.
                  returned: when the subset V(mig) is gathered
                  type: int
                  sample: 1
                decoders:
                  description: Its video decoders.
                  returned: when the subset V(mig) is gathered
                  type: int
                  sample: 0
                encoders:
                  description: Its video encoders.
                  returned: when the subset V(mig) is gathered
                  type: int
                  sample: 0
                jpeg_engines:
                  description: Its JPEG engines.
                  returned: when the subset V(mig) is gathered
                  type: int
                  sample: 0
                ofa_engines:
                  description: Its optical flow accelerators.
                  returned: when the subset V(mig) is gathered
                  type: int
                  sample: 0
            devices_max:
              description: Maximum number of MIG devices.
              returned: when the subset V(mig) is gathered
              type: int
              sample: 7
        persistence_mode:
          description: Whether the driver keeps the GPU initialized while no process uses it.
          returned: always
          type: bool
          sample: true
        compute_mode:
          description: >-
            Compute mode, one of V(default), V(exclusive_process), V(exclusive_thread) and V(prohibited).
          returned: always
          type: str
          sample: default
        recovery_action:
          description: >-
            Recovery action that the driver requests, one of V(none), V(gpu_reset), V(node_reboot), V(drain_p2p),
            V(drain_and_reset), V(recover_imex_domain), V(bus_reset) and V(system_reboot). An action that is
            unknown to this version is V(unknown_N), where N is its number in NVML.
          returned: always
          type: str
          sample: "none"
        health:
          description: Health of the GPU.
          returned: always
          type: dict
          contains:
            state:
              description: >-
                V(ok), V(degraded) if the GPU needs attention or a reset, or V(lost) if it cannot be used.
              returned: always
              type: str
              sample: degraded
            reasons:
              description: Why the state is not V(ok), and what to do.
              returned: always
              type: list
              elements: str
              sample: ["the remapping of a memory row is pending. Reset the GPU or reboot the host"]
        brand:
          description: Product line.
          returned: when the subset V(identity) is gathered
          type: str
          sample: nvidia
        serial:
          description: Serial number of the board.
          returned: when the subset V(identity) is gathered
          type: str
          sample: "1320312525129"
        part_number:
          description: Part number of the board.
          returned: when the subset V(identity) is gathered
          type: str
          sample: "692-2G520-0200-000"
        board_id:
          description: Number of the board. GPUs on the same board have the same number.
          returned: when the subset V(identity) is gathered
          type: int
          sample: 1792
        multi_gpu_board:
          description: Whether the board has several GPUs.
          returned: when the subset V(identity) is gathered
          type: bool
          sample: false
        vbios_version:
          description: Version of the VBIOS.
          returned: when the subset V(identity) is gathered
          type: str
          sample: "96.00.30.00.01"
        inforom_image_version:
          description: Version of the InfoROM's image.
          returned: when the subset V(identity) is gathered
          type: str
          sample: G520.0200.00.05
        inforom_oem_version:
          description: Version of the InfoROM's OEM object.
          returned: when the subset V(identity) is gathered
          type: str
          sample: "2.1"
        inforom_ecc_version:
          description: Version of the InfoROM's ECC object.
          returned: when the subset V(identity) is gathered
          type: str
          sample: "7.16"
        inforom_power_version:
          description: Version of the InfoROM's power object.
          returned: when the subset V(identity) is gathered
          type: str
          sample: "2.0"
        gsp_firmware_enabled:
          description: Whether the GPU runs the driver's GSP firmware.
          returned: when the subset V(identity) is gathered
          type: bool
          sample: true
        gsp_firmware_version:
          description: Version of the GSP firmware.
          returned: when the subset V(identity) is gathered
          type: str
          sample: "580.95.05"
        accounting_mode:
          description: Whether the driver records the resources that processes use.
          returned: when the subset V(identity) is gathered
          type: bool
          sample: false
        virtualization_mode:
          description: One of V(none), V(passthrough), V(vgpu), V(host_vgpu) and V(host_vsga).
          returned: when the subset V(identity) is gathered
          type: str
          sample: "none"
        vgpu_license:
          description: >-
            License of a vGPU in its virtual machine. Without a license, the driver limits the performance of the vGPU.
            V(null) on all other GPUs.
          returned: when the subset V(identity) is gathered
          type: dict
          contains:
            state:
              description: >-
                V(licensed), V(unlicensed), or V(unknown) if NVML does not answer, for example with an old driver.
              returned: always
              type: str
              sample: licensed
            expiry:
              description: Time in UTC at which the license ends, or V(permanent). V(null) if it is unknown.
              returned: always
              type: str
              sample: "2027-01-31T12:00:00Z"
        display_attached:
          description: Whether a display is connected.
          returned: when the subset V(identity) is gathered
          type: bool
          sample: false
        display_active:
          description: Whether a display is initialized on the GPU.
          returned: when the subset V(identity) is gathered
          type: bool
          sample: false
        pci_subsystem_vendor_id:
          description: Subsystem vendor ID of the PCI function, hexadecimal.
          returned: when the subset V(pci) is gathered
          type: str
          sample: "0x10de"
        pci_subsystem_device_id:
          description: Subsystem device ID of the PCI function, hexadecimal.
          returned: when the subset V(pci) is gathered
          type: str
          sample: "0x16c1"
        pcie:
          description: PCIe link.
          returned: when the subset V(pci) is gathered
          type: dict
          contains:
            generation:
              description: Current generation of the link. It is lower while the GPU is idle.
              returned: always
              type: int
              sample: 5
            generation_max:
              description: Maximum generation that GPU and host support.
              returned: always
              type: int
              sample: 5
            generation_max_gpu:
              description: Maximum generation that the GPU supports.
              returned: always
              type: int
              sample: 5
            width:
              description: Lanes in use.
              returned: always
              type: int
              sample: 16
            width_max:
              description: Maximum number of lanes that GPU and host support.
              returned: always
              type: int
              sample: 16
            replay_count:
              description: Replays on the link since the driver was loaded.
              returned: always
              type: int
              sample: 0
        memory_reserved_mib:
          description: Memory that the driver reserves, in MiB.
          returned: when the subset V(memory) is gathered
          type: int
          sample: 551
        bar1_total_mib:
          description: Size of BAR1 in MiB.
          returned: when the subset V(memory) is gathered
          type: int
          sample: 131072
        bar1_free_mib:
          description: Free part of BAR1 in MiB.
          returned: when the subset V(memory) is gathered
          type: int
          sample: 131071
        bar1_used_mib:
          description: Used part of BAR1 in MiB.
          returned: when the subset V(memory) is gathered
          type: int
          sample: 1
        ecc:
          description: Error correction.
          returned: when the subset V(ecc) is gathered
          type: dict
          contains:
            enabled:
              description: Whether ECC is on.
              returned: always
              type: bool
              sample: true
            pending:
              description: Whether ECC will be on after the next reset or reboot.
              returned: always
              type: bool
              sample: true
            default:
              description: Whether ECC is on by default.
              returned: always
              type: bool
              sample: true
            volatile:
              description: Errors since the driver was loaded.
              returned: always
              type: dict
              contains: &ecc_counters
                corrected:
                  description: Corrected errors.
                  returned: always
                  type: int
                  sample: 0
                uncorrected:
                  description: Uncorrectable errors.
                  returned: always
                  type: int
                  sample: 0
                dram_corrected:
                  description: Corrected errors of the GPU's memory.
                  returned: always
                  type: int
                  sample: 0
                dram_uncorrected:
                  description: Uncorrectable errors of the GPU's memory.
                  returned: always
                  type: int
                  sample: 0
                sram_corrected:
                  description: Corrected errors of caches and registers.
                  returned: always
                  type: int
                  sample: 0
                sram_uncorrected:
                  description: Uncorrectable errors of caches and registers.
                  returned: always
                  type: int
                  sample: 0
            aggregate:
              description: Errors during the lifetime of the GPU.
              returned: always
              type: dict
              contains: *ecc_counters
            sram_threshold_exceeded:
              description: Whether uncorrectable SRAM errors exceed the threshold for a replacement.
              returned: always
              type: bool
              sample: false
        retired_pages:
          description: Retired memory pages, on GPUs older than Ampere.
          returned: when the subset V(ecc) is gathered
          type: dict
          contains:
            single_bit:
              description: Pages retired because of single-bit errors.
              returned: always
              type: int
              sample: 0
            double_bit:
              description: Pages retired because of a double-bit error.
              returned: always
              type: int
              sample: 0
            pending:
              description: Whether pages will be retired at the next reset or reboot.
              returned: always
              type: bool
              sample: false
        remapped_rows:
          description: Memory rows replaced by spare ones, on Ampere and newer GPUs.
          returned: when the subset V(ecc) is gathered
          type: dict
          contains:
            correctable:
              description: Rows remapped because of correctable errors.
              returned: always
              type: int
              sample: 0
            uncorrectable:
              description: Rows remapped because of uncorrectable errors.
              returned: always
              type: int
              sample: 0
            pending:
              description: Whether a row will be remapped at the next reset or reboot.
              returned: always
              type: bool
              sample: false
            failed:
              description: Whether remapping failed.
              returned: always
              type: bool
              sample: false
            banks:
              description: Memory banks by how many spare rows they have left.
              returned: always
              type: dict
              contains:
                max:
                  description: Banks with all spare rows.
                  returned: always
                  type: int
                  sample: 2560
                high:
                  description: Banks with many spare rows.
                  returned: always
                  type: int
                  sample: 0
                partial:
                  description: Banks with some spare rows.
                  returned: always
                  type: int
                  sample: 0
                low:
                  description: Banks with few spare rows.
                  returned: always
                  type: int
                  sample: 0
                none:
                  description: Banks without spare rows.
                  returned: always
                  type: int
                  sample: 0
        power:
          description: Power draw and power limits.
          returned: when the subset V(power) is gathered
          type: dict
          contains:
            draw_w:
              description: Current power draw, in W.
              returned: always
              type: float
              sample: 71.62
            limit_w:
              description: Requested limit, in W.
              returned: always
              type: float
              sample: 700.0
            enforced_limit_w:
              description: Enforced limit, in W.
              returned: always
              type: float
              sample: 700.0
            default_limit_w:
              description: Default limit, in W.
              returned: always
              type: float
              sample: 700.0
            min_limit_w:
              description: Minimum limit, in W.
              returned: always
              type: float
              sample: 200.0
            max_limit_w:
              description: Maximum limit, in W.
              returned: always
              type: float
              sample: 700.0
            energy_j:
              description: Energy used since the driver was loaded, in J.
              returned: always
              type: float
              sample: 5231987.31
        clocks:
          description: Clocks.
          returned: when the subset V(clocks) is gathered
          type: dict
          contains:
            graphics_mhz:
              description: Current graphics clock, in MHz.
              returned: always
              type: int
              sample: 1980
            sm_mhz:
              description: Current SM clock, in MHz.
              returned: always
              type: int
              sample: 1980
            memory_mhz:
              description: Current memory clock, in MHz.
              returned: always
              type: int
              sample: 2619
            video_mhz:
              description: Current video clock, in MHz.
              returned: always
              type: int
              sample: 1545
            max_graphics_mhz:
              description: Maximum graphics clock, in MHz.
              returned: always
              type: int
              sample: 1980
            max_sm_mhz:
              description: Maximum SM clock, in MHz.
              returned: always
              type: int
              sample: 1980
            max_memory_mhz:
              description: Maximum memory clock, in MHz.
              returned: always
              type: int
              sample: 2619
            max_video_mhz:
              description: Maximum video clock, in MHz.
              returned: always
              type: int
              sample: 1545
            application_graphics_mhz:
              description: Graphics clock for applications, in MHz.
              returned: always
              type: int
              sample: 1980
            application_memory_mhz:
              description: Memory clock for applications, in MHz.
              returned: always
              type: int
              sample: 2619
            default_application_graphics_mhz:
              description: Default graphics clock for applications, in MHz.
              returned: always
              type: int
              sample: 1980
            default_application_memory_mhz:
              description: Default memory clock for applications, in MHz.
              returned: always
              type: int
              sample: 2619
        performance_state:
          description: Performance state, from V(0) (fastest) to V(15).
          returned: when the subset V(clocks) is gathered
          type: int
          sample: 0
        throttle_reasons:
          description: >-
            Why the clocks are below their maximum: V(idle), V(application_clocks), V(software_power_cap),
            V(hardware_slowdown), V(sync_boost), V(software_thermal), V(hardware_thermal), V(hardware_power_brake) and
            V(display_clocks).
          returned: when the subset V(clocks) is gathered
          type: list
          elements: str
          sample: ["idle"]
        temperature:
          description: Temperatures. A margin is the distance to a limit. It is negative above the limit.
          returned: when the subset V(temperature) is gathered
          type: dict
          contains:
            gpu_c:
              description: Temperature of the GPU in degrees Celsius.
              returned: always
              type: int
              sample: 31
            memory_c:
              description: Temperature of the memory in degrees Celsius.
              returned: always
              type: int
              sample: 38
            shutdown_c:
              description: Temperature at which the GPU shuts down, in degrees Celsius.
              returned: always
              type: int
              sample: 92
            slowdown_c:
              description: Temperature at which the GPU slows down, in degrees Celsius.
              returned: always
              type: int
              sample: 89
            memory_max_c:
              description: Highest temperature of the memory for full speed, in degrees Celsius.
              returned: always
              type: int
              sample: 95
            gpu_max_c:
              description: Highest temperature of the GPU for full speed, in degrees Celsius.
              returned: always
              type: int
              sample: 85
            margin_c:
              description: Distance to the nearest limit in degrees Celsius, on Ada and newer GPUs.
              returned: always
              type: int
              sample: 56
            shutdown_margin_c:
              description: Margin at which the GPU shuts down, in degrees Celsius.
              returned: always
              type: int
              sample: -8
            slowdown_margin_c:
              description: Margin at which the GPU slows down, in degrees Celsius.
              returned: always
              type: int
              sample: -2
            memory_max_margin_c:
              description: Margin for full speed of the memory, in degrees Celsius.
              returned: always
              type: int
              sample: 0
            gpu_max_margin_c:
              description: Margin for full speed of the GPU, in degrees Celsius.
              returned: always
              type: int
              sample: 0
        fan_speed_percent:
          description: Fan speed in percent of its maximum.
          returned: when the subset V(temperature) is gathered
          type: int
          sample: 30
        utilization:
          description: Recent utilization of the GPU. V(null) in MIG mode.
          returned: when the subset V(utilization) is gathered
          type: dict
          contains:
            gpu_percent:
              description: Time in which a kernel ran, in percent.
              returned: always
              type: int
              sample: 0
            memory_percent:
              description: Time in which memory was read or written, in percent.
              returned: always
              type: int
              sample: 0
            encoder_percent:
              description: Use of the video encoders in percent.
              returned: always
              type: int
              sample: 0
            decoder_percent:
              description: Use of the video decoders in percent.
              returned: always
              type: int
              sample: 0
            jpeg_percent:
              description: Use of the JPEG engines in percent.
              returned: always
              type: int
              sample: 0
            ofa_percent:
              description: Use of the optical flow accelerators in percent.
              returned: always
              type: int
              sample: 0
        nvlink:
          description: NVLink.
          returned: when the subset V(nvlink) is gathered
          type: dict
          contains:
            version:
              description: Version of NVLink, as NVML numbers it.
              returned: always
              type: int
              sample: 4
            link_count:
              description: Number of links of the GPU. V(null) if it has none.
              returned: always
              type: int
              sample: 18
            active_count:
              description: Number of active links.
              returned: always
              type: int
              sample: 18
            links:
              description: The links.
              returned: always
              type: list
              elements: dict
              contains:
                link:
                  description: Number of the link.
                  returned: always
                  type: int
                  sample: 0
                active:
                  description: Whether the link is active.
                  returned: always
                  type: bool
                  sample: true
                remote_type:
                  description: Device at the other end, V(gpu), V(switch) or V(npu).
                  returned: always
                  type: str
                  sample: switch
                remote_pci_bus_id:
                  description: PCI address of the device at the other end.
                  returned: always
                  type: str
                  sample: "0000:c3:00.0"
        fabric:
          description: Registration with the NVLink fabric of NVSwitch systems.
          returned: when the subset V(fabric) is gathered
          type: dict
          contains:
            state:
              description: V(not_started), V(in_progress) or V(completed).
              returned: always
              type: str
              sample: completed
            status:
              description: NVML's return code of the completed registration, V(0) for success.
              returned: always
              type: int
              sample: 0
            cluster_uuid:
              description: UUID of the cluster of the fabric.
              returned: always
              type: str
              sample: "00000000-0000-0000-0000-000000000000"
            clique_id:
              description: Clique of the GPU in the fabric.
              returned: always
              type: int
              sample: 0
            bandwidth_degraded:
              description: Whether the bandwidth of the fabric is degraded.
              returned: always
              type: bool
              sample: false
            routes_unhealthy:
              description: Whether routes of the fabric are unhealthy.
              returned: always
              type: bool
              sample: false
        processes:
          description: Processes on the GPU. V(null) if NVML does not return them.
          returned: when the subset V(processes) is gathered
          type: list
          elements: dict
          contains:
            pid:
              description: Process ID on the host.
              returned: always
              type: int
              sample: 4711
            type:
              description: V(compute), V(graphics) or V(mps).
              returned: always
              type: str
              sample: compute
            name:
              description: Name of the program.
              returned: always
              type: str
              sample: /usr/bin/python3
            memory_used_mib:
              description: GPU memory in use, in MiB.
              returned: always
              type: int
              sample: 1024
            gi:
              description: ID of the GPU instance that the process uses.
              returned: always
              type: int
              sample: 7
            ci:
              description: ID of the compute instance that the process uses.
              returned: always
              type: int
              sample: 0
        pcie_throughput:
          description: Traffic on the PCIe link in the last 20 ms.
          returned: when the subset V(throughput) is gathered
          type: dict
          contains:
            transmit_kb_s:
              description: Sent, in KB/s.
              returned: always
              type: int
              sample: 0
            receive_kb_s:
              description: Received, in KB/s.
              returned: always
              type: int
              sample: 0
    nvidia_pci_devices:
      description: NVIDIA's PCI functions except NVSwitches, in bus order. They are returned without a driver, too.
      returned: always
      type: list
      elements: dict
      contains: &pci_function
        address:
          description: Address, as the kernel writes it.
          returned: always
          type: str
          sample: "0000:3b:00.0"
        vendor_id:
          description: Vendor ID, hexadecimal.
          returned: always
          type: str
          sample: "0x10de"
        device_id:
          description: Device ID, hexadecimal.
          returned: always
          type: str
          sample: "0x2330"
        class_id:
          description: Class, hexadecimal.
          returned: always
          type: str
          sample: "0x030200"
        subsystem_vendor_id:
          description: Subsystem vendor ID, hexadecimal.
          returned: always
          type: str
          sample: "0x10de"
        subsystem_device_id:
          description: Subsystem device ID, hexadecimal.
          returned: always
          type: str
          sample: "0x16c1"
        numa_node:
          description: NUMA node.
          returned: always
          type: int
          sample: 0
        kernel_driver:
          description: Kernel driver of the function, such as V(nvidia), V(nouveau), V(nova_core) or V(vfio-pci).
          returned: always
          type: str
          sample: nvidia
        kind:
          description: V(gpu), V(nvswitch), or V(other) for other functions of a board.
          returned: always
          type: str
          sample: gpu
    nvidia_nvswitches:
      description: NVSwitches in bus order.
      returned: always
      type: list
      elements: dict
      contains: *pci_function
    nvidia_topology:
      description: Connections between the GPUs. V(null) if NVML does not answer.
      returned: when the subset V(topology) is gathered
      type: dict
      contains:
        gpus:
          description: UUIDs of the GPUs, in the order of the matrices' rows and columns.
          returned: always
          type: list
          elements: str
          sample: ["GPU-2678d89a-e400-594e-907f-6792b6bbbb68", "GPU-d6905953-07e6-500a-9184-c0c8279de04b"]
        nvlinks:
          description: Number of NVLinks between two GPUs, direct or through NVSwitches.
          returned: always
          type: list
          elements: list
          sample: [[0, 18], [18, 0]]
        pcie:
          description: >-
            Connection between two GPUs: V(self), V(internal) for the same board, V(pix) for one PCIe switch, V(pxb) for
            several, V(phb) for a host bridge, V(node) for the host bridges of one NUMA node, V(sys) for different NUMA
            nodes.
          returned: always
          type: list
          elements: list
          sample: [["self", "sys"], ["sys", "self"]]
        cpu_affinity:
          description: CPUs near each GPU, by its UUID.
          returned: always
          type: dict
          sample: {"GPU-2678d89a-e400-594e-907f-6792b6bbbb68": "0-63"}
nvml_binding:
  description: Origin of pynvml, V(host) or V(controller). V(null) if NVML was not called.
  returned: always
  type: str
  sample: host
nvml_binding_version:
  description: Version of pynvml.
  returned: always
  type: str
  sample: "13.615.71"
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import module_call as facts_call


def main() -> None:
    pinned_environment.pin()
    module = AnsibleModule(argument_spec=facts_call.OPTIONS, supports_check_mode=True)
    result = facts_call.result(module.params, module.run_command)
    if result.get("nvml_binding_missing"):
        from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import without_pynvml  # noqa: PLC0415 (rarely needed)

        result = without_pynvml.result(module.params, module.run_command, result)
        if result.get("nvml_binding_missing"):
            module.warn(result["ansible_facts"]["nvidia_gpu_state_reason"])
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
