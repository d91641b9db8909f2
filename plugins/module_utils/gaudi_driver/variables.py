# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role gaudi_driver, with their types and accepted values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import accelerator_writing
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import repository_variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver.permitted_cdi_kind import KIND

ROLE = "gaudi_driver"
_PACKAGE = r"[A-Za-z0-9][A-Za-z0-9+._-]*"


@dataclasses.dataclass(frozen=True)
class GaudiDriverRequest(repository_variables.RepositoryVariables):
    """The variables of the role, without the prefix `gaudi_driver_`. Empty text means that a variable is not set.

    The variables of the base class are about the vendor's repository.
    """

    mirror: str = variable("", form=repository_variables.URL, sample="https://mirror.example/artifactory")
    key_url: str = variable("", form=repository_variables.URL, sample="https://mirror.example/gaudi.key")
    key_fingerprint: str = variable(
        "",
        form=repository_variables.KEY_FINGERPRINT,
        sample="0123... (the full fingerprint, 40 or 64 hexadecimal digits) or sha256:0123... (the digest of the key "
        "file, 64 hexadecimal digits)",
    )
    state: str = variable("present", choices=("present", "absent"))
    source: str = variable("auto", choices=("auto", "vendor", "preinstalled", "none"))
    version: str = variable("", form=r"\d+\.\d+(\.\d+)?(-\d+)?", sample="1.23.0 or 1.23.0-695")
    hold: bool = variable(True)
    activate: bool = variable(True)
    suite: str = variable("", form=r"[a-z][a-z0-9.-]*", sample="noble")
    driver_package: str = variable("", form=_PACKAGE, sample="habanalabs-dkms")
    extra_packages: list[str] = variable([], form=_PACKAGE, sample="habanalabs-rdma-core")
    container_runtime: bool = variable(False)
    cdi_kind: str = variable(accelerator_writing.KINDS["gaudi"], form=KIND, sample="gpufleet-gaudi/gpu")


def read(values: Mapping[str, Any]) -> GaudiDriverRequest:
    """Return the request with the user's values, converted and checked."""
    return repository_variables.read(GaudiDriverRequest, ROLE, values)
