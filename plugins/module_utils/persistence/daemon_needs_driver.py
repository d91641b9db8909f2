# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host without a driver needs no persistence daemon, and when the daemon waits for the driver. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import is_driver_wanted
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vendor_names

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Values
    from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence.plan import PersistencePlan

# The change and the reason of a daemon that waits for the driver.
CHANGE = "configure nvidia-persistenced.service after the driver is installed"
REASON = "the packages of the driver can contain the daemon"


def no_driver(host: Host, values: Values) -> str | None:
    """Return why the host has and gets no driver, or None."""
    if is_driver_wanted(host, values):
        return None
    if vendor_names.nvidia_group(host)["gpus"]:
        return "nvidia_driver_state is absent"
    return "this host has no NVIDIA GPU, or all are assigned to virtual machines"


def waits_for_driver(host: Host, result: PersistencePlan) -> bool:
    """Return whether only the driver, which this run installs, shows what there is to do.

    On some platforms, the driver's packages bring the daemon, whose unit is known only afterwards.
    """
    return not result.changes and not vendor_names.nvidia_driver(host)["loaded"]
