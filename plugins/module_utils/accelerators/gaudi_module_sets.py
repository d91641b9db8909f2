# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Gaudi accelerators can work together in one container. Pure functions.

The vendor supports one accelerator, fixed pairs and quads of module IDs, or all accelerators of the host (Intel Gaudi
documentation, Multiple Workloads on a Single Docker).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import gaudi_sysfs_values
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_access import ACCESS
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import GAUDI

_DEVICES, VARIABLE = ACCESS[GAUDI].variables
_SETS = (
    *((first, first + 1) for first in (0, 2, 4, 6)),
    *(tuple(range(first, first + 4)) for first in (0, 4)),
)


def module_of(stable_id: str) -> int | None:
    """Return the module ID in a stable ID, or None for an accelerator that is named by its address."""
    number = stable_id[len(gaudi_sysfs_values.MODULE) :]
    return int(number) if stable_id.startswith(gaudi_sysfs_values.MODULE) and number.isdecimal() else None


def groups(stable_ids: Collection[str]) -> tuple[frozenset[str], ...]:
    """Return the sets of several accelerators that can work together, the smallest first.

    `stable_ids`: those of all accelerators of the host, also of the unusable ones.
    """
    by_module = {module_of(name): name for name in stable_ids}
    found = [frozenset(by_module[number] for number in one) for one in _SETS if by_module.keys() >= set(one)]
    everything = frozenset(stable_ids)
    if len(everything) > 1 and everything not in found:
        found.append(everything)
    return tuple(found)


def visible_modules(stable_ids: Iterable[str]) -> dict[str, str]:
    """Return the variable that tells the libraries in a container which modules it has.

    It is empty if an accelerator has no module ID. Then the device nodes alone are the isolation.
    """
    names = list(stable_ids)
    numbers = [number for name in names if (number := module_of(name)) is not None]
    return {VARIABLE: ",".join(map(str, sorted(numbers)))} if names and len(numbers) == len(names) else {}
