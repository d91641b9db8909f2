# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapter slurm: the host is a node of Slurm. The controller gives the node no new job, and running jobs end."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_drain_and_resume import SlurmClient
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import WorkloadView
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_reason import shown_reason


class SlurmWorkload:
    """The jobs of one Slurm node."""

    name = "slurm"
    gaps = ()
    closes = True

    def __init__(self, client: SlurmClient) -> None:
        self._client = client

    def view(self) -> WorkloadView:
        """Read the node and its jobs."""
        # The jobs first: a job that ends in between is work, and no work is missed.
        jobs = self._client.jobs()
        node = self._client.node()
        if not jobs and node.is_busy:
            jobs = ["a job that ends"]
        return WorkloadView(node.is_closed, shown_reason(node.reason), shown_reason(node.author), tuple(jobs))

    def close(self, reason: str) -> None:
        """Drain the node."""
        self._client.drain(reason)

    def reopen(self) -> None:
        """Resume the node."""
        self._client.resume(self._client.node())

    def stop(self, identifiers: tuple[str, ...]) -> None:
        """Jobs are never stopped."""

    def start(self, identifiers: tuple[str, ...]) -> list[str]:
        """Jobs are never stopped."""
        return []
