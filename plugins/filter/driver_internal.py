# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of roles nvidia_driver and nvidia_persistenced. They can change in any release."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variables import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import (
    activation,
    fabric,
    persistenced,
    platform_data,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import removal as driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record


def _checked(host: dict) -> dict:
    if not isinstance(host, dict) or "nvidia" not in host or "kernel" not in host:
        raise AnsibleFilterError(
            "The input is not a host as module gpufleet.hosts.gpu_host_info returns it. Use the variable gpufleet_host "
            "that role gpufleet.hosts.observe sets."
        )
    return host


def _complete(platform: dict | None, host: dict) -> dict | None:
    return platform_data.complete(platform, host["os"]["key"])


def plan(
    host: dict,
    request: dict | None = None,
    platform: dict | None = None,
    available: dict | None = None,
    streams: dict | None = None,
) -> dict[str, Any]:
    """Return the driver for a host, the reasons, and the actions."""
    return plain(driver_plan.plan(_checked(host), request or {}, _complete(platform, host), available, streams))


def reboot(host: dict, policy: str = "never", connection: str = "", controller_machine_id: str = "") -> dict[str, Any]:
    """Return why a reboot is required, whether to reboot, and the record of the attempt."""
    is_controller = activation.is_controller(_checked(host), connection, controller_machine_id)
    decision = activation.reboot(host, policy, is_controller)
    return {**decision, "attempt": activation.attempt(host, decision["ids"])}


def removal(host: dict, platform: dict | None = None) -> dict[str, Any]:
    """Return the actions that remove the driver that the role installed."""
    return driver_removal.plan(_checked(host), _complete(platform, host))


def undo(host: dict, before: dict, failed: dict) -> dict[str, list]:
    """Return what to restore after an installation that failed, by its plan and the host `before`."""
    return driver_removal.undo(before, host, failed)


def record(
    host: dict,
    before: list[str],
    after: list[str] | None = None,
    changed_files: list[dict] | None = None,
    key: str | None = None,
    *,
    todo: dict | None = None,
    runfile: str | None = None,
    holds: list[str] | None = None,
) -> str:
    """Return the record of an installation: to write before it without `after`, else afterwards."""
    _checked(host)
    path = packages_record.DRIVER
    if holds is not None:
        return packages_record.hold(host, path, holds)
    if after is None and runfile:
        return packages_record.begin_runfile(host, path, runfile)
    if after is None:
        todo = todo or {"prerequisites": [], "install": [], "stream": None}
        asked = [*todo["prerequisites"], *todo["install"]]
        stream = todo["stream"]
        return packages_record.begin(
            host, path, before, changed_files=changed_files, key=key, asked=asked, stream=stream
        )
    return packages_record.finish(
        host, path, before, after, changed_files=changed_files, key=key, runfile=runfile or None
    )


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {
            "_nvidia_driver_gpus_outside_fabric": fabric.gpus_outside_fabric,
            "_nvidia_driver_plan": plan,
            "_nvidia_driver_reboot": reboot,
            "_nvidia_driver_record": record,
            "_nvidia_driver_removal": removal,
            "_nvidia_driver_undo": undo,
            "_nvidia_driver_unload_obstacles": activation.unload_obstacles,
            "_persistence_off": persistenced.gpus_with_mode_off,
            "_persistenced_plan": persistenced.plan,
        }
