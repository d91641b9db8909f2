#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_volume
short_description: Manage volumes with the NVIDIA driver's user-space files for containers
version_added: 0.1.0
description:
  - Collects the libraries and programs of the loaded NVIDIA driver in a directory, and registers the directory with the
    container engine as a named volume. Containers mount it read-only at C(/usr/local/nvidia).
  - With the volume, images need no driver, and the host does not need NVIDIA's container toolkit.
  - The files are hard links to the host's files if the file systems allow it, and copies otherwise.
  - Each driver version has its own volume. Containers that use the volume of an older version keep it until it is
    pruned.
  - A new volume is built in a temporary directory and renamed. A damaged volume is repaired without removing files from
    running containers.
extends_documentation_fragment:
  - gpufleet.hosts.attributes
options:
  state:
    description:
      - V(present) creates or repairs the volume of O(driver_version), or of the loaded driver, and registers it with
        the engines.
      - V(absent) removes the volume of O(driver_version), or every volume if O(driver_version) is not set. Before any
        removal, V(absent) fails if a container, a process or a CDI specification uses one of these volumes, or if a
        stopped Docker has one registered and the module must not start Docker.
    type: str
    choices: [present, absent]
    default: present
  path:
    description:
      - Directory for volumes. The volume of driver 580.95.05 is its subdirectory C(nvidia_driver/580.95.05).
      - A volume takes no extra space on the file system of the driver's own files.
      - Other modules of this collection call this option C(driver_volume_path), which is an alias here.
    type: path
    aliases: [driver_volume_path]
    default: /var/lib/gpufleet/volumes
  engine:
    description:
      - Container engines to register the volume with.
      - V(auto) selects Docker if it answers, and Podman if it is installed. Without either, O(state=present) fails.
      - V(none) creates only the directory and cannot be combined with other values.
      - The module does not start an engine in check mode, or if this option does not name the engine. Instead, it reads
        the volumes and containers of a stopped Docker from Docker's data directory.
    type: list
    elements: str
    choices: [auto, docker, podman, none]
    default: [auto]
  expected_engines:
    description:
      - Engines that check mode treats as available, because an earlier task would have installed or started them.
        For Docker, check mode reads the registered volumes from Docker's data directory.
      - Has no effect outside check mode.
    type: list
    elements: str
    choices: [docker, podman]
    default: []
  docker_host:
    description: Address of the Docker API, C(unix:///path) or C(tcp://host:port) without TLS.
    type: str
    default: unix:///var/run/docker.sock
  sets:
    description:
      - Libraries and programs to collect.
      - V(utility) is nvidia-smi and NVML, V(compute) is CUDA and OpenCL, V(video) is the codecs, V(graphics) is OpenGL,
        EGL, GBM, Vulkan and OptiX with the files with which applications find them, and all other libraries of the
        driver's version, V(ngx) is DLSS.
      - V(compat32) adds the 32-bit libraries of the other sets if the host has them.
    type: list
    elements: str
    choices: [utility, compute, video, graphics, ngx, compat32]
    default: [utility, compute, video, graphics, ngx, compat32]
  driver_root:
    description:
      - Root directory of the driver's files if the driver is not installed in the host's own file system, for example
        V(/run/nvidia/driver).
      - The directory does not have to exist with O(state=absent).
    type: path
    default: /
  timeout:
    description:
      - Seconds to wait for a response from Docker. The value must be above 0 and at most 3600.
      - This module does not query the driver.
    type: float
    default: 60
  driver_version:
    description:
      - Version of the driver whose files are collected. The default is the version of the loaded kernel module.
      - Set this option to create the volume before the reboot that completes a driver upgrade, or on a machine without
        the kernel module.
    type: str
  prune:
    description:
      - Whether to remove unused volumes of other driver versions.
      - The module keeps a volume if a container uses it, running or not, if a process has it mounted, if a CDI
        specification refers to it, if a stopped Docker has it registered, or if its driver is loaded.
      - RV(kept) lists these volumes with the reason. Containers that get the volume through CDI are listed like
        containers that mount it.
    type: bool
    default: false
  selinux_type:
    description:
      - SELinux type of the volume's directories and copies. The module sets it only if SELinux is enforcing.
      - A hard link has the type of the host's file.
    type: str
    default: container_ro_file_t
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.gpu_container
  - module: gpufleet.hosts.nvidia_cdi_spec
"""

EXAMPLES = r"""
- name: Create the volume of the loaded driver and remove unused volumes of other versions
  gpufleet.hosts.nvidia_driver_volume:
    prune: true
  register: driver

- name: Run a program of the driver in a container
  ansible.builtin.command:
    argv: [docker, run, --rm, -v, "{{ driver.volume.mount }}", --device, /dev/nvidiactl, --device, /dev/nvidia0,
           -e, LD_LIBRARY_PATH=/usr/local/nvidia/lib64, debian:12, /usr/local/nvidia/bin/nvidia-smi, -L]
  changed_when: false

- name: Create the volume of an upgraded driver before the reboot, with NVML and the compute libraries only
  gpufleet.hosts.nvidia_driver_volume:
    driver_version: 580.95.05
    sets: [utility, compute]

- name: Remove every driver volume
  gpufleet.hosts.nvidia_driver_volume:
    state: absent
"""

RETURN = r"""
volume:
  description: The volume. In check mode, the volume that a run would create. Null with O(state=absent).
  returned: success
  type: dict
  contains:
    name:
      description: Name of the volume in the engine.
      type: str
      returned: always
      sample: nvidia_driver_580.95.05
    path:
      description: Directory of the volume.
      type: str
      returned: always
      sample: /var/lib/gpufleet/volumes/nvidia_driver/580.95.05
    version:
      description: The driver's version.
      type: str
      returned: always
      sample: 580.95.05
    mount:
      description: Value of the engine's option C(--volume) that mounts the volume by name.
      type: str
      returned: always
      sample: nvidia_driver_580.95.05:/usr/local/nvidia:ro
    bind:
      description: Value of the option C(--volume) that mounts the volume by path, for example with O(engine=none).
      type: str
      returned: always
      sample: /var/lib/gpufleet/volumes/nvidia_driver/580.95.05:/usr/local/nvidia:ro
    env:
      description: Environment variables that a container needs to find the volume's libraries.
      type: dict
      returned: always
      sample: {LD_LIBRARY_PATH: "/usr/local/nvidia/lib64:/usr/local/nvidia/lib"}
    libraries:
      description: Names of the 64-bit libraries.
      type: list
      elements: str
      returned: always
      sample: [libcuda.so.580.95.05, libnvidia-ml.so.580.95.05]
    libraries_compat32:
      description: Names of the 32-bit libraries.
      type: list
      elements: str
      returned: always
      sample: []
    binaries:
      description: Names of the programs.
      type: list
      elements: str
      returned: always
      sample: [nvidia-smi]
    engines:
      description: Engines that have the volume registered.
      type: list
      elements: str
      returned: always
      sample: [docker]
    total_bytes:
      description: Total size of the volume in bytes.
      type: int
      returned: always
      sample: 612368384
    hard_linked_bytes:
      description: Bytes of RV(volume.total_bytes) in hard links to the host's files. They take no extra space.
      type: int
      returned: always
      sample: 612368384
    copied_bytes:
      description: Bytes of RV(volume.total_bytes) in copies.
      type: int
      returned: always
      sample: 0
removed:
  description: Names of the removed volumes.
  returned: success
  type: list
  elements: str
  sample: [nvidia_driver_570.133.20]
kept:
  description: Volumes that O(prune) kept, with the reason.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the volume.
      type: str
      returned: always
      sample: nvidia_driver_570.133.20
    version:
      description: The driver's version.
      type: str
      returned: always
      sample: 570.133.20
    reason:
      description: Why the volume was kept.
      type: str
      returned: always
      sample: "docker container trainer (running)"
actions:
  description: Actions that were performed. In check mode, the actions that a run would perform.
  returned: success
  type: list
  elements: str
  sample: ["build volume nvidia_driver_580.95.05 from 31 files", "register nvidia_driver_580.95.05 with docker"]
"""

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import option_limits as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.masked_module import MaskedModule as AnsibleModule
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_files as cdi_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import named_volumes
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, volume_changes


def main() -> None:
    """Run the module."""
    pinned_environment.pin()
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": volume_changes.DEFAULTS["state"]},
            "path": {"type": "path", "aliases": ["driver_volume_path"], "default": volume_changes.DEFAULTS["path"]},
            "engine": {
                "type": "list",
                "elements": "str",
                "choices": ["auto", "docker", "podman", "none"],
                "default": volume_changes.DEFAULTS["engine"],
            },
            "expected_engines": {
                "type": "list",
                "elements": "str",
                "choices": ["docker", "podman"],
                "default": volume_changes.DEFAULTS["expected_engines"],
            },
            "docker_host": {"type": "str", "default": volume_changes.DEFAULTS["docker_host"]},
            "sets": {
                "type": "list",
                "elements": "str",
                "choices": list(driver_files.SETS),
                "default": volume_changes.DEFAULTS["sets"],
            },
            "driver_root": {"type": "path", "default": volume_changes.DEFAULTS["driver_root"]},
            "timeout": {"type": "float", "default": named_volumes.TIMEOUT},
            "driver_version": {"type": "str"},
            "prune": {"type": "bool", "default": volume_changes.DEFAULTS["prune"]},
            "selinux_type": {"type": "str", "default": volume_changes.DEFAULTS["selinux_type"]},
        },
        supports_check_mode=True,
    )
    fault = base_options.timeout_fault(module.params["timeout"])
    if fault:
        module.fail_json(msg=fault)
    podman = named_volumes.PodmanClient(module.run_command, module.get_bin_path("podman"))
    try:
        docker = named_volumes.DockerClient(module.params["docker_host"], module.params["timeout"])
        run = volume_changes.VolumeRun(module.params, docker, podman, cdi_file.referring_to, check=module.check_mode)
        result = run.apply_state()
    except volume_changes.ERRORS as error:
        module.fail_json(msg=volume_changes.error_text(error, module.params["path"]))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
