# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of role cuda_toolkit. They can change in any release."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variables import VariableError, plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import plan as cuda_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import request as cuda_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import toolkit_removal


def plan(
    host: dict[str, Any],
    request: dict[str, Any],
    distributions: dict[str, Any],
    branches: dict[str, int],
) -> dict[str, Any]:
    """Return the changes that install the toolkits, and the reasons."""
    try:
        wanted = cuda_request.read(request)
    except VariableError as error:
        return plain(cuda_plan.CudaPlan(problems=[str(error)]))
    return plain(cuda_plan.plan(host, wanted, distributions, branches))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {"_cuda_toolkit_plan": plan, "_cuda_toolkit_removal": toolkit_removal.plan}
