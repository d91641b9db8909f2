# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which changes of Gaudi's packages change the driver or the firmware, and so are a reason to drain. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import habana_runtime
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    driver_version_change,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver.plan import GaudiPlan
    from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver.variables import GaudiDriverRequest


def changes_driver(host: Host, request: GaudiDriverRequest, result: GaudiPlan) -> bool:
    """Return whether the plan changes the driver.

    The vendor does not publish what the scripts of its packages do, so a removal counts, too.
    """
    replaces = driver_version_change.replaces(host, result.transaction, lambda name: _is_driver(name, request))
    return result.acts and (replaces or bool(result.packages))


def _is_driver(package: str, request: GaudiDriverRequest) -> bool:
    """Return whether a package has the driver or the firmware. The runtime of containers is no part of the driver."""
    is_vendors = package.startswith("habanalabs") and package != habana_runtime.PACKAGE
    return is_vendors or package == request.driver_package
