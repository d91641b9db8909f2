# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How close the GPUs of a host are to each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Gpu

_PCIE_CLOSENESS = {"internal": 6, "pix": 5, "pxb": 4, "phb": 3, "node": 2, "sys": 1}
_LINK_WEIGHT = 100
_SAME_NUMA_WEIGHT = 1


@dataclass(frozen=True)
class Topology:
    """Links between whole GPUs, for example NVLinks, and their PCIe paths.

    Row and column `i` of each matrix belong to the GPU `uuids[i]`.
    """

    uuids: tuple[str, ...] = ()
    links: tuple[tuple[int, ...], ...] = ()
    pcie: tuple[tuple[str, ...], ...] = ()
    _positions: dict[str, int] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        self._positions.update({uuid: position for position, uuid in enumerate(self.uuids)})

    def closeness(self, first: Gpu, second: Gpu) -> int:
        """Score a pair: links first, then the PCIe path, then the NUMA node."""
        if first.uuid == second.uuid:
            return 2 * _LINK_WEIGHT
        score = _SAME_NUMA_WEIGHT if first.numa_node is not None and first.numa_node == second.numa_node else 0
        row, column = self._positions.get(first.uuid), self._positions.get(second.uuid)
        if row is None or column is None:
            return score
        if self.links:
            score += _LINK_WEIGHT * (self.links[row][column] or 0)
        if self.pcie:
            score += 2 * _PCIE_CLOSENESS.get(self.pcie[row][column] or "", 0)
        return score
