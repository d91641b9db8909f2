# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of role cuda_toolkit. They can change in any release."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variables import VariableError, plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import plan as cuda_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import removal as cuda_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import request as cuda_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record


def plan(
    host: dict[str, Any],
    request: dict[str, Any],
    distributions: dict[str, Any],
    branches: dict[str, int],
    *,
    offered: dict[str, list[str]] | None = None,
) -> dict[str, Any]:
    """Return the changes that install the toolkits, and the reasons."""
    try:
        wanted = cuda_request.read(request)
    except VariableError as error:
        return plain(cuda_plan.Plan(problems=[str(error)]))
    return plain(cuda_plan.plan(host, wanted, distributions, branches, offered=offered))


def record(
    host: dict[str, Any],
    before: list[str],
    after: list[str] | None = None,
    key: str | None = None,
    asked: list[str] | None = None,
) -> str:
    """Return the text of the record before (without `after`) or after an installation."""
    if after is None:
        return packages_record.begin(host, packages_record.TOOLKIT, before, key=key, asked=asked)
    return packages_record.finish(host, packages_record.TOOLKIT, before, after, key=key)


def verified(host: dict[str, Any], directories: list[str]) -> str:
    """Return the text of the record with verified toolkits."""
    return packages_record.verify(host, packages_record.TOOLKIT, directories)


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {
            "_cuda_toolkit_forbidden_changes": transaction.forbidden_changes,
            "_cuda_toolkit_plan": plan,
            "_cuda_toolkit_record": record,
            "_cuda_toolkit_removal": cuda_removal.plan,
            "_cuda_toolkit_verified": verified,
        }
