# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters for the records, transactions and removals of role cuda_toolkit."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import removal as cuda_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record


def record(
    host: dict[str, t.Any],
    before: list[str],
    after: list[str] | None = None,
    key: str | None = None,
    asked: list[str] | None = None,
) -> str:
    """Return the text of the record before (without `after`) or after an installation."""
    if after is None:
        return packages_record.begin(host, packages_record.TOOLKIT, before, key=key, asked=asked)
    return packages_record.finish(host, packages_record.TOOLKIT, before, after, key=key)


def verified(host: dict[str, t.Any], directories: list[str]) -> str:
    """Return the text of the record with verified toolkits."""
    return packages_record.verify(host, packages_record.TOOLKIT, directories)


class FilterModule:
    """The filters."""

    def filters(self) -> dict[str, t.Any]:
        """Return the filters by name."""
        return {
            "cuda_toolkit_forbidden_changes": transaction.forbidden_changes,
            "cuda_toolkit_record": record,
            "cuda_toolkit_removal": cuda_removal.plan,
            "cuda_toolkit_unrelated_removals": transaction.unrelated_removals,
            "cuda_toolkit_unneeded": transaction.unneeded,
            "cuda_toolkit_verified": verified,
        }
