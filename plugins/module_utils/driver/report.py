# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What variable nvidia_driver_report says, after the driver is installed or removed. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import reboot_decision
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def of_present(host: Host, result: DriverPlan, decision: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a host that has or gets the driver. `decision`: about the reboot."""
    driver = nvidia_driver(host)
    return {
        "version": driver["loaded"] or driver["library"],
        "flavor": driver["kernel_module_flavor"] or result.flavor,
        "source": result.source,
        "reasons": [*result.reasons, *(reboot_decision.notes(host) if result.action != "none" else [])],
        "reboot_required_reasons": decision["reasons"],
        "not_rebooted_because": decision["why_not"],
    }


def of_removal(host: Host, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of a host whose driver is removed."""
    return {
        "version": nvidia_driver(host)["loaded"] or nvidia_driver(host)["library"],
        "flavor": nvidia_driver(host)["kernel_module_flavor"],
        "source": result["source"],
        "reasons": result["reasons"],
        "reboot_required_reasons": host["reboot_required_reasons"],
        "not_rebooted_because": None,
    }
