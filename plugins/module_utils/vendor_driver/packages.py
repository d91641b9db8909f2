# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of the shared planner of packages that the planners of vendors' drivers use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import (
    RolePackagesCase,
    RoleTransaction,
    fits,
    found_on,
    plan,
    wrong,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

VendorPackageCase, VendorTransaction = RolePackagesCase, RoleTransaction
__all__ = ["VendorPackageCase", "VendorTransaction", "fits", "found_on", "plan", "replaces", "texts", "wrong"]


def texts(work: RoleTransaction) -> list[str]:
    """Return the changes of a transaction as imperative texts."""
    return work.changes()


def replaces(host: Host, work: RoleTransaction | None, is_driver: Callable[[str], bool]) -> bool:
    """Return whether a package of the driver gets another version. A transaction also names packages that stay."""
    items = [item.partition("=") for item in (work.install if work else ())]
    found = found_on(host, [name for name, _sign, _version in items])
    return any(is_driver(name) and not (name in found and fits(found[name], version)) for name, _sign, version in items)
