# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role gpu_slurm_node, with their types and accepted values."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.option_limits import LONGEST_DRAIN
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import variable


@dataclasses.dataclass(frozen=True)
class SlurmNodeRequest:
    """The variables of the role, without the prefix `gpu_slurm_node_`."""

    state: str = variable("present", choices=("present", "absent"))
    name: str = variable("")
    detect: str = variable("off")
    types: dict[str, Any] = variable({}, sample='{"Tesla T4": small}')
    constrain_devices: bool = variable(True)
    directory: str = variable("/etc/slurm", form="/.*", sample="/etc/slurm")
    programs: str = variable("", form="/.*", sample="/opt/slurm/bin")
    drain_timeout: int = variable(3600, minimum=1, maximum=LONGEST_DRAIN)
