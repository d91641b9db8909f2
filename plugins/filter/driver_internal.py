# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of roles nvidia_driver and nvidia_persistenced."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import (
    fabric_manager,
    runfile,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_loading
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence import plan as persistence_plan


def _checked(host: dict) -> dict:
    if not isinstance(host, dict) or "accelerators" not in host or "kernel" not in host:
        raise AnsibleFilterError(
            "The input is not an observation that module gpufleet.hosts.gpu_host_info returned. Use the variable "
            "gpufleet_host that role gpufleet.hosts.observe sets."
        )
    return host


def installer_record(host: dict, version: str = "") -> str:
    """Return the record after a run of NVIDIA's installer. `version` is empty if the installer failed."""
    return runfile.record_after(_checked(host), version)


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {
            "_nvidia_driver_gpus_outside_fabric": fabric_manager.gpus_outside_fabric,
            "_nvidia_driver_installer_record": installer_record,
            "_nvidia_driver_unload_obstacles": kernel_module_loading.unload_obstacles,
            "_persistence_off": persistence_plan.gpus_with_mode_off,
        }
