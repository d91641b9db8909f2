# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The usual name of a device node of NVIDIA's driver by its major and minor number, and the reverse. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.specification_document import Numbers
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes

# The driver's own major number, which is fixed: NV_MAJOR_DEVICE_NUMBER in NVIDIA/open-gpu-kernel-modules.
DRIVER_MAJOR = 195
_CONTROL_MINORS = {255: "/dev/nvidiactl", 254: "/dev/nvidia-modeset"}
_UVM_MINORS = {0: "/dev/nvidia-uvm", 1: "/dev/nvidia-uvm-tools"}
GPU = re.compile(r"/dev/nvidia\d+")
CAPABILITY = re.compile(r"/dev/nvidia-caps/nvidia-cap(\d+)")


def name_of(path: str, numbers: Numbers, majors: Mapping[str, int], present: Mapping[str, Numbers | None]) -> str:
    """Return the name that the driver uses for the node with these numbers, which may have another path.

    `majors`: /proc/devices. `present`: the nodes of the host, for the nodes of other drivers, such as DRM.
    """
    major, minor = numbers
    if major == DRIVER_MAJOR:
        return _CONTROL_MINORS.get(minor) or nvidia_device_nodes.gpu_node(minor)
    if major == majors.get("nvidia-caps"):
        return nvidia_device_nodes.capability_node(minor)
    if major == majors.get("nvidia-uvm"):
        return _UVM_MINORS.get(minor, path)
    same = sorted(other for other, found in present.items() if found == numbers)
    return path if not same or path in same else same[0]


def numbers_of(path: str, majors: Mapping[str, int]) -> Numbers | None:
    """Return the numbers that the driver gives a node with this name, or None if they are unknown."""
    for major, names in ((DRIVER_MAJOR, _CONTROL_MINORS), (majors.get("nvidia-uvm"), _UVM_MINORS)):
        found = next((minor for minor, name in names.items() if name == path), None)
        if major is not None and found is not None:
            return major, found
    if GPU.fullmatch(path):
        return DRIVER_MAJOR, int(path.removeprefix("/dev/nvidia"))
    capability, major = CAPABILITY.fullmatch(path), majors.get("nvidia-caps")
    return (major, int(capability.group(1))) if capability and major is not None else None
