# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gives a container the devices of each vendor: nodes, runtimes and their variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import (
    AMD,
    GAUDI,
    INTEL,
    NEURON,
    NVIDIA,
)

# The fixed major numbers of /dev/accel/* (include/drm/drm_accel.h of Linux), /dev/dri/* and /dev/nvidia<N>.
ACCEL_MAJOR, DRM_MAJOR, NVIDIA_MAJOR = "261", "226", "195"
# include/linux/fs.h of Linux: the ranges of the major numbers that the kernel gives to drivers when it loads them.
_ASSIGNED_MAJORS = (range(234, 255), range(384, 512))
# The links to DRM nodes by PCI address give access to nothing.
_DRM = r"/dev/dri(?!/by-path)(?:/.*)?"


@dataclass(frozen=True)
class HardwareVendorAccess:
    """`nodes`: a pattern of paths. `variables`: those in which the vendor's runtime reads devices.

    `runtimes`: the names of the runtime and its program, or their beginnings. `cdi_classes`: those of the vendor's own
    CDI kinds, besides `gpu` and `mig`.
    """

    nodes: str
    variables: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    cdi_classes: tuple[str, ...] = ()


ACCESS: Mapping[str, HardwareVendorAccess] = {
    NVIDIA: HardwareVendorAccess(rf"/dev/nvidia.*|{_DRM}", ("NVIDIA_VISIBLE_DEVICES",), ("nvidia",)),
    AMD: HardwareVendorAccess(rf"/dev/kfd|{_DRM}", ("AMD_VISIBLE_DEVICES",), ("amd",)),
    # The wrapper of the hook is oci_neuron_hook_wrapper.sh (aws-neuron-sdk, deploy/tutorials/oci-hook.rst).
    NEURON: HardwareVendorAccess(r"/dev/neuron.*", ("AWS_NEURON_VISIBLE_DEVICES",), ("neuron", "oci_neuron")),
    GAUDI: HardwareVendorAccess(
        r"/dev/accel(?:/.*)?|/dev/hl(?:_controlD)?\d+",
        ("HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES"),
        ("habana",),
        ("gaudi",),
    ),
    INTEL: HardwareVendorAccess(_DRM),
}
CDI_CLASSES = frozenset({"gpu", "mig"}.union(*(one.cdi_classes for one in ACCESS.values())))


def is_node(path: str) -> bool:
    """Return whether a normalized path is a device node of a GPU or accelerator, or a directory of such nodes."""
    return any(re.fullmatch(one.nodes, path, re.DOTALL) for one in ACCESS.values())


def is_assigned_major(major: str) -> bool:
    """Return whether the kernel can give this major number to any driver, and another one after the next boot."""
    return len(major) <= 3 and any(int(major) in numbers for numbers in _ASSIGNED_MAJORS)


def vendor_of_runtime(*names: str | None) -> str | None:
    """Return the vendor whose runtime has one of these names or paths, or None."""
    for vendor, access in ACCESS.items():
        words = "|".join(access.runtimes)
        if words and any(re.search(rf"(?:^|/)(?:{words})(?:$|[-._])", name or "") for name in names):
            return vendor
    return None
