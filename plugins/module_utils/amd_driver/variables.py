# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role amd_driver, with their types and accepted values."""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import accelerator_writing
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver.permitted_cdi_kind import KIND


@dataclasses.dataclass(frozen=True)
class AmdDriverRequest:
    """The variables of the role, without the prefix `amd_driver_`."""

    state: str = variable("present", choices=("present", "absent"))
    source: str = variable("kernel", choices=("kernel", "none"))
    activate: bool = variable(True)
    users: list[str] = variable([], form=r"[A-Za-z_][A-Za-z0-9_.@-]*\$?", sample="alice")
    cdi_kind: str = variable(accelerator_writing.KINDS["amd"], form=KIND, sample="gpufleet-amd/gpu")
