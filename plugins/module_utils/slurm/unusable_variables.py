# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the role's variables that would have no effect on this host, or a wrong one. They stop the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import auto_detection, gpu_types

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import gres_lines
    from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_files_plan import SlurmHost, SlurmRequest


def problems(host: SlurmHost, request: SlurmRequest, selected: Sequence[gres_lines.SlurmGres]) -> list[str]:
    """Return what the user must correct, with the place and the way out."""
    found = [gpu_types.unknown_models(host.devices, request.types)]
    if request.detect != "off":
        found += [
            auto_detection.other_vendors(request.detect, selected),
            gpu_types.unfit_for_detection(request.detect, request.types),
        ]
    if host.lacks_client:
        found.append(
            f"{host.lacks_client} does not exist. Set gpu_slurm_node_programs to the directory of Slurm's programs, or "
            "remove the variable."
        )
    if selected and not host.has_directory and not host.configless:
        found.append(
            f"{host.directory} does not exist. Install slurmd, or set gpu_slurm_node_directory to the directory of "
            "slurm.conf."
        )
    return [text for text in found if text]
