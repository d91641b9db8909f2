# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device nodes that a host with NVIDIA's GPUs has, with their numbers."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import usual_names_by_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.specification_document import CdiNode, Numbers
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes

_DIRECTORIES = {"/dev": r"nvidia(?:\d+|ctl|-uvm|-uvm-tools|-modeset)", "/dev/nvidia-caps": r".*", "/dev/dri": r".*\d"}


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
        return self.numbers.get(path) or usual_names_by_number.numbers_of(path, self.majors)

    def name_of(self, node: CdiNode) -> str:
        """Return the name that the driver uses for a node of a specification."""
        numbers = node.numbers or self.numbers.get(node.path)
        if numbers is None:
            return node.path
        return usual_names_by_number.name_of(node.path, numbers, self.majors, self.numbers)


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
