# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's resolver and plan, for roles and playbooks."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import request as driver_request


def nvidia_driver_plan(
    host: dict,
    request: dict | None = None,
    platform: dict | None = None,
    available: dict | None = None,
    streams: dict | None = None,
) -> dict[str, Any]:
    """Say which driver a host shall have, why, and what has to be done for it."""
    if not isinstance(host, dict) or "nvidia" not in host or "kernel" not in host:
        raise AnsibleFilterError(
            "nvidia_driver_plan wants what gpufleet.hosts.gpu_host_info returned as host, or the variable "
            "gpufleet_host that role gpufleet.hosts.observe sets."
        )
    try:
        return driver_plan.plan(host, request or {}, platform or None, available, streams)
    except driver_request.RequestError as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    """Register the filter."""

    def filters(self) -> dict[str, Any]:
        """Return the filter by its name."""
        return {"nvidia_driver_plan": nvidia_driver_plan}
