# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of the shared planner of packages that the planners of vendors' drivers use."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import (
    RolePackagesCase,
    RoleTransaction,
    fits,
    found_on,
    plan,
    wrong,
)

VendorPackageCase, VendorTransaction = RolePackagesCase, RoleTransaction
__all__ = ["VendorPackageCase", "VendorTransaction", "fits", "found_on", "plan", "texts", "wrong"]


def texts(work: RoleTransaction) -> list[str]:
    """Return the changes of a transaction as imperative texts."""
    return work.changes()
