# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to put back after a failed installation, for role nvidia_driver."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import undo


def nvidia_driver_undo(host: dict, before: dict, plan: dict) -> dict[str, Any]:
    """Say what a host that the driver did not come to had before and has not got now."""
    return {
        "files": undo.files(before, host, plan["version"]),
        "lacking": undo.lacking(before, host, plan),
    }


class FilterModule:
    """Register the filter."""

    def filters(self) -> dict[str, Any]:
        """Return the filter by its name."""
        return {"nvidia_driver_undo": nvidia_driver_undo}
