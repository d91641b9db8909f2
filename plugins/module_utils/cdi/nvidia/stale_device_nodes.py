# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a CDI specification has other device nodes than its GPUs and MIG devices have now.

A name in a specification proves nothing: minor numbers, the numbers of capabilities, the major numbers of some modules
and the names of DRM nodes can change when the driver is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import rewrite_command
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.host_device_nodes import HostNodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.usual_names_by_number import CAPABILITY, GPU
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

_DRM = re.compile(r"/dev/dri/(?:card|renderD)\d+")
_GRAPHICS = frozenset({"graphics", "display"})


@dataclass(frozen=True)
class CdiUnit:
    """A GPU or MIG device as NVML shows it. `gi` and `ci` are those of a MIG device, None if they are unknown."""

    title: str
    minor: int | None
    pci_bus_id: str | None
    gi: int | None = None
    ci: int | None = None
    is_mig: bool = False


def compare(
    units: Sequence[CdiUnit], nodes: Iterable[CdiNode], host: HostNodes, capabilities: Collection[str] = ()
) -> Comparison:
    """Compare a CDI device that stands for `units` with the host. `nodes` include those of the whole file."""
    given: dict[str, CdiNode] = {host.name_of(node): node for node in nodes}
    differences, unknown = _changed_numbers(given.values(), host)
    expected: dict[str, str] = {}
    reasons = []
    for unit in units:
        required, reason = _required(unit, host)
        expected.update(dict.fromkeys(required, unit.title))
        reasons += [reason] if reason else []
    unknown += reasons
    # Without all expected nodes, a node cannot be called another GPU's.
    others = [] if reasons else [name for name in given if name not in expected and _is_foreign(name, units, host)]
    differences += [f"it has {name}, which is not a node of {_titles(units)}" for name in others]
    differences += [f"it lacks {name} of {title}" for name, title in expected.items() if name not in given]
    has_drm = [name for name in given if _DRM.fullmatch(name)]
    if has_drm and any(unit.pci_bus_id not in host.drm for unit in units):
        unknown.append(f"/sys does not show the DRM nodes of {_titles(units)}")
    paths = {node.path for node in given.values()}
    control = ["/dev/nvidiactl", *(["/dev/nvidia-uvm"] if "compute" in capabilities else [])]
    if _GRAPHICS & {*capabilities}:
        control.append("/dev/nvidia-modeset")
    differences += [f"it lacks {name}" for name in control if name not in given and name not in paths]
    return Comparison(tuple(dict.fromkeys(differences)), tuple(dict.fromkeys(unknown)))


def _changed_numbers(nodes: Collection[CdiNode], host: HostNodes) -> tuple[list[str], list[str]]:
    differences, unknown = [], []
    for node in nodes:
        if not node.numbers:
            continue
        present = host.numbers_of(node.path)
        written = ":".join(map(str, node.numbers))
        if present is None:
            unknown.append(f"the numbers of {node.path} on the host are unknown, so {written} cannot be checked")
        elif present != node.numbers:
            differences.append(f"it has {node.path} as {written}, which is {':'.join(map(str, present))} on the host")
    return differences, unknown


def _required(unit: CdiUnit, host: HostNodes) -> tuple[list[str], str | None]:
    """Return the nodes without which the unit cannot be used, and why they are unknown."""
    if unit.minor is None:
        return [], f"the driver does not report the minor number of {unit.title}"
    nodes = [nvidia_device_nodes.gpu_node(unit.minor)]
    if not unit.is_mig:
        return nodes, None
    if unit.gi is None or unit.ci is None:
        return nodes, f"the driver does not report the instances of {unit.title}"
    keys = nvidia_device_nodes.mig_keys(unit.minor, unit.gi, unit.ci)
    absent = [key for key in keys if key not in host.mig_minors]
    if absent:
        return nodes, f"/proc/driver/nvidia-caps/mig-minors does not list {absent[0]} of {unit.title}"
    return [*nodes, *(nvidia_device_nodes.capability_node(host.mig_minors[key]) for key in keys)], None


def _is_foreign(name: str, units: Sequence[CdiUnit], host: HostNodes) -> bool:
    if _DRM.fullmatch(name):
        addresses = [unit.pci_bus_id or "" for unit in units]
        is_known = all(address in host.drm for address in addresses)
        return is_known and not any(name in host.drm[address] for address in addresses)
    capability = CAPABILITY.fullmatch(name)
    if capability:
        # The capabilities "config" and "monitor" belong to no GPU.
        common = [number for key, number in host.mig_minors.items() if not key.startswith("gpu")]
        return int(capability.group(1)) not in common
    return bool(GPU.fullmatch(name))


def _titles(units: Sequence[CdiUnit]) -> str:
    return ", ".join(unit.title for unit in units) or "any GPU"


def different_message(path: str, differences: str, *, ours: bool, command: str | None = None) -> str:
    """Return the message for a specification whose nodes differ from those of the host."""
    return f"the CDI specification {path} is stale: {differences}; {rewrite_command.remedy(path, command, ours=ours)}"


def compare_specification(
    spec: Mapping[str, Any],
    host: Mapping[str, Any] | None,
    facts: Mapping[str, Any],
    names: Iterable[str] | None = None,
) -> Comparison:
    """Compare the devices of an observed specification with the host. `names`: only these devices count.

    Devices that the GPU facts do not show are left out: `stale_gpu_uuids.changed_message` reports their UUIDs.
    """
    units = _units(facts)
    if not units:
        return Comparison()
    if spec.get("nodes") is None or host is None:
        return Comparison(unknown=("its device nodes cannot be read",))
    present = HostNodes(
        numbers={path: _written_numbers(text) if text else None for path, text in host["numbers"].items()},
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
    return CdiNode(match[1], _written_numbers(match[2])) if match else CdiNode(text)


def _written_numbers(text: str) -> Numbers:
    major, minor = text.split(":")
    return int(major), int(minor)
