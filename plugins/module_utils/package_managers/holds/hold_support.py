# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host can hold packages. Pure functions of its observation."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# dnf cannot hold packages without this plugin.
VERSIONLOCK = "python3-dnf-plugin-versionlock"


def can_hold(host: Host) -> bool:
    """Return whether packages can be held."""
    return host["os"]["package_manager"] != "dnf" or VERSIONLOCK in host["installed_packages"]


def with_versionlock(host: Host) -> Host:
    """Return the host as it will be when dnf's plugin is installed."""
    return cast("Host", {**host, "installed_packages": {**host["installed_packages"], VERSIONLOCK: "0 noarch"}})
