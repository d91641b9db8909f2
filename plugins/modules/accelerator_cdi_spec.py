#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: accelerator_cdi_spec
short_description: Manage a CDI specification of the host's accelerators of AMD, AWS Neuron or Intel Gaudi
version_added: 0.1.0
description:
  - Writes a Container Device Interface (CDI) specification of the devices of one vendor that
    M(gpufleet.hosts.accelerator_facts) returns. No tool of the vendor is required.
  - Docker 25 and newer, Podman 4.1 and newer, containerd and CRI-O then accept C(gpufleet-amd/gpu=0),
    C(gpufleet-amd/gpu=STABLE_ID) or C(gpufleet-amd/gpu=all) as a device, C(gpufleet-neuron/gpu=0) for AWS
    Neuron, and C(gpufleet-gaudi/gpu=module-4) for Gaudi.
    Docker before 28.2 needs the feature C(cdi) in C(daemon.json).
  - A device of the specification has the device nodes of the host, with their numeric group IDs. It has no mounts,
    variables or hooks, because the libraries are in the images.
  - In the name of a partition, a dash replaces the slash of the stable ID, because CDI does not allow a slash.
  - Containers can only use AWS Neuron chips with consecutive indexes. CDI cannot check this, so request such chips. If
    the usable chips have a gap, there is no device C(all).
  - The specification of the vendor's tool can exist beside this one. It is never changed. If another file describes
    O(cdi_kind), the module reports that file in RV(maintained_by) and writes no specification. The module removes its
    own earlier specification.
  - The module does not replace or remove a file that it did not create. It marks its own file with a second file in the
    same directory, for example C(.gpufleet-amd.json.gpufleet), which engines ignore.
  - A reboot deletes the files in C(/var/run/cdi). Run the module again after each boot and after a change of the
    partitions. The index of a Gaudi accelerator can change with each boot; its stable ID does not.
extends_documentation_fragment:
  - gpufleet.hosts.attributes
  - gpufleet.hosts.options.cdi
options:
  vendor:
    description: Vendor of the devices.
    type: str
    choices: [amd, neuron, gaudi]
    required: true
  state:
    description: V(present) writes the specification. V(absent) removes it.
    type: str
    choices: [present, absent]
    default: present
  cdi_kind:
    description:
      - Vendor and class in the kind of the devices. The default is C(gpufleet-VENDOR/gpu).
      - The kind of AMD's own tool is C(amd.com/gpu). Engines reject devices that two specifications describe. Intel's
        DRA driver deletes all specifications of its kind C(intel.com/gaudi).
    type: str
  path:
    description:
      - Path of the specification, in one of O(spec_dirs), with the suffix C(.json) or C(.yaml). The content is always
        JSON.
      - The default is C(/var/run/cdi/gpufleet-VENDOR.json).
    type: path
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.accelerator_facts
  - module: gpufleet.hosts.nvidia_cdi_spec
"""

EXAMPLES = r"""
- name: Describe AMD's GPUs to container engines
  gpufleet.hosts.accelerator_cdi_spec:
    vendor: amd

- name: Run a container on GPU 1
  containers.podman.podman_container:
    name: training
    image: localhost/training:latest
    device: [gpufleet-amd/gpu=1]

- name: Remove the specification
  gpufleet.hosts.accelerator_cdi_spec:
    vendor: amd
    state: absent
"""

RETURN = r"""
path:
  description: Path of the specification.
  returned: success
  type: str
  sample: /var/run/cdi/gpufleet-amd.json
kind:
  description: Vendor and class of the devices.
  returned: success
  type: str
  sample: gpufleet-amd/gpu
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
  sample: ["0", "e3a9c0ffee123456", "1", "093fe3a1b2c4d5e6-0", "all"]
skipped:
  description: Devices that the specification does not contain.
  returned: success
  type: list
  elements: dict
  contains:
    device:
      description: Stable ID of the device.
      type: str
      returned: always
      sample: e3a9c0ffee123456
    reason:
      description: Why the specification does not contain the device.
      type: str
      returned: always
      sample: /dev/dri/renderD128 does not exist
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
      sample: /etc/cdi/amd.json
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
      sample: ["1"]
    stale:
      description: Missing files and device nodes that the other specification refers to.
      type: list
      elements: str
      returned: always
      sample: []
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    gather_all_vendors as accelerators_gather,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import accelerator_writing


def main() -> None:
    """Run the module."""
    pinned_environment.pin()
    module = AnsibleModule(
        argument_spec={
            "vendor": {"type": "str", "choices": list(accelerator_writing.KINDS), "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "cdi_kind": {"type": "str"},
            "path": {"type": "path"},
            "spec_dirs": {"type": "list", "elements": "path", "default": ["/etc/cdi", "/var/run/cdi"]},
            "additional_gids": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )

    def gather_facts() -> dict:
        # The vendors of this module need no facts of NVIDIA.
        return accelerators_gather.gather(dict, vendors=[module.params["vendor"]])

    try:
        result = accelerator_writing.apply_state(module.params, gather_facts, module.check_mode)
    except accelerator_writing.ERRORS as error:
        module.fail_json(msg=accelerator_writing.error_text(error, accelerator_writing.path_of(module.params)))
    for warning in result.pop("warnings"):
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
