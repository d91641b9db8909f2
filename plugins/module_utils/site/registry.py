# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry of all parts, in the order in which they act. What is true for all of them is derived here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.amd_driver.part import PART as AMD_DRIVER
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.part import PART as CUDA_TOOLKIT
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.part import PART as NVIDIA_DRIVER
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.part import PART as CONTAINER_ENGINE
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver.part import PART as GAUDI_DRIVER
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import role as kubernetes_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.part import PART as NEURON_DRIVER
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import variables as observe_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration, Owns
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence.part import PART as NVIDIA_PERSISTENCED
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.part import PART as CONTAINER_PROOF
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.verify_part import PART as VERIFY
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.volume_part import PART as DRIVER_VOLUME
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.role import ROLE as GPU_SLURM_NODE
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.part import PART as NVIDIA_CONTAINER_TOOLKIT

DECLARATIONS: tuple[Declaration, ...] = (
    NVIDIA_DRIVER,
    NVIDIA_PERSISTENCED,
    AMD_DRIVER,
    CONTAINER_ENGINE,
    NVIDIA_CONTAINER_TOOLKIT,
    NEURON_DRIVER,
    GAUDI_DRIVER,
    DRIVER_VOLUME,
    CONTAINER_PROOF,
    VERIFY,
    CUDA_TOOLKIT,
)
BY_NAME = {one.name: one for one in DECLARATIONS}
# The parts of playbook `site`.
PARTS = tuple(one.name for one in DECLARATIONS if not one.is_alone)
# The roles around the parts.
ROLES = (GPU_SLURM_NODE, kubernetes_role.NODE, kubernetes_role.CLUSTER)
# The dataclass of each role's variables.
REQUESTS: dict[str, type] = {
    "observe": observe_request.ObserveRequest,
    **{one.name: one.request for one in (*DECLARATIONS, *ROLES) if one.request},
}
# The variables that the roles set for playbooks.
OUTPUTS = frozenset(f"{one.name}_report" for one in (*DECLARATIONS, *ROLES) if one.reports)
# The parts of these vendors are observed on every host. Those of other vendors only on hosts that need them.
_EVERYWHERE = (None, "nvidia")


def removal_order() -> list[str]:
    """Return the parts in the order of their removals."""
    return sorted(BY_NAME, key=lambda name: not BY_NAME[name].removed_first)


def order() -> list[dict[str, Any]]:
    """Return the parts in the order in which playbook `site` applies their plans.

    `role`: whether a role applies the plan. `removal`: whether this is the turn of a removal that comes first.
    """
    acting = [one for one in DECLARATIONS if (one.request or one.is_step) and not one.is_alone]
    turns = [(one, True) for one in acting if one.removed_first] + [(one, False) for one in acting]
    return [{"part": one.name, "role": not one.is_step, "removal": removal} for one, removal in turns]


def files(parts: Collection[str], values: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the further paths that the plans of these parts must observe. `values`: the user's variables by role."""
    readers = {name: BY_NAME[name].files for name in parts}
    return [path for name, read in readers.items() if read for path in read(values[name])]


def observed() -> dict[str, Any]:
    """Return what all parts and roles own, as the observation gets it. A plan also depends on what other parts own."""
    common = [*(one.owns for one in DECLARATIONS if one.vendor in _EVERYWHERE), *(one.owns for one in ROLES)]
    vendors: dict[str, list[Owns]] = {}
    for one in DECLARATIONS:
        if one.vendor not in _EVERYWHERE:
            vendors.setdefault(str(one.vendor), []).append(one.owns)
    every = [*common, *(one for owns in vendors.values() for one in owns)]
    patterns = dict.fromkeys(pattern for one in every for pattern in one.packages)
    return {
        **_places(common),
        "package_patterns": [*patterns],
        "vendors": {vendor: _places(owns) for vendor, owns in vendors.items()},
    }


def _places(owns: Iterable[Owns]) -> dict[str, list[str]]:
    found = [*owns]
    return {
        "files": [*dict.fromkeys(path for one in found for path in one.files)],
        "services": [*dict.fromkeys(unit for one in found for unit in one.units)],
        "repositories": [*dict.fromkeys(name for one in found for name in one.repositories)],
    }
