# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device nodes a container gets for its GPUs and driver capabilities."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes as nvidia_nodes


def device_nodes(host: IsolationHost, units: Sequence[Unit], capabilities: Sequence[str]) -> list[str]:
    """Return the device nodes of the units and the control nodes that the capabilities require."""
    nodes = ["/dev/nvidiactl"]
    if "compute" in capabilities or "video" in capabilities:
        nodes += ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    if "graphics" in capabilities or "display" in capabilities:
        nodes.append("/dev/nvidia-modeset")
    nodes = [node for node in nodes if host.has(node)]
    nodes += [nvidia_nodes.gpu_node(unit.gpu.minor) for unit in units if unit.gpu.minor is not None]
    minors = nvidia_nodes.mig_minors(host.root)
    for unit in units:
        if unit.is_partition:
            nodes += [nvidia_nodes.capability_node(minors[key]) for key in unit.mig_keys if key in minors]
        if needs_drm_nodes(unit, capabilities):
            nodes += nvidia_nodes.drm_nodes(unit.gpu.pci_bus_id, host.root)
    return list(dict.fromkeys(nodes))


def needs_drm_nodes(unit: Unit, capabilities: Sequence[str]) -> bool:
    """Return whether a container with the capabilities gets the DRM nodes of the unit's GPU."""
    has_graphics = not unit.is_partition or nvidia_nodes.has_graphics(unit.profile)
    return has_graphics and ("graphics" in capabilities or "display" in capabilities)
