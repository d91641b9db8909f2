# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What role gpu_slurm_node declares about itself."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Owns, RoleDeclaration
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.variables import SlurmNodeRequest

ROLE = RoleDeclaration(
    name="gpu_slurm_node", request=SlurmNodeRequest, reports=True, owns=Owns(units=("slurmd.service",))
)
