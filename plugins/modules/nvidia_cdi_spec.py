#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_cdi_spec
short_description: Describe a host's NVIDIA GPUs to container engines in a CDI specification
version_added: 0.1.0
description:
  - Writes a specification of the Container Device Interface for the GPUs that NVML shows, without a toolkit of the
    vendor's. Docker (25 or newer with the feature C(cdi), 28.2 or newer as it is), Podman (4.1 or newer), containerd
    and CRI-O then take C(nvidia.com/gpu=0), C(nvidia.com/gpu=GPU-…), C(nvidia.com/gpu=MIG-…) or C(nvidia.com/gpu=all)
    as a device.
  - It declares the lowest version that has what it says, 0.5.0 as a rule, so that Podman 4.3 of Debian 12 reads it.
  - There are no two specifications for one device. Where another file describes C(nvidia.com/gpu), the one that the
    vendor's toolkit keeps for example, that one counts. It is told in RV(maintained_by), and ours is not written, or is
    removed if it was there.
  - A file that something else made is neither replaced nor removed, unless O(take_over=true). That one is ours is noted
    beside it, in C(.gpufleet-nvidia.json.gpufleet) for example, which engines don't read.
  - Run it again after a driver upgrade, a change of MIG devices, or a reboot that gives devices other numbers.
attributes:
  check_mode:
    support: full
    description: Can run in check_mode and return changed status prediction without modifying target.
  diff_mode:
    support: full
    description: Will return details on what has changed (or possibly needs changing in check_mode), when in diff mode.
  idempotent:
    support: full
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no change.
options:
  state:
    description:
      - V(present) writes the specification, V(absent) removes it.
    type: str
    choices: [present, absent]
    default: present
  path:
    description:
      - The file, in one of O(spec_dirs), with the suffix C(.json) or C(.yaml). It is JSON either way.
      - Engines read C(/etc/cdi) and C(/var/run/cdi). What is in the latter is gone after a reboot.
    type: path
    default: /etc/cdi/gpufleet-nvidia.json
  take_over:
    description:
      - Whether to replace or remove a file at O(path) that this module did not make.
      - Without it that is an error, whoever made the file, the vendor's toolkit or an administrator.
    type: bool
    default: false
  spec_dirs:
    description: Directories where the engines look for specifications.
    type: list
    elements: path
    default: [/etc/cdi, /var/run/cdi]
  libraries:
    description:
      - How a container comes by the driver's libraries.
      - V(volume) mounts the driver volume of M(gpufleet.hosts.nvidia_driver_volume), which must be there, at
        C(/usr/local/nvidia) and sets C(LD_LIBRARY_PATH). One of the image's own is replaced by that, which is how
        CDI works.
      - V(files) mounts each library on its own in the directories where the loaders of Debian's and Red Hat's families
        look by default. No variable is set.
      - Programs such as nvidia-smi are mounted in C(/usr/bin) either way.
    type: str
    choices: [volume, files]
    default: volume
  driver_volume_path:
    description: Directory of the driver volumes, O(gpufleet.hosts.nvidia_driver_volume#module:path).
    type: path
    aliases: [volume_path]
    default: /var/lib/gpufleet/volumes
  sets:
    description:
      - Which libraries to give with O(libraries=files), and which configuration files (OpenCL for V(compute); Vulkan,
        EGL and OptiX for V(graphics)) with either.
    type: list
    elements: str
    choices: [utility, compute, video, graphics, ngx, compat32]
    default: [utility, compute, video, graphics, ngx, compat32]
  driver_root:
    description:
      - Root of the driver's files where they are not the host's own, for example V(/run/nvidia/driver).
      - With O(state=absent) it need not be there.
    type: path
  device_numbers:
    description:
      - Write type, major and minor number of each device node.
      - The number of C(/dev/nvidia-uvm) may be another after a reboot. Where containers start at boot, before this
        module has run again, V(false) leaves the numbers to the engine, which then looks when it starts a container.
    type: bool
    default: true
  additional_gids:
    description:
      - Let a container's processes join the groups of device nodes that are not open to everybody, so that they need
        no root in there. This takes CDI 0.7.0, which Podman before 5.1 and Docker before 26.1 do not read.
    type: bool
    default: false
  timeout:
    description: Seconds to wait for a driver that does not answer, more than 0 and at most 3600.
    type: float
    default: 10
  _nvml_binding_path:
    description: Set by this module's action plugin where the host has no pynvml. Not for playbooks.
    type: path
notes:
  - Needs pynvml (Python package nvidia-ml-py) on the host or on the controller.
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.gpu_container
  - module: gpufleet.hosts.nvidia_driver_volume
"""

EXAMPLES = r"""
- name: Give containers the loaded driver
  gpufleet.hosts.nvidia_driver_volume:

- name: Let engines hand out GPUs by CDI name
  gpufleet.hosts.nvidia_cdi_spec:

- name: Run a container on GPU 1
  containers.podman.podman_container:
    name: training
    image: localhost/training:latest
    device: [nvidia.com/gpu=1]

- name: Leave the environment of images alone, and device numbers to the engine
  gpufleet.hosts.nvidia_cdi_spec:
    libraries: files
    device_numbers: false
"""

RETURN = r"""
path:
  description: The specification's file.
  returned: success
  type: str
  sample: /etc/cdi/gpufleet-nvidia.json
kind:
  description: Vendor and class of the devices.
  returned: success
  type: str
  sample: nvidia.com/gpu
cdi_version:
  description: The version that the specification declares. Null for O(state=absent).
  returned: success
  type: str
  sample: 0.5.0
devices:
  description: Names of the devices, to be put behind C(nvidia.com/gpu=). Empty for O(state=absent).
  returned: success
  type: list
  elements: str
  sample: ["0", "GPU-c3f1d2a0-5b6e-4c8d-9e7f-001122334455", "all"]
skipped:
  description: GPUs and MIG devices that are not described.
  returned: success
  type: list
  elements: dict
  contains:
    gpu:
      description: Index of the GPU, or of GPU and MIG device.
      type: str
      returned: always
      sample: "3"
    reason:
      description: Why not.
      type: str
      returned: always
      sample: "GPU is lost"
  sample: []
maintained_by:
  description: Other files that describe C(nvidia.com/gpu), because of which ours is not written.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The file.
      type: str
      returned: always
      sample: /var/run/cdi/nvidia.yaml
    devices:
      description: Names of the devices that it describes.
      type: list
      elements: str
      returned: always
      sample: ["0", "all"]
    missing_devices:
      description: Names of devices that we would describe, and that it does not.
      type: list
      elements: str
      returned: always
      sample: ["0:1"]
    stale:
      description: Files and device nodes that it names, and that are not there.
      type: list
      elements: str
      returned: always
      sample: []
  sample: []
"""

import os
import platform

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import options as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import file as cdi_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.session import BindingMissing
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, driver_volume


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "path": {"type": "path", "default": "/etc/cdi/gpufleet-nvidia.json"},
            "take_over": {"type": "bool", "default": False},
            "spec_dirs": {"type": "list", "elements": "path", "default": ["/etc/cdi", "/var/run/cdi"]},
            "libraries": {"type": "str", "choices": ["volume", "files"], "default": "volume"},
            "driver_volume_path": {
                "type": "path",
                "aliases": ["volume_path"],
                "default": driver_volume.DEFAULT_PATH,
            },
            "sets": {
                "type": "list",
                "elements": "str",
                "choices": list(driver_files.SETS),
                "default": list(driver_files.SETS),
            },
            "driver_root": {"type": "path"},
            "device_numbers": {"type": "bool", "default": True},
            "additional_gids": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": 10},
            "_nvml_binding_path": {"type": "path"},
        },
        supports_check_mode=True,
    )

    def ask() -> dict:
        return gather.gather(
            run=module.run_command,
            timeout=module.params["timeout"],
            binding_path=module.params["_nvml_binding_path"],
            driver_root=module.params["driver_root"],
        )["facts"]

    try:
        result = result_of(module.params, ask, module.check_mode)
    except BindingMissing as error:
        module.fail_json(**error.result())
    except (specification.CdiError, cdi_file.FileError, driver_files.DriverFilesError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['path']}: {error.strerror or error}")
    for warning in result.pop("warnings"):
        module.warn(warning)
    module.exit_json(**result)


def result_of(params: dict, ask, check: bool, root: str = "/") -> dict:
    """Do what was asked, or find out what that would be."""
    path = params["path"]
    _validate(params)
    before = cdi_file.read(path)
    stranger = None if params["take_over"] else _stranger(path, before)
    if stranger and params["state"] == "absent":
        raise cdi_file.FileError(f"{stranger} Leave it to its maker, or set take_over=true to remove it.")
    result = {
        "path": path,
        "kind": specification.KIND,
        "cdi_version": None,
        "devices": [],
        "skipped": [],
        "maintained_by": [],
        "warnings": [],
    }
    after = ""
    if params["state"] == "present":
        made = _make(params, ask(), check, root)
        result["skipped"] = made.skipped
        devices = [device["name"] for device in made.spec["devices"]]
        others, broken = cdi_file.others(params["spec_dirs"], specification.KIND, path)
        result["warnings"] = made.warnings + broken + [_report(other) for other in others]
        result["maintained_by"] = [
            {
                "path": other.path,
                "devices": list(other.devices),
                "missing_devices": [name for name in devices if name not in other.devices],
                "stale": list(other.stale),
            }
            for other in others
        ]
        if not others:
            after = cdi_file.text_of(made.spec)
            result.update(cdi_version=made.spec["cdiVersion"], devices=devices)
    changed = not cdi_file.is_current(path, after) if after else os.path.lexists(path)
    if stranger and changed:
        raise cdi_file.FileError(
            f"{stranger} Leave it to its maker and give a `path` of our own, or set take_over=true to replace it."
        )
    if not check:
        if not after:
            cdi_file.remove(path)
        elif changed or not cdi_file.is_marked(path):
            cdi_file.write(path, after)
    diff = {"before_header": path, "after_header": path, "before": before, "after": after}
    return {**result, "changed": changed, "diff": diff}


def _stranger(path: str, text: str) -> str | None:
    """Say whose file is in our place, None where it is ours or there is none."""
    if cdi_file.is_vendors(text):
        return f"{path} is not ours: the vendor's toolkit made it, it calls nvidia-cdi-hook or nvidia-ctk."
    if os.path.lexists(path) and not cdi_file.is_marked(path):
        return f"{path} is not ours: something else made it, there is no {cdi_file.mark_of(path)}."
    return None


def _validate(params: dict) -> None:
    path = params["path"]
    fault = base_options.timeout_fault(params["timeout"])
    if params["state"] == "present":
        # What removes a file needs no driver.
        fault = fault or base_options.driver_root_fault(params["driver_root"])
    if fault:
        raise cdi_file.FileError(fault)
    if not os.path.isabs(params["driver_volume_path"]):
        raise cdi_file.FileError(f"driver_volume_path={params['driver_volume_path']} is not an absolute path")
    if params["libraries"] == "files":
        driver_files.check_sets(params["sets"])
    if not os.path.isabs(path) or not path.endswith(cdi_file.SUFFIXES):
        raise cdi_file.FileError(f"path={path} is not an absolute path that ends with .json or .yaml, as engines ask")
    directories = [os.path.realpath(directory) for directory in params["spec_dirs"]]
    if os.path.realpath(os.path.dirname(path)) not in directories:
        raise cdi_file.FileError(
            f"path={path} is in none of spec_dirs={','.join(params['spec_dirs'])}, so no engine would read it"
        )


def _make(params: dict, facts: dict, check: bool, root: str) -> specification.Made:
    if facts["nvidia_gpu_state"] != "ready":
        raise specification.CdiError(
            f"the GPUs can't be described, their state is {facts['nvidia_gpu_state']}: "
            f"{facts['nvidia_gpu_state_reason']}"
        )
    driver_root = params["driver_root"] or "/"
    host = specification.Host(
        version=facts["nvidia_driver"]["version"],
        machine=driver_files.normal_machine(platform.machine()),
        root=root,
        driver_root=driver_root,
        sets=tuple(params["sets"]),
        numbers=params["device_numbers"],
        groups=params["additional_gids"],
    )
    if params["libraries"] == "files":
        edits = specification.file_edits(_files(host), host.machine)
    else:
        edits = _volume_edits(params["driver_volume_path"], host, check)
    return specification.make(facts["nvidia_gpus"], host, edits)


def _files(host: specification.Host) -> list[driver_files.DriverFile]:
    search_path = os.environ.get("PATH", "").split(":") if host.driver_root == "/" else []
    return driver_files.find(host.version, host.machine, host.driver_root, sets=host.sets, search_path=search_path)


def _volume_edits(driver_volume_path: str, host: specification.Host, check: bool) -> dict:
    place = driver_volume.directory(driver_volume_path, host.version)
    if all(os.path.isdir(os.path.join(place, name)) for name in driver_volume.PLACES):
        return specification.volume_edits(place, os.listdir(os.path.join(place, "bin")))
    if not check:
        raise specification.CdiError(
            f"there is no whole driver volume for driver {host.version} at {place}. Make it with nvidia_driver_volume "
            "first, or set libraries=files."
        )
    # A run that is not a check would have made it before.
    return specification.volume_edits(place, [file.name for file in _files(host) if file.place == "bin"])


def _report(other: cdi_file.Other) -> str:
    if other.ours:
        return (
            f"{other.path} describes {specification.KIND} already; this module made it under that name. Remove it with "
            f"state=absent and path={other.path}, then run this again. Until then nothing is written."
        )
    text = (
        f"{other.path} describes {specification.KIND} already; it is left to whoever maintains it, and ours is not "
        "written."
    )
    if other.stale:
        text += (
            f" It names what is not there: {', '.join(other.stale[:3])}. Have it made anew "
            "(systemctl restart nvidia-cdi-refresh), or remove it."
        )
    return text


if __name__ == "__main__":
    main()
