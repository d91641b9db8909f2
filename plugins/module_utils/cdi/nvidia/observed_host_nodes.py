# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device nodes of a host with NVIDIA's GPUs in an observation, and the comparison of specifications with them."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import observed_specification_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.stale_device_nodes import (
    CdiUnit,
    HostNodes,
    compare,
    read_nodes,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.specification_document import (
    CdiNode,
    Comparison,
    Numbers,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes

# Names of devices by index: "0", "0:1", and those of NVIDIA's strategy type-index, "gpu0" and "mig0:1".
_INDEX = re.compile(r"(?:gpu)?(\d+)|(?:mig)?(\d+):(\d+)")
_UVM = "/dev/nvidia-uvm"
_WSL = "/dev/dxg"


def of_host(root: str, addresses: Iterable[str]) -> dict[str, Any]:
    """Return `HostNodes` as plain data. Only MIG capabilities of existing instances or nodes are in it."""
    nodes = read_nodes(root, addresses)
    base = os.path.join(root, "proc/driver/nvidia/capabilities")
    found = glob.glob(f"{glob.escape(base)}/gpu*/mig/gi*/**/access", recursive=True)
    existing = {os.path.relpath(path, base).replace("/mig/", "/") for path in found}
    return {
        "numbers": {
            path: observed_specification_nodes.joined(numbers) if numbers else None
            for path, numbers in nodes.numbers.items()
        },
        "majors": dict(nodes.majors),
        "drm": {address: list(names) for address, names in nodes.drm.items()},
        "mig_minors": {
            key: number
            for key, number in nodes.mig_minors.items()
            if not key.startswith("gpu")
            or key in existing
            or nvidia_device_nodes.capability_node(number) in nodes.numbers
        },
    }


def compare_specification(
    spec: Mapping[str, Any],
    host: Mapping[str, Any] | None,
    facts: Mapping[str, Any],
    names: Iterable[str] | None = None,
) -> Comparison:
    """Compare the devices of an observed specification with the host. `names`: only these devices count.

    Devices that the GPU facts do not show are left out: `staleness.changed_message` reports their UUIDs.
    """
    units = _units(facts)
    if not units:
        return Comparison()
    if spec.get("nodes") is None or host is None:
        return Comparison(unknown=("its device nodes cannot be read",))
    present = HostNodes(
        numbers={path: _numbers(text) if text else None for path, text in host["numbers"].items()},
        majors=host["majors"],
        drm=host["drm"],
        mig_minors=host["mig_minors"],
    )
    # A role that writes the file again does not create nodes of a module that is not loaded.
    capabilities = ["compute"] if _UVM in present.numbers else []
    common = spec["nodes"].get("", [])
    # The GPUs of WSL2 have no nodes of their own.
    if _WSL in common or any(_WSL in own for own in spec["nodes"].values()):
        return Comparison()
    differences: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for name, own in spec["nodes"].items():
        named = units.get(_key(name)) if name else None
        if not named or (names is not None and name not in names):
            continue
        found = compare(named, [_node(text) for text in [*common, *own]], present, capabilities)
        differences.update(dict.fromkeys(f"for device {name}, {text}" for text in found.differences))
        unknown.update(dict.fromkeys(found.unknown))
    return Comparison(tuple(differences), tuple(unknown))


def uuids(facts: Mapping[str, Any]) -> set[str]:
    """Return the UUIDs of the devices that a specification can name. A GPU in MIG mode is not one of them."""
    found: set[str] = set()
    for gpu in facts.get("nvidia_gpus", []) if facts.get("nvidia_gpu_state") == "ready" else []:
        mig = gpu.get("mig") or {}
        names = [device.get("uuid") for device in mig.get("devices") or []] if mig.get("enabled") else [gpu.get("uuid")]
        # Specifications do not contain lost GPUs, so their UUIDs show nothing.
        if (gpu.get("health") or {}).get("state") == "lost" or None in names:
            return set()
        found.update(names)
    return found


def _units(facts: Mapping[str, Any]) -> dict[str, list[CdiUnit]]:
    """Return what each name of a device stands for. It is empty if the GPUs are not all known."""
    found: dict[str, list[CdiUnit]] = {}
    every = []
    for gpu in facts.get("nvidia_gpus", []) if facts.get("nvidia_gpu_state") == "ready" else []:
        if (gpu.get("health") or {}).get("state") == "lost":
            return {}
        mig = gpu.get("mig") or {}
        minor, address = gpu.get("minor"), gpu.get("pci_bus_id")
        if not mig.get("enabled"):
            unit = CdiUnit(f"GPU {gpu.get('uuid') or gpu['index']}", minor, address)
            found.update({name: [unit] for name in (str(gpu["index"]), str(gpu.get("uuid")))})
            every.append(unit)
        for device in (mig.get("devices") or []) if mig.get("enabled") else []:
            unit = CdiUnit(
                f"MIG device {device.get('uuid')}", minor, address, device.get("gi"), device.get("ci"), is_mig=True
            )
            found.update({name: [unit] for name in (f"{gpu['index']}:{device.get('index')}", str(device.get("uuid")))})
            every.append(unit)
    return {**found, "all": every} if every else {}


def _key(name: str) -> str:
    match = _INDEX.fullmatch(name)
    return ":".join(part for part in match.groups() if part) if match else name


def _node(text: str) -> CdiNode:
    match = re.fullmatch(r"(.*) (\d+:\d+)", text, re.DOTALL)
    return CdiNode(match[1], _numbers(match[2])) if match else CdiNode(text)


def _numbers(text: str) -> Numbers:
    major, minor = text.split(":")
    return int(major), int(minor)
