# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs that the compute driver KFD knows, and the PCI function that each one belongs to.

A GPU that is partitioned has one KFD node for each partition, all at the PCI address of the GPU.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import sysfs_refusals

DIRECTORY = "/sys/class/kfd/kfd/topology/nodes"
_XGMI = 11
_NO_UNIQUE_ID = 0


class AcceleratorKfdNode(NamedTuple):
    """One KFD node with a GPU. `number` is its partition number, or None if the node does not tell one.

    `links_refusal`: why its links cannot be read.
    """

    name: str
    address: str
    number: int | None
    render_minor: int | None
    unique_id: str | None
    gfx_target: str | None
    chiplets: int | None
    hive: str | None
    peers: tuple[str, ...] | None
    links_refusal: str | None
    has_cpu: bool


class AcceleratorKfd(NamedTuple):
    """The topology. `loaded`: the kernel has KFD. `hidden`: nodes that cannot be read, with the first reason."""

    loaded: bool
    nodes: tuple[AcceleratorKfdNode, ...]
    hidden: tuple[str, ...]


def read(tree: sysfs_refusals.SysfsTree, functions: dict[str, dict], render_nodes: dict[int, str]) -> AcceleratorKfd:
    """Return the KFD nodes with GPUs. `render_nodes`: PCI addresses by the number of the function's renderD node."""
    if not tree.exists(DIRECTORY):
        return AcceleratorKfd(loaded=False, nodes=(), hidden=())
    nodes, hidden = [], []
    for name in tree.names(DIRECTORY, r"[0-9]{1,6}"):
        reading = tree.read(f"{DIRECTORY}/{name}/properties")
        found = sysfs_refusals.properties(reading.text or "")
        if "simd_count" not in found:
            hidden.append(f"KFD node {name}: {reading.refusal or 'no simd_count in its properties'}")
        elif found["simd_count"] > 0:
            nodes.append(_node(tree, name, found, functions, render_nodes))
    return AcceleratorKfd(loaded=True, nodes=tuple(nodes), hidden=tuple(hidden))


def target_name(version: int) -> str | None:
    """Return the name of a compile target: 90402 → gfx942, 90010 → gfx90a."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}" if 0 < major < 100 and minor < 16 and step < 16 else None


def place(domain: int, location: int, functions: dict[str, dict]) -> tuple[str, int | None]:
    """Return the PCI address in a location ID, and the partition number.

    Kernels write the number into the lowest three bits or into the highest four bits (drivers/gpu/drm/amd/amdkfd/
    kfd_topology.c has had both). The lowest bits are also the function of the address, for example of a virtual GPU.
    """
    bus, slot, function, number = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 0x7, location >> 28 & 0xF
    exact = f"{domain & 0xFFFFFFFF:04x}:{bus:02x}:{slot:02x}.{function}"
    if exact in functions or not function:
        return exact, number or None
    return f"{exact[:-1]}0", function


def _node(tree, name: str, found: dict[str, int], functions: dict[str, dict], render_nodes: dict[int, str]):
    address, number = place(found.get("domain", 0), found.get("location_id", 0), functions)
    render_minor = found.get("drm_render_minor") or None
    unique_id = found.get("unique_id", _NO_UNIQUE_ID)
    hive = found.get("hive_id", 0)
    peers, refusal = _peers(tree, f"{DIRECTORY}/{name}/io_links")
    return AcceleratorKfdNode(
        name=name,
        # The DRM node is exact. A location ID of an old kernel has no domain.
        address=render_nodes.get(render_minor or -1, address),
        number=number,
        render_minor=render_minor,
        unique_id=f"{unique_id:016x}" if 0 < unique_id < 1 << 64 else None,
        gfx_target=target_name(found.get("gfx_target_version", 0)),
        chiplets=found.get("num_xcc") or None,
        hive=f"{hive:016x}" if 0 < hive < 1 << 64 else None,
        peers=peers,
        links_refusal=refusal,
        has_cpu=found.get("cpu_cores_count", 0) > 0,
    )


def _peers(tree: sysfs_refusals.SysfsTree, directory: str) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the names of the nodes with an XGMI link. If a link cannot be read: None, and the reason."""
    if not tree.exists(directory):
        return None, None
    peers = []
    for name in tree.names(directory, r"[0-9]{1,6}"):
        reading = tree.read(f"{directory}/{name}/properties")
        found = sysfs_refusals.properties(reading.text or "")
        if "type" not in found or "node_to" not in found:
            return None, f"io_links/{name}: {reading.refusal or 'no type and node_to in its properties'}"
        if found["type"] == _XGMI:
            peers.append(str(found["node_to"]))
    return tuple(peers), None
