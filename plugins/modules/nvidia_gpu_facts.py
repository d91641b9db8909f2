#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_gpu_facts
short_description: Discover the NVIDIA GPUs of a host, whatever state it is in
version_added: 0.1.0
description:
  - Tells what provisioning, scheduling and a health check need to know of a host's NVIDIA GPUs, in one call.
  - Every state of a host is a result. Without hardware, without a driver, with one that is not loaded, of the wrong
    version or sick, RV(ansible_facts.nvidia_gpu_state) says so, and RV(ansible_facts.nvidia_gpu_state_reason) says what
    to do about it. The PCI functions are there in all of them.
  - GPUs are asked through pynvml. On a host that has none, the controller's own copy goes along with the call, where
    the controller has one (C(pip install nvidia-ml-py)). Nothing stays behind on the host. A host without a driver
    needs none.
  - NVML is asked in a process of its own. A driver that hangs or crashes costs at most O(timeout).
attributes:
  check_mode:
    support: full
    description: Can run in check_mode and return changed status prediction without modifying target.
    details:
      - The result is the same, nothing is ever changed.
  diff_mode:
    support: none
    description: Will return details on what has changed (or possibly needs changing in check_mode), when in diff mode.
  facts:
    support: full
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
  idempotent:
    support: full
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no change.
options:
  gather_subset:
    description:
      - What to gather. V(min) is always there, and has all that identifies a GPU, its memory, its MIG devices and its
        health.
      - V(all) stands for every subset, a name for itself. V(!name) leaves a subset out, V(!all) all but V(min) and
        those named besides.
      - The other subsets are V(identity), V(pci), V(memory), V(ecc), V(mig), V(power), V(clocks), V(temperature),
        V(utilization), V(nvlink), V(fabric), V(processes), V(throughput) and V(topology). Which fields come with each
        stands with the fields below.
      - The default leaves out what belongs to others (V(processes)) or takes a while (V(throughput), V(topology)).
    type: list
    elements: str
    default: [all, "!processes", "!throughput", "!topology"]
  timeout:
    description:
      - How many seconds to wait for a driver that does not answer, at the start and for each GPU. More than 0 and at
        most 3600.
      - When they are over, RV(ansible_facts.nvidia_gpu_state) is V(error), and the GPUs that did answer are returned.
      - A host without a persistence daemon takes about two seconds to wake up a GPU.
    type: float
    default: 10
  driver_root:
    description:
      - Directory below which the driver's user-space libraries lie, in C(lib64), C(usr/lib64) and the like.
      - Without it the loader finds them, and where it knows none, the usual places of driver containers and cloud
        images are looked at, such as C(/usr/local/nvidia) and C(/run/nvidia/driver).
    type: path
  _nvml_binding_path:
    description: Set by this module's action plugin where the host has no pynvml. Not for playbooks.
    type: path
notes:
  - All that a product, a driver or a pynvml does not support is V(null).
  - Values are those of NVML's calls. Where C(nvidia-smi -q -x) prints the same, it prints the same value.
seealso:
  - name: NVML API reference
    description: The meaning of each value.
    link: https://docs.nvidia.com/deploy/nvml-api/
author:
  - gpufleet maintainers (@gpufleet)
"""

EXAMPLES = r"""
- name: Discover the GPUs
  gpufleet.hosts.nvidia_gpu_facts:

- name: Stop where they can not be used, and say why
  ansible.builtin.assert:
    that: ansible_facts.nvidia_gpu_state in ["ready", "no_hardware"]
    fail_msg: "{{ ansible_facts.nvidia_gpu_state_reason }}"

- name: Look after a large fleet, as quickly as can be
  gpufleet.hosts.nvidia_gpu_facts:
    gather_subset: [min]

- name: Name the sick GPUs
  ansible.builtin.debug:
    msg: "{{ item.pci_bus_id }} {{ item.uuid }} is {{ item.health.state }}: {{ item.health.reasons | join('; ') }}"
  loop: "{{ ansible_facts.nvidia_gpus | rejectattr('health.state', 'equalto', 'ok') }}"

- name: See how the GPUs are connected and what runs on them
  gpufleet.hosts.nvidia_gpu_facts:
    gather_subset: [topology, processes]

- name: Ask a driver that lies in a directory of its own
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
      description: Why it is that, and what to do about it.
      returned: always
      type: str
      sample: NVML answers for 8 GPUs.
    nvidia_driver:
      description: The driver. All are V(null) where there is none.
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
          description: CUDA version that the driver serves.
          returned: always
          type: str
          sample: "13.0"
        nvml_version:
          description: Version of NVML.
          returned: always
          type: str
          sample: "13.580.95.05"
        kernel_module_flavor:
          description: Whether the loaded kernel module is the V(open) or the V(proprietary) one.
          returned: always
          type: str
          sample: open
        running_kernel:
          description: Release of the running kernel.
          returned: always
          type: str
          sample: "6.1.0-40-amd64"
        next_kernel:
          description: Release of the kernel that boots next.
          returned: always
          type: str
          sample: "6.1.0-41-amd64"
        on_disk_version:
          description: Version of the module file for the running kernel.
          returned: always
          type: str
          sample: "580.95.05"
        on_disk_next_version:
          description: Version of the module file for the kernel that boots next.
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
          description: Whether the host is a Windows Subsystem for Linux, whose driver is that of Windows.
          returned: always
          type: bool
          sample: false
    nvidia_gpus:
      description: The GPUs in NVML's order. Empty in all states in which NVML does not answer.
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
          description: Device id of the PCI function, hexadecimal.
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
          description: Used memory in MiB, without what the driver reserves where it can tell that apart.
          returned: always
          type: int
          sample: 4
        mig:
          description: Multi-instance GPU.
          returned: always
          type: dict
          contains:
            enabled:
              description: Whether MIG mode is on. V(null) where there is no MIG.
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
                  description: Id of its GPU instance.
                  returned: always
                  type: int
                  sample: 7
                ci:
                  description: Id of its compute instance.
                  returned: always
                  type: int
                  sample: 0
                memory_total_mib:
                  description: Its memory in MiB.
                  returned: always
                  type: int
                  sample: 9984
                memory_slices:
                  description: How many eighths of the GPU's memory these are.
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
              description: How many MIG devices the GPU can have at most.
              returned: when the subset V(mig) is gathered
              type: int
              sample: 7
        persistence_mode:
          description: Whether the driver stays initialised while nobody uses the GPU.
          returned: always
          type: bool
          sample: true
        compute_mode:
          description: >-
            Who may use the GPU, one of V(default), V(exclusive_process), V(exclusive_thread) and V(prohibited).
          returned: always
          type: str
          sample: default
        recovery_action:
          description: >-
            What the driver asks for to recover the GPU, one of V(none), V(gpu_reset), V(node_reboot), V(drain_p2p),
            V(drain_and_reset), V(recover_imex_domain), V(bus_reset) and V(system_reboot). An action that this release
            does not know is V(unknown_N), where N is its number in NVML.
          returned: always
          type: str
          sample: "none"
        health:
          description: Judgement of the GPU.
          returned: always
          type: dict
          contains:
            state:
              description: >-
                V(ok), V(degraded) for a GPU that works and needs looking after or a reset, V(lost) for one that can
                not be used.
              returned: always
              type: str
              sample: degraded
            reasons:
              description: Why it is not V(ok), in words that say what to do.
              returned: always
              type: list
              elements: str
              sample: ["a memory row waits for its remapping: reset this GPU or reboot the host"]
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
          description: Number of the board. GPUs with the same one share a board.
          returned: when the subset V(identity) is gathered
          type: int
          sample: 1792
        multi_gpu_board:
          description: Whether there are more GPUs on the board.
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
        virtualization_mode:
          description: One of V(none), V(passthrough), V(vgpu), V(host_vgpu) and V(host_vsga).
          returned: when the subset V(identity) is gathered
          type: str
          sample: "none"
        display_attached:
          description: Whether a display is connected.
          returned: when the subset V(identity) is gathered
          type: bool
          sample: false
        display_active:
          description: Whether a display is initialised on the GPU.
          returned: when the subset V(identity) is gathered
          type: bool
          sample: false
        pci_subsystem_vendor_id:
          description: Subsystem vendor id of the PCI function, hexadecimal.
          returned: when the subset V(pci) is gathered
          type: str
          sample: "0x10de"
        pci_subsystem_device_id:
          description: Subsystem device id of the PCI function, hexadecimal.
          returned: when the subset V(pci) is gathered
          type: str
          sample: "0x16c1"
        pcie:
          description: PCIe link.
          returned: when the subset V(pci) is gathered
          type: dict
          contains:
            generation:
              description: Generation that the link runs at now. It falls while the GPU idles.
              returned: always
              type: int
              sample: 5
            generation_max:
              description: Generation that GPU and host can do.
              returned: always
              type: int
              sample: 5
            generation_max_gpu:
              description: Generation that the GPU can do.
              returned: always
              type: int
              sample: 5
            width:
              description: Lanes in use.
              returned: always
              type: int
              sample: 16
            width_max:
              description: Lanes that GPU and host can do.
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
              contains:
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
              description: Errors in the GPU's life.
              returned: always
              type: dict
              contains:
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
            sram_threshold_exceeded:
              description: Whether uncorrectable SRAM errors are beyond the threshold for a replacement.
              returned: always
              type: bool
              sample: false
        retired_pages:
          description: Memory pages taken out of use, before Ampere.
          returned: when the subset V(ecc) is gathered
          type: dict
          contains:
            single_bit:
              description: Pages retired for single-bit errors.
              returned: always
              type: int
              sample: 0
            double_bit:
              description: Pages retired for a double-bit error.
              returned: always
              type: int
              sample: 0
            pending:
              description: Whether pages wait for the next reset or reboot.
              returned: always
              type: bool
              sample: false
        remapped_rows:
          description: Memory rows replaced by spare ones, since Ampere.
          returned: when the subset V(ecc) is gathered
          type: dict
          contains:
            correctable:
              description: Rows remapped for correctable errors.
              returned: always
              type: int
              sample: 0
            uncorrectable:
              description: Rows remapped for uncorrectable errors.
              returned: always
              type: int
              sample: 0
            pending:
              description: Whether a row waits for the next reset or reboot.
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
                  description: Banks with all.
                  returned: always
                  type: int
                  sample: 2560
                high:
                  description: Banks with many.
                  returned: always
                  type: int
                  sample: 0
                partial:
                  description: Banks with some.
                  returned: always
                  type: int
                  sample: 0
                low:
                  description: Banks with few.
                  returned: always
                  type: int
                  sample: 0
                none:
                  description: Banks with none.
                  returned: always
                  type: int
                  sample: 0
        power:
          description: Power.
          returned: when the subset V(power) is gathered
          type: dict
          contains:
            draw_w:
              description: Power drawn, in W.
              returned: always
              type: float
              sample: 71.62
            limit_w:
              description: Limit that was set, in W.
              returned: always
              type: float
              sample: 700.0
            enforced_limit_w:
              description: Limit in force, in W.
              returned: always
              type: float
              sample: 700.0
            default_limit_w:
              description: Limit by default, in W.
              returned: always
              type: float
              sample: 700.0
            min_limit_w:
              description: Lowest limit that can be set, in W.
              returned: always
              type: float
              sample: 200.0
            max_limit_w:
              description: Highest limit that can be set, in W.
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
              description: The graphics clock now, in MHz.
              returned: always
              type: int
              sample: 1980
            sm_mhz:
              description: The SM clock now, in MHz.
              returned: always
              type: int
              sample: 1980
            memory_mhz:
              description: The memory clock now, in MHz.
              returned: always
              type: int
              sample: 2619
            video_mhz:
              description: The video clock now, in MHz.
              returned: always
              type: int
              sample: 1545
            max_graphics_mhz:
              description: The highest graphics clock, in MHz.
              returned: always
              type: int
              sample: 1980
            max_sm_mhz:
              description: The highest SM clock, in MHz.
              returned: always
              type: int
              sample: 1980
            max_memory_mhz:
              description: The highest memory clock, in MHz.
              returned: always
              type: int
              sample: 2619
            max_video_mhz:
              description: The highest video clock, in MHz.
              returned: always
              type: int
              sample: 1545
            application_graphics_mhz:
              description: The graphics clock that applications run at, in MHz.
              returned: always
              type: int
              sample: 1980
            application_memory_mhz:
              description: The memory clock that applications run at, in MHz.
              returned: always
              type: int
              sample: 2619
            default_application_graphics_mhz:
              description: The graphics clock that applications run at by default, in MHz.
              returned: always
              type: int
              sample: 1980
            default_application_memory_mhz:
              description: The memory clock that applications run at by default, in MHz.
              returned: always
              type: int
              sample: 2619
        performance_state:
          description: Performance state, from V(0) for the fastest to V(15).
          returned: when the subset V(clocks) is gathered
          type: int
          sample: 0
        throttle_reasons:
          description: >-
            Why the clocks are not at their highest. V(idle), V(application_clocks), V(software_power_cap),
            V(hardware_slowdown), V(sync_boost), V(software_thermal), V(hardware_thermal), V(hardware_power_brake) and
            V(display_clocks).
          returned: when the subset V(clocks) is gathered
          type: list
          elements: str
          sample: ["idle"]
        temperature:
          description: Temperatures. A margin is the distance to a limit, and negative beyond it.
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
              description: Distance to the nearest limit in degrees Celsius, since Ada.
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
          description: Speed of the fan in percent of its highest.
          returned: when the subset V(temperature) is gathered
          type: int
          sample: 30
        utilization:
          description: How busy the GPU was of late. V(null) with MIG on.
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
              description: How many links the GPU has. V(null) for none.
              returned: always
              type: int
              sample: 18
            active_count:
              description: How many of them are up.
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
                  description: Whether it is up.
                  returned: always
                  type: bool
                  sample: true
                remote_type:
                  description: What is at its other end, V(gpu), V(switch) or V(npu).
                  returned: always
                  type: str
                  sample: switch
                remote_pci_bus_id:
                  description: PCI address of what is at its other end.
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
              description: Clique of the GPU in it.
              returned: always
              type: int
              sample: 0
            bandwidth_degraded:
              description: Whether the fabric works with less bandwidth than it should.
              returned: always
              type: bool
              sample: false
        processes:
          description: Processes on the GPU. V(null) where NVML does not say.
          returned: when the subset V(processes) is gathered
          type: list
          elements: dict
          contains:
            pid:
              description: Process id, as the host counts.
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
              description: Id of the GPU instance that it uses.
              returned: always
              type: int
              sample: 7
            ci:
              description: Id of the compute instance that it uses.
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
      description: NVIDIA's functions on the PCI bus, in its order, but for NVSwitches. There with no driver, too.
      returned: always
      type: list
      elements: dict
      contains:
        address:
          description: Address, as the kernel writes it.
          returned: always
          type: str
          sample: "0000:3b:00.0"
        vendor_id:
          description: Vendor id, hexadecimal.
          returned: always
          type: str
          sample: "0x10de"
        device_id:
          description: Device id, hexadecimal.
          returned: always
          type: str
          sample: "0x2330"
        class_id:
          description: Class, hexadecimal.
          returned: always
          type: str
          sample: "0x030200"
        subsystem_vendor_id:
          description: Subsystem vendor id, hexadecimal.
          returned: always
          type: str
          sample: "0x10de"
        subsystem_device_id:
          description: Subsystem device id, hexadecimal.
          returned: always
          type: str
          sample: "0x16c1"
        numa_node:
          description: NUMA node.
          returned: always
          type: int
          sample: 0
        kernel_driver:
          description: Kernel driver that holds it, such as V(nvidia), V(nouveau), V(nova_core) or V(vfio-pci).
          returned: always
          type: str
          sample: nvidia
        kind:
          description: V(gpu), or V(other) for what else is on a board.
          returned: always
          type: str
          sample: gpu
    nvidia_nvswitches:
      description: NVSwitches on the PCI bus, in its order.
      returned: always
      type: list
      elements: dict
      contains:
        address:
          description: Address, as the kernel writes it.
          returned: always
          type: str
          sample: "0000:c3:00.0"
        vendor_id:
          description: Vendor id, hexadecimal.
          returned: always
          type: str
          sample: "0x10de"
        device_id:
          description: Device id, hexadecimal.
          returned: always
          type: str
          sample: "0x22a3"
        class_id:
          description: Class, hexadecimal.
          returned: always
          type: str
          sample: "0x068000"
        subsystem_vendor_id:
          description: Subsystem vendor id, hexadecimal.
          returned: always
          type: str
          sample: "0x10de"
        subsystem_device_id:
          description: Subsystem device id, hexadecimal.
          returned: always
          type: str
          sample: "0x1796"
        numa_node:
          description: NUMA node.
          returned: always
          type: int
          sample: 0
        kernel_driver:
          description: Kernel driver that holds it, such as V(nvidia), V(nouveau), V(nova_core) or V(vfio-pci).
          returned: always
          type: str
          sample: nvidia
        kind:
          description: V(nvswitch).
          returned: always
          type: str
          sample: nvswitch
    nvidia_topology:
      description: How the GPUs reach each other. V(null) where NVML does not answer.
      returned: when the subset V(topology) is gathered
      type: dict
      contains:
        gpus:
          description: UUIDs of the GPUs. Rows and columns of the matrices are in this order.
          returned: always
          type: list
          elements: str
          sample: ["GPU-2678d89a-e400-594e-907f-6792b6bbbb68", "GPU-d6905953-07e6-500a-9184-c0c8279de04b"]
        nvlinks:
          description: How many NVLinks connect two GPUs, directly or through NVSwitches.
          returned: always
          type: list
          elements: list
          sample: [[0, 18], [18, 0]]
        pcie:
          description: >-
            What is between two GPUs. V(self), V(internal) for the same board, V(pix) for one PCIe switch, V(pxb) for
            several, V(phb) for a host bridge, V(node) for the host bridges of a NUMA node, V(sys) for NUMA nodes.
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
  description: Whose pynvml served, V(host) or V(controller). V(null) where there was nothing to ask.
  returned: always
  type: str
  sample: host
nvml_binding_version:
  description: Its version.
  returned: always
  type: str
  sample: "13.615.71"
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import call as facts_call


def main() -> None:
    module = AnsibleModule(argument_spec=facts_call.OPTIONS, supports_check_mode=True)
    result = facts_call.result(module.params, module.run_command)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
