# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbook verify notes on a working Gaudi host. vendor_driver/accelerator_health.py has the problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import gaudi_host_state, schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import habana_runtime
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import vendor_differences

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def notes(host: Host) -> list[str]:
    """Return what the driver lacks, and a vulnerability of the vendor's container runtime."""
    if not host["accelerators"].get(vendor_differences.GAUDI.name):
        return []
    _devices, state = vendor_differences.observed(host, vendor_differences.GAUDI)
    lacks = any(text in state["reason"] for text in (gaudi_host_state.KERNEL_DRIVER, gaudi_host_state.NOT_LOADED))
    found = [state["reason"]] if state["state"] == schema.READY and lacks else []
    version = habana_runtime.version(host)
    refused = habana_runtime.refusal(version) if version else None
    return [*found, *([f"{habana_runtime.PACKAGE} {version} {refused}"] if refused else [])]
