#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_cdi_spec
short_description: Manage a CDI specification of the host's NVIDIA GPUs
version_added: 0.1.0
description:
  - Writes a Container Device Interface (CDI) specification of the GPUs that NVML shows. NVIDIA's container toolkit is
    not required.
  - Docker 25 and newer, Podman 4.1 and newer, containerd and CRI-O then accept C(nvidia.com/gpu=0),
    C(nvidia.com/gpu=GPU-UUID), C(nvidia.com/gpu=MIG-UUID) or C(nvidia.com/gpu=all) as a device. Docker before 28.2
    needs the feature C(cdi) in C(daemon.json).
  - The specification declares the lowest CDI version that supports its content, usually 0.5.0. Podman 4.3 of Debian 12
    can read that version.
  - The module never adds a second specification for the same devices. If another file describes C(nvidia.com/gpu), for
    example that of NVIDIA's toolkit, the module reports it in RV(maintained_by) and writes no specification. The module
    removes its own earlier specification.
  - The module does not replace or remove a file that it did not create, unless O(take_over=true). It marks its own file
    with a second file in the same directory, for example C(.gpufleet-nvidia.json.gpufleet), which engines ignore.
  - Run the module again after a driver upgrade and after a change of MIG devices.
extends_documentation_fragment:
  - gpufleet.hosts.attributes
  - gpufleet.hosts.options
  - gpufleet.hosts.options.cdi
options:
  state:
    description:
      - V(present) writes the specification. V(absent) removes it.
    type: str
    choices: [present, absent]
    default: present
  mode:
    description:
      - What the specification describes. Each value except V(gpu) describes device nodes that containers need in
        addition to those of a GPU, under a kind of its own.
      - V(gpu) is the GPUs and MIG devices, C(nvidia.com/gpu).
      - V(imex) is the IMEX channels, C(nvidia.com/imex-channel=0) and so on.
      - V(gds) is GPUDirect Storage, C(nvidia.com/gds=all). It also mounts C(/run/udev) and C(/etc/cufile.json).
      - V(gdrcopy) is GDRCopy, C(nvidia.com/gdrcopy=all).
      - V(nvswitch) is the NVSwitches, C(nvidia.com/nvswitch=all), for programs that monitor or manage them.
    type: str
    choices: [gpu, gdrcopy, gds, imex, nvswitch]
    default: gpu
  vendor:
    description:
      - Vendor in the kind of the devices. With another O(vendor) or O(class), the host can have a second specification
        of the same GPUs, for example with other O(sets).
    type: str
    default: nvidia.com
  class:
    description:
      - Class in the kind of the devices. The default depends on O(mode).
      - Playbook C(verify) checks only specifications of kind C(nvidia.com/gpu).
    type: str
  device_names:
    description:
      - Names of each GPU and MIG device. If there are several values, each device has several names.
      - V(index) is the NVML index, C(0), and for a MIG device C(0:1).
      - V(type-index) is the same with the type, C(gpu0) and C(mig0:1).
      - V(uuid) is the UUID. MIG devices of old drivers have UUIDs that CDI does not accept as names.
      - With O(mode) other than V(gpu), this option has no effect.
    type: list
    elements: str
    choices: [index, type-index, uuid]
    default: [index, uuid]
  path:
    description:
      - Path of the specification, in one of O(spec_dirs), with the suffix C(.json) or C(.yaml). The content is always
        JSON.
      - By default, engines read C(/etc/cdi) and C(/var/run/cdi). A reboot deletes the files in C(/var/run/cdi).
      - The default is C(/etc/cdi/gpufleet-nvidia.json) for the kind C(nvidia.com/gpu), and
        C(/etc/cdi/gpufleet-VENDOR-CLASS.json) for other kinds.
    type: path
  take_over:
    description:
      - Whether to replace or remove a file at O(path) that this module did not create.
      - With V(false), the module fails if NVIDIA's toolkit or an administrator created the file.
    type: bool
    default: false
  sets:
    description:
      - Libraries to mount. V(compute) also mounts the configuration file of OpenCL, and V(graphics) those of Vulkan,
        EGL, GBM and OptiX. A file that names a missing library is left out.
      - Each library is mounted separately in the default library directories of the Debian and Red Hat families, so all
        processes in a container find it. The specification does not change C(LD_LIBRARY_PATH) and C(PATH).
      - Programs such as nvidia-smi are mounted in C(/usr/bin).
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
  device_numbers:
    description:
      - Whether to write the type, the major number and the minor number of each device node.
      - With V(false), the engine reads them from the node whenever it starts a container.
      - With V(true), the specification can be wrong after a reboot, which can change the major number of
        C(/dev/nvidia-uvm) and of other nodes. Then run the module again before containers start.
    type: bool
    default: false
notes:
  - Requires pynvml (Python package nvidia-ml-py) on the host or on the controller.
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.gpu_container
"""

EXAMPLES = r"""
- name: Describe the GPUs to container engines
  gpufleet.hosts.nvidia_cdi_spec:

- name: Run a container on GPU 1
  containers.podman.podman_container:
    name: training
    image: localhost/training:latest
    device: [nvidia.com/gpu=1]

- name: Describe the IMEX channels
  gpufleet.hosts.nvidia_cdi_spec:
    mode: imex

- name: Add a second specification, without the libraries for graphics
  gpufleet.hosts.nvidia_cdi_spec:
    vendor: example.org
    device_names: [type-index]
    sets: [utility, compute, video]
"""

RETURN = r"""
path:
  description: Path of the specification.
  returned: success
  type: str
  sample: /etc/cdi/gpufleet-nvidia.json
kind:
  description: Vendor and class of the devices.
  returned: success
  type: str
  sample: nvidia.com/gpu
cdi_version:
  description: CDI version that the specification declares. Null if no specification is written.
  returned: success
  type: str
  sample: 0.5.0
devices:
  description: Device names, for use after RV(kind) and C(=). Empty if no specification is written.
  returned: success
  type: list
  elements: str
  sample: ["0", "GPU-c3f1d2a0-5b6e-4c8d-9e7f-001122334455", "all"]
skipped:
  description: GPUs and MIG devices that the specification does not contain.
  returned: success
  type: list
  elements: dict
  contains:
    gpu:
      description: Index of the GPU, or indexes of the GPU and the MIG device.
      type: str
      returned: always
      sample: "3"
    reason:
      description: Why the specification does not contain the device.
      type: str
      returned: always
      sample: "GPU is lost"
  sample: []
maintained_by:
  description: Other specifications of the same kind. If there are any, the module writes none.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: Path of the other specification.
      type: str
      returned: always
      sample: /var/run/cdi/nvidia.yaml
    devices:
      description: Names of the devices in the other specification.
      type: list
      elements: str
      returned: always
      sample: ["0", "all"]
    missing_devices:
      description: Names of devices on the host that the other specification lacks.
      type: list
      elements: str
      returned: always
      sample: ["0:1"]
    stale:
      description: Missing files and device nodes that the other specification refers to.
      type: list
      elements: str
      returned: always
      sample: []
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import (
    specification,
    specification_kinds,
    specification_writing,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files


def main() -> None:
    """Run the module."""
    pinned_environment.pin()
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "mode": {"type": "str", "choices": list(specification_kinds.CLASSES), "default": specification_kinds.GPU},
            "vendor": {"type": "str", "default": specification_kinds.VENDOR},
            "class": {"type": "str"},
            "device_names": {
                "type": "list",
                "elements": "str",
                "choices": list(specification.NAMES),
                "default": list(specification.DEFAULT_NAMES),
            },
            "path": {"type": "path"},
            "take_over": {"type": "bool", "default": False},
            "spec_dirs": {"type": "list", "elements": "path", "default": ["/etc/cdi", "/var/run/cdi"]},
            "sets": {
                "type": "list",
                "elements": "str",
                "choices": list(driver_files.SETS),
                "default": list(driver_files.SETS),
            },
            "driver_root": {"type": "path"},
            "device_numbers": {"type": "bool", "default": False},
            "additional_gids": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": 10},
            "_nvml_binding_path": {"type": "path"},
        },
        supports_check_mode=True,
    )

    def gather_facts() -> dict:
        return gather.gather(
            run=module.run_command,
            timeout=module.params["timeout"],
            binding_path=module.params["_nvml_binding_path"],
            driver_root=module.params["driver_root"],
        )["facts"]

    try:
        result = specification_writing.apply_state(module.params, gather_facts, module.check_mode)
    except BindingMissing as error:
        module.fail_json(**error.result())
    except specification_writing.ERRORS as error:
        module.fail_json(msg=specification_writing.error_text(error, specification_writing.path_of(module.params)))
    for warning in result.pop("warnings"):
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
