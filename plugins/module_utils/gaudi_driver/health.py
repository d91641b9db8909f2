# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbook verify says about a working host with Gaudi accelerators. Problems: vendor_driver/health.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import gaudi_state, schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import runtime as gaudi_runtime
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import vendors

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def notes(host: Host) -> list[str]:
    """Return what the driver lacks, and a vulnerability of the vendor's container runtime."""
    if not host["accelerators"].get(vendors.GAUDI.name):
        return []
    _devices, state = vendors.observed(host, vendors.GAUDI)
    lacks = any(text in state["reason"] for text in (gaudi_state.KERNEL_DRIVER, gaudi_state.NOT_LOADED))
    found = [state["reason"]] if state["state"] == schema.READY and lacks else []
    version = gaudi_runtime.version(host)
    refused = gaudi_runtime.refusal(version) if version else None
    return [*found, *([f"{gaudi_runtime.PACKAGE} {version} {refused}"] if refused else [])]
