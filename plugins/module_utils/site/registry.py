# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry of all parts, in the order in which they act. What is true for all of them is derived here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.amd_driver.part import PART as AMD_DRIVER
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.part import PART as CUDA_TOOLKIT
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.part import PART as CONTAINER_ENGINE
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver.part import PART as GAUDI_DRIVER
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import request as kubernetes_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.part import PART as NEURON_DRIVER
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import request as observe_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration, Owns
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence.part import PART as NVIDIA_PERSISTENCED
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.part import PART as CONTAINER_PROOF
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.driver import PART as NVIDIA_DRIVER
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.verify_part import PART as VERIFY
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.volume_part import PART as DRIVER_VOLUME
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import request as slurm_request
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
# The dataclass of each role's variables. The roles around those of the parts are no parts of playbook `site`.
REQUESTS: dict[str, type] = {
    "observe": observe_request.ObserveRequest,
    **{one.name: one.request for one in DECLARATIONS if one.request},
    "gpu_slurm_node": slurm_request.SlurmNodeRequest,
    "gpu_kubernetes_node": kubernetes_request.KubernetesNodeRequest,
    "gpu_kubernetes_cluster": kubernetes_request.KubernetesClusterRequest,
}
# The variables that the roles set for playbooks.
_OTHER_OUTPUTS = ("gpu_slurm_node_report", "gpu_kubernetes_node_report")
OUTPUTS = frozenset({*(f"{one.name}_report" for one in DECLARATIONS if one.reports), *_OTHER_OUTPUTS})


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


def owned(parts: Collection[str]) -> Owns:
    """Return what these parts own together. It reaches the observation as its options."""
    declared = [BY_NAME[name].owns for name in parts]
    return Owns(
        files=tuple(path for one in declared for path in one.files),
        units=tuple(unit for one in declared for unit in one.units),
        packages=tuple(pattern for one in declared for pattern in one.packages),
    )
