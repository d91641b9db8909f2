# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the device nodes of a CDI device with those that its GPU or MIG device has now.

A name in a specification proves nothing: minor numbers, the numbers of capabilities, the major numbers of some modules
and the names of DRM nodes can change when the driver is loaded.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.specification_document import (
    CdiNode,
    Comparison,
    Numbers,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes

# The driver's own major number, which is fixed: NV_MAJOR_DEVICE_NUMBER in NVIDIA/open-gpu-kernel-modules.
_DRIVER_MAJOR = 195
_CONTROL_MINORS = {255: "/dev/nvidiactl", 254: "/dev/nvidia-modeset"}
_UVM_MINORS = {0: "/dev/nvidia-uvm", 1: "/dev/nvidia-uvm-tools"}
_GPU = re.compile(r"/dev/nvidia\d+")
_CAPABILITY = re.compile(r"/dev/nvidia-caps/nvidia-cap(\d+)")
_DRM = re.compile(r"/dev/dri/(?:card|renderD)\d+")
_GRAPHICS = frozenset({"graphics", "display"})
_DIRECTORIES = {"/dev": r"nvidia(?:\d+|ctl|-uvm|-uvm-tools|-modeset)", "/dev/nvidia-caps": r".*", "/dev/dri": r".*\d"}


@dataclass(frozen=True)
class CdiUnit:
    """A GPU or MIG device as NVML shows it. `gi` and `ci` are those of a MIG device, None if they are unknown."""

    title: str
    minor: int | None
    pci_bus_id: str | None
    gi: int | None = None
    ci: int | None = None
    is_mig: bool = False


@dataclass(frozen=True)
class HostNodes:
    """The nodes of a host.

    `numbers`: those of each existing node, None if it is not a character device. `majors`: /proc/devices. `drm`: the
    DRM nodes of a GPU by its PCI address; a GPU that /sys does not show is missing. `mig_minors`: nvidia_device_nodes.
    """

    numbers: Mapping[str, Numbers | None] = field(default_factory=dict)
    majors: Mapping[str, int] = field(default_factory=dict)
    drm: Mapping[str, Sequence[str]] = field(default_factory=dict)
    mig_minors: Mapping[str, int] = field(default_factory=dict)

    def numbers_of(self, path: str) -> Numbers | None:
        """Return the numbers of a node, or None if they are unknown."""
        return self.numbers.get(path) or self._by_name(path)

    def name_of(self, node: CdiNode) -> str:
        """Return the name that the driver uses for a node of a specification."""
        numbers = node.numbers or self.numbers.get(node.path)
        if numbers is None:
            return node.path
        major, minor = numbers
        if major == _DRIVER_MAJOR:
            return _CONTROL_MINORS.get(minor) or nvidia_device_nodes.gpu_node(minor)
        if major == self.majors.get("nvidia-caps"):
            return nvidia_device_nodes.capability_node(minor)
        if major == self.majors.get("nvidia-uvm"):
            return _UVM_MINORS.get(minor, node.path)
        same = sorted(path for path, present in self.numbers.items() if present == numbers)
        return node.path if not same or node.path in same else same[0]

    def _by_name(self, path: str) -> Numbers | None:
        for major, names in ((_DRIVER_MAJOR, _CONTROL_MINORS), (self.majors.get("nvidia-uvm"), _UVM_MINORS)):
            found = next((minor for minor, name in names.items() if name == path), None)
            if major is not None and found is not None:
                return major, found
        if _GPU.fullmatch(path):
            return _DRIVER_MAJOR, int(path.removeprefix("/dev/nvidia"))
        capability, major = _CAPABILITY.fullmatch(path), self.majors.get("nvidia-caps")
        return (major, int(capability.group(1))) if capability and major is not None else None


def read_nodes(root: str, addresses: Iterable[str | None]) -> HostNodes:
    """Read the nodes of a host, and the DRM nodes of the GPUs at the PCI addresses."""
    numbers = {
        f"{directory}/{name}": _numbers(os.path.join(root, directory[1:], name))
        for directory, pattern in _DIRECTORIES.items()
        for name in listing(root, directory)
        if re.fullmatch(pattern, name)
    }
    rows = (line.split() for line in (read_text(root, "/proc/devices") or "").splitlines())
    majors = {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit() and row[1].startswith("nvidia")}
    drm = {
        address: nvidia_device_nodes.drm_nodes(address, root)
        for address in addresses
        if address and os.path.isdir(os.path.join(root, "sys/bus/pci/devices", address))
    }
    return HostNodes(numbers, majors, drm, nvidia_device_nodes.mig_minors(root))


def _numbers(path: str) -> Numbers | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else None


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
    capability = _CAPABILITY.fullmatch(name)
    if capability:
        # The capabilities "config" and "monitor" belong to no GPU.
        common = [number for key, number in host.mig_minors.items() if not key.startswith("gpu")]
        return int(capability.group(1)) not in common
    return bool(_GPU.fullmatch(name))


def _titles(units: Sequence[CdiUnit]) -> str:
    return ", ".join(unit.title for unit in units) or "any GPU"
