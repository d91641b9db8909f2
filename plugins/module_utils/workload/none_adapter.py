# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapter none: nothing is drained."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import WorkloadView


class NoWorkload:
    """No work is read, and none is kept away."""

    name = "none"
    gaps = ("Nothing was drained, so work can run and start at any time.",)
    closes = False

    def view(self) -> WorkloadView:
        """Return no work."""
        return WorkloadView()

    def close(self, reason: str) -> None:
        """Close nothing."""

    def reopen(self) -> None:
        """Open nothing."""

    def stop(self, identifiers: tuple[str, ...]) -> None:
        """Stop nothing."""

    def start(self, identifiers: tuple[str, ...]) -> list[str]:
        """Start nothing."""
        return []
