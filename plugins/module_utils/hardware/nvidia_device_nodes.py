# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device nodes of NVIDIA's driver: the control nodes, and those of GPUs, MIG devices and optional features.

A CDI specification and the isolation `volume` of gpu_container use the same nodes, with one difference. A specification
is written before the capabilities of a container are known, so it contains all control and DRM nodes. gpu_container
passes /dev/nvidia-uvm only for compute and video, and /dev/nvidia-modeset and DRM nodes only for graphics and display.
"""

from __future__ import annotations

import glob
import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
# The links to DRM nodes by PCI address.
DRM_LINKS = "/dev/dri/by-path"
IMEX_CHANNELS = "/dev/nvidia-caps-imex-channels"
# The nodes of optional features: NVIDIA/nvidia-container-toolkit, internal/discover at v1.20.0.
FEATURE_NODES = {
    "gdrcopy": ("/dev/gdrdrv",),
    "gds": ("/dev/nvidia-fs*",),
    "nvswitch": ("/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch[0-9]*"),
}
# Directories and files that a container with the feature also needs, from the same source.
FEATURE_PATHS = {"gds": ("/run/udev", "/etc/cufile.json")}
_FEATURE_ADVICE = {
    "gdrcopy": "Load the kernel module gdrdrv.",
    "gds": "Load the kernel module nvidia-fs.",
    "nvswitch": "The driver creates these nodes for NVSwitches that are PCI devices of the host.",
}
# NVreg_CreateImexChannel0: NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv-reg.h at 595.45.04.
IMEX_ADVICE = (
    "Create the channel. For channel 0, the option NVreg_CreateImexChannel0=1 of the kernel module nvidia does this."
)

_MIG_MINORS = "proc/driver/nvidia-caps/mig-minors"
_CAPABILITIES = "proc/driver/nvidia/capabilities"


def gpu_node(minor: int) -> str:
    """Return the node of a GPU."""
    return f"/dev/nvidia{minor}"


def capability_node(number: int) -> str:
    """Return the node of a capability, such as the access to a MIG instance."""
    return f"/dev/nvidia-caps/nvidia-cap{number}"


def mig_keys(minor: int | None, gi: int | None, ci: int | None) -> tuple[str, str]:
    """Return the capabilities that give access to a MIG device, under their names in `mig_minors`."""
    return (f"gpu{minor}/gi{gi}/access", f"gpu{minor}/gi{gi}/ci{ci}/access")


def mig_minors(root: str = "/") -> dict[str, int]:
    """Return the minor number of each MIG capability: "gpu0/gi1/access" → 12."""
    pairs = (line.split() for line in (read_text(root, _MIG_MINORS) or "").splitlines())
    found = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
    if found:
        return found
    # Older drivers have one file per instance.
    base = os.path.join(root, _CAPABILITIES)
    for path in glob.glob(f"{glob.escape(base)}/gpu*/mig/gi*/**/access", recursive=True):
        match = re.search(r"^DeviceFileMinor:\s*(\d+)", read_text("/", path) or "", re.MULTILINE)
        if match:
            found[os.path.relpath(path, base).replace("/mig/", "/")] = int(match.group(1))
    return found


def has_graphics(profile: str | None) -> bool:
    """Return whether MIG devices of a profile can use the DRM nodes of their GPU, for example 1g.24gb+gfx."""
    return "gfx" in (profile or "").partition("+")[2].split(",")


def drm_nodes(pci_bus_id: str | None, root: str = "/") -> list[str]:
    """List the existing DRM nodes of the GPU at a PCI address."""
    names = listing(root, f"sys/bus/pci/devices/{pci_bus_id or '-'}/drm")
    nodes = [f"/dev/dri/{name}" for name in names if re.fullmatch(r"(card|renderD)[0-9]+", name)]
    return [node for node in nodes if os.path.exists(os.path.join(root, node[1:]))]


def feature_nodes(feature: str, root: str = "/") -> list[str]:
    """List the existing nodes of an optional feature."""
    return [node for pattern in FEATURE_NODES[feature] for node in _matching(pattern, root)]


def missing_feature(feature: str) -> str:
    """Return the message for a feature without nodes."""
    patterns = " or ".join(FEATURE_NODES[feature])
    return f"no device node {patterns} exists. {_FEATURE_ADVICE[feature]}"


def feature_paths(feature: str, root: str = "/") -> list[str]:
    """List the existing directories and files that a container with the feature needs."""
    paths = FEATURE_PATHS.get(feature, ())
    return [path for path in paths if os.path.exists(os.path.join(root, path[1:]))]


def imex_channels(root: str = "/") -> dict[int, str]:
    """Return the existing IMEX channels and their nodes."""
    return {int(node.rpartition("channel")[2]): node for node in _matching(f"{IMEX_CHANNELS}/channel[0-9]*", root)}


def _matching(pattern: str, root: str) -> list[str]:
    prefix = len(root.rstrip("/"))
    found = glob.glob(os.path.join(glob.escape(root), pattern[1:]))
    return sorted((path[prefix:] for path in found), key=natural_key)
