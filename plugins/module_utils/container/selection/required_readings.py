# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must be read of the GPUs for a request: processes, distances, memory of partitions. Pure functions."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.conditions_option import Conditions
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import Request

# The readings of a vendor that not every request needs. The free memory of whole devices is always read.
TOPOLOGY, PROCESSES, PARTITION_MEMORY = NEEDS = ("topology", "processes", "partition_memory")


def required_readings(request: Request, conditions: Conditions, *, exclusive: bool) -> set[str]:
    """Return what the selection requires in addition to the readings of every request: see NEEDS."""
    needs = {TOPOLOGY} if request.kind == "count" else set()
    if request.kind == "count" or exclusive or conditions.idle:
        needs.add(PROCESSES)
    if conditions.memory_free_min_mib is not None:
        needs.add(PARTITION_MEMORY)
    return needs
