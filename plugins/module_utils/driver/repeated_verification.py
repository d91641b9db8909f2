# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run repeats the driver verification that failed in an earlier run, and plans this step. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def is_due(host: Host, request: DriverRequest) -> bool:
    """Return whether the verification is due. A driver that needs a reboot is verified after the reboot."""
    can_verify = request.activate and not any(reason["driver"] for reason in host["reboot_reasons"])
    return can_verify and observed_files.exists(host, owned.DRIVER_UNVERIFIED_MARKER)


def planned_steps(*, verifies: bool, has_work: bool) -> list[Step]:
    """Return the step of a verification that is due. A plan with other work has none: every change is verified."""
    if not verifies or has_work:
        return []
    return [steps.own("verification", "repeat the driver verification that failed in an earlier run")]
