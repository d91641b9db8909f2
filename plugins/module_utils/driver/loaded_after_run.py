# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which driver version will be loaded after the role, and what else later parts must know. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.outcomes import DriverOutcome

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def outcome(host: Host, request: DriverRequest, result: DriverPlan, *, installs: bool, reboots: bool) -> DriverOutcome:
    """Return what the part tells the parts after it. `installs`: whether the files of the driver change."""
    return DriverOutcome(
        is_planned=True,
        next_loaded=_next_loaded(host, request, result, installs, reboots),
        installs=installs,
        packages=tuple(name.partition("=")[0] for name in result.todo.transaction.install),
        adopts=result.action == "adopt",
        reloads=result.reloads,
        rejected_sources=result.rejected_sources,
    )


def _next_loaded(host: Host, request: DriverRequest, result: DriverPlan, installs: bool, reboots: bool) -> str | None:
    """Return the driver version that will be loaded after the role."""
    driver = nvidia_driver(host)
    if request.activate and installs:
        return result.version or driver["loaded"]
    if "nvidia" in result.todo.modules["load"]:
        # A module that is still to be built has the version of the packages.
        return driver["on_disk"] or result.version
    return (driver["on_disk_next"] if reboots else None) or driver["loaded"]
