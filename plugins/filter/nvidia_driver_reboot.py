# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the driver owes a host a reboot, for roles and playbooks."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import activation


def nvidia_driver_reboot(
    host: dict, policy: str = "never", connection: str = "", controller_machine_id: str = ""
) -> dict[str, Any]:
    """Say why a reboot is owed, whether to reboot, and what speaks against it."""
    if not isinstance(host, dict) or "reboot_reasons" not in host:
        raise AnsibleFilterError(
            "nvidia_driver_reboot wants what gpufleet.hosts.gpu_host_info returned as host, or the variable "
            "gpufleet_host that role gpufleet.hosts.observe sets."
        )
    is_controller = activation.is_controller(host, connection, controller_machine_id)
    decision = activation.reboot(host, policy, is_controller)
    return {**decision, "attempt": activation.attempt(host, decision["ids"])}


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {
            "nvidia_driver_in_the_way": activation.in_the_way,
            "nvidia_driver_reboot": nvidia_driver_reboot,
        }
