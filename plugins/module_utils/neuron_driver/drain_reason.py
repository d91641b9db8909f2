# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which changes of Neuron's packages change the driver, and what they interrupt: a reason to drain. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import DRIVER_RELOAD, Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.supported_versions import DKMS
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    device_holders,
    driver_version_change,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.plan import NeuronPlan


def changes_driver(host: Host, result: NeuronPlan) -> bool:
    """Return whether the plan replaces or unloads the driver."""
    replaces = driver_version_change.replaces(host, result.transaction, DKMS.__eq__)
    return result.acts and (replaces or bool(result.unload))


def disruptions(host: Mapping[str, Any]) -> list[Disruption]:
    """Return what a change of the packages interrupts: their scripts unload the driver."""
    module = (host["accelerators"]["neuron"] or {}).get("module") or {}
    if not module.get("loaded"):
        return []
    users = tuple(device_holders.holders(host, "neuron"))
    reason = f"AWS's packages unload driver {module.get('version') or 'neuron'}"
    return [Disruption(DRIVER_RELOAD, reason, count=len(users), names=users)]
