# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role cuda_toolkit, with their types and accepted values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import repository_variables

# A list from the command line may contain an empty element, as in 12.6,
_VERSION = r"(\d+\.\d+)?"
_VERSION_SAMPLE = "'12.6' (only the first two numbers; NVIDIA's packages install the newest update)"


@dataclasses.dataclass(frozen=True)
class CudaRequest(repository_variables.RepositoryVariables):
    """The variables of the role, without the prefix `cuda_toolkit_`. Empty text means that a variable is not set."""

    state: str = variable("present", choices=("present", "absent"))
    source: str = variable("distribution", choices=("distribution", "nvidia", "preinstalled"))
    versions: list[str] = variable([], form=_VERSION, sample=_VERSION_SAMPLE)
    default_version: str = variable("", form=_VERSION, sample=_VERSION_SAMPLE)
    path: str = variable(
        "/usr/local/cuda",
        form=r"/[\w./+-]*",
        sample="/usr/local/cuda (an absolute path of letters, digits and the characters ./+-_)",
    )
    environment: bool = variable(True)
    verify: str = variable("auto", choices=("auto", "run", "compile", "none"))


def read(values: Mapping[str, Any]) -> CudaRequest:
    """Return the request with the user's values, converted and checked."""
    request = repository_variables.read(CudaRequest, "cuda_toolkit", values)
    versions = list(dict.fromkeys(version for version in request.versions if version))
    return dataclasses.replace(request, versions=versions, path=request.path.rstrip("/") or "/")
