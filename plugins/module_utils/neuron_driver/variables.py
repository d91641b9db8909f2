# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role neuron_driver, with their types and accepted values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError, variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import accelerator_writing
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import repository_variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver.permitted_cdi_kind import KIND

ROLE = "neuron_driver"
_VERSION = r"\d+(\.\d+){1,3}"


@dataclasses.dataclass(frozen=True)
class NeuronDriverRequest(repository_variables.RepositoryVariables):
    """The variables of the role, without the prefix `neuron_driver_`. Empty text means that a variable is not set.

    The variables of the base class are about the vendor's repository.
    """

    state: str = variable("present", choices=("present", "absent"))
    source: str = variable("auto", choices=("auto", "vendor", "preinstalled", "none"))
    release: str = variable("", form=r"\d+\.\d+", sample="2.32")
    version: str = variable("", form=_VERSION, sample="2.30.2.0 or 2.24")
    minimum_version: str = variable("2.28", form=_VERSION, sample="2.28")
    tools: bool = variable(True)
    require_tested_kernel: bool = variable(False)
    hold: bool = variable(True)
    activate: bool = variable(True)
    suite: str = variable("", form=r"[a-z][a-z0-9.-]*", sample="noble")
    oci_hook: bool = variable(False)
    oci_hook_default_runtime: bool = variable(False)
    cdi_kind: str = variable(accelerator_writing.KINDS["neuron"], form=KIND, sample="gpufleet-neuron/gpu")


def read(values: Mapping[str, Any]) -> NeuronDriverRequest:
    """Return the request with the user's values, converted and checked."""
    request = repository_variables.read(NeuronDriverRequest, ROLE, values)
    if request.release and request.version:
        raise VariableError(
            f"{ROLE}_release is {request.release} and {ROLE}_version is {request.version}. A release of the SDK "
            "already has a version of the driver. Remove one of them."
        )
    if request.oci_hook_default_runtime and not request.oci_hook:
        raise VariableError(f"{ROLE}_oci_hook_default_runtime requires {ROLE}_oci_hook. Set it to true.")
    return request
