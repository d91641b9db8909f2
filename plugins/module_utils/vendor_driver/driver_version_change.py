# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a transaction gives a package of a vendor's driver another version. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import role_packages, role_version_choice

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def replaces(host: Host, work: role_packages.RoleTransaction | None, is_driver: Callable[[str], bool]) -> bool:
    """Return whether a package of the driver gets another version. A transaction also names packages that stay."""
    items = [item.partition("=") for item in (work.install if work else ())]
    found = role_packages.found_on(host, [name for name, _sign, _version in items])
    return any(
        is_driver(name) and not (name in found and role_version_choice.fits(found[name], version))
        for name, _sign, version in items
    )
