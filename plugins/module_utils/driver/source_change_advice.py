# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a user gets the driver from another source: the whole way, also if a driver is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import Resolution
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def removal(host: Host, installed: str | None) -> str:
    """Return how to remove the driver of the source `installed`, which another source cannot replace."""
    if installed is None:
        return ""
    record = record_of_role.read(host, record_of_role.DRIVER)
    if record["packages"] and not record_of_role.is_abandoned(host, record_of_role.DRIVER):
        return "remove the installed driver with nvidia_driver_state absent"
    if nvidia_driver(host)["runfile"]:
        return "remove the installed driver with 'nvidia-uninstall'"
    tool = host["os"]["package_manager"] or "the tool that installed it"
    return (
        f"remove the installed driver with {tool} (nvidia_driver_state absent removes only packages that this role "
        "installed)"
    )


def advice(result: Resolution, *sources: str) -> str:
    """Return what to do to use one of the sources, or another one than now, as the end of a sentence.

    The role refuses another source while a driver is installed, so advice without the removal would be refused, too.
    """
    others = sources or tuple(result.other_sources)
    if not result.removal:
        return f"set nvidia_driver_source to {' or '.join(others)}" if sources else "set another nvidia_driver_source"
    names = " or ".join(others) if others else "another source"
    present = " and nvidia_driver_state to present" if result.removal.endswith("absent") else ""
    return f"{result.removal}, then set nvidia_driver_source to {names}{present}"


def needed_by_guest(version: str) -> str:
    """Return the start of an error of an LXC guest, whose driver has the version that its node has loaded."""
    return f"This LXC guest needs user-space packages of exactly driver {version}, which its node has loaded"


def advice_for_guest(version: str) -> str:
    """Return what to do if no source has the version of the node."""
    return (
        f"Enable a repository that has version {version}, load another driver on the node, or let the node provide the "
        "libraries (nvidia.runtime of LXD and Incus)."
    )
