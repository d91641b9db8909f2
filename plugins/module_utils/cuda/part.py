# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part cuda_toolkit: CUDA toolkits. Only its role plans it, because hosts that run containers need none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import plan as cuda_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import toolkit_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import variables as cuda_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration, Owns
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part, of_steps

_ROLE = "cuda_toolkit"


def plan(context: Context, _parts: Mapping[str, Part]) -> Part:
    """Return the plan of the part."""
    host, request = context.host, cuda_request.read(context.values[_ROLE])
    data = context.platforms[_ROLE]
    if request.state == "absent":
        return toolkit_removal.part(host, toolkit_removal.plan(host, data["distributions"]))
    result = cuda_plan.plan(host, request, data["distributions"], data["branches"])
    return of_steps(
        result.steps,
        plan=plain(result),
        reasons=result.reasons,
        errors=result.problems,
        has_secrets=bool(request.repository_password or request.proxy_password),
    )


def _files(values: Mapping[str, Any]) -> list[str]:
    return cuda_plan.files(cuda_request.read(values))


PART = Declaration(
    name=_ROLE,
    vendor="nvidia",
    plan=plan,
    request=cuda_request.CudaRequest,
    read=cuda_request.read,
    platforms="__cuda_toolkit_platforms",
    reports=True,
    is_alone=True,
    files=_files,
    owns=Owns(
        files=(
            owned.TOOLKIT_APT_PREFERENCES,
            owned.TOOLKIT_RECORD,
            owned.TOOLKIT_VERIFIED,
            owned.TOOLKIT_PROFILE,
        ),
        packages=("cuda", r"^g\+\+$"),
        repositories=(owned.REPOSITORY_ID,),
    ),
)
