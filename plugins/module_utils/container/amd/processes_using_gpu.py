# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes count as using an AMD GPU, for exclusive containers and the condition `idle`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import amd_kfd_nodes, sysfs_refusals
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import GpuProcess, Inventory
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes

# Processes with a compute context. vram_<gpu_id> is the memory of the process on that GPU, and queues/<n>/gpuid the GPU
# of a queue (torvalds/linux, drivers/gpu/drm/amd/amdkfd/kfd_process.c).
_PROCESSES = "/sys/class/kfd/kfd/proc"


def with_processes(inventory: Inventory, root: str, minors: Mapping[int, str]) -> Inventory | None:
    """Return the inventory with the processes on each GPU, or None if KFD lists none. `minors`: the unit of each node.

    The runtime of ROCm opens the nodes of all GPUs. So of the processes that KFD knows, only those count that have
    memory or a queue on the GPU, and of all others, those that have its node open.
    """
    tree = sysfs_refusals.SysfsTree(root)
    if not tree.exists(_PROCESSES):
        return None
    units = _units_by_kfd_id(tree, minors)
    computing = {int(name) for name in tree.names(_PROCESSES, r"[0-9]{1,10}")}
    found: dict[str, list[GpuProcess]] = {gpu.uuid: [] for gpu in inventory.gpus}
    for pid in sorted(computing):
        for kfd_id in _used(tree, f"{_PROCESSES}/{pid}") & units.keys():
            found[units[kfd_id]].append(GpuProcess(pid))
    nodes = {node for gpu in inventory.gpus for node in gpu.nodes}
    for one in gpu_processes.read(root, nodes=nodes).processes.values():
        for gpu in inventory.gpus:
            if one.pid not in computing and one.opened & gpu.nodes:
                found[gpu.uuid].append(GpuProcess(one.pid, one.command))
    gpus = {gpu.uuid: replace(gpu, processes=tuple(found[gpu.uuid])) for gpu in inventory.gpus}
    changed = tuple(replace(unit, gpu=gpus[unit.gpu.uuid]) for unit in inventory.units)
    return replace(inventory, gpus=tuple(gpus.values()), units=changed)


def _units_by_kfd_id(tree: sysfs_refusals.SysfsTree, minors: Mapping[int, str]) -> dict[str, str]:
    """Return the stable ID of each unit by the ID that KFD gives it until the next boot."""
    found = {}
    for name in tree.names(amd_kfd_nodes.DIRECTORY, r"[0-9]{1,6}"):
        base = f"{amd_kfd_nodes.DIRECTORY}/{name}"
        minor = sysfs_refusals.properties(tree.read(f"{base}/properties").text or "").get("drm_render_minor")
        kfd_id = tree.read(f"{base}/gpu_id").text
        if minor in minors and kfd_id:
            found[kfd_id] = minors[minor]
    return found


def _used(tree: sysfs_refusals.SysfsTree, directory: str) -> set[str]:
    """Return the IDs of the GPUs on which a process has memory or a queue."""
    found = {
        name[len("vram_") :]
        for name in tree.names(directory, r"vram_[0-9]{1,10}")
        if (tree.read(f"{directory}/{name}").text or "") not in ("", "0")
    }
    for queue in tree.names(f"{directory}/queues", r"[0-9]{1,10}"):
        found.add(tree.read(f"{directory}/queues/{queue}/gpuid").text or "")
    return found
