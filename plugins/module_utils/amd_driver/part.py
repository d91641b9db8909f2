# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part amd_driver: the kernel's driver for AMD GPUs, and their CDI specification."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.amd_driver import plan as vendor_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.amd_driver.variables import AmdDriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import owned_by_all, vendor_differences


def plan(context: Context, _parts: Mapping[str, Part]) -> Part:
    """Return the plan of the part, which is empty on hosts without AMD GPUs."""
    request = variable_fields.read(AmdDriverRequest, "amd_driver", context.values.get("amd_driver", {}))
    result = vendor_plan.plan(context.host, vendor_differences.AMD, request, context.accelerator_program)
    return Part(
        plan=plain(result),
        acts=result.acts,
        changes=result.changes,
        reasons=result.reasons,
        errors=result.problems,
        report=result.report,
    )


PART = Declaration(
    name="amd_driver",
    vendor="amd",
    plan=plan,
    request=AmdDriverRequest,
    reports=True,
    owns=owned_by_all.of("amd", packages=("rocm|amdgpu",)),
)
