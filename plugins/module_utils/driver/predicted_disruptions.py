# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predict what the driver's part of a run interrupts: a reload of its modules, or a reboot. Pure functions.

The reboot that the host needs now is a fact. The one that it needs after an installation is predicted from what is
bound, loaded and in use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import (
    DRIVER_RELOAD,
    FORBIDDEN,
    POSSIBLE,
    REBOOT,
    Disruption,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_loading
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_POLICY = "nvidia_driver_reboot_policy"
_KERNEL = ("linux-image", "kernel-default-", "kernel-core", "kernel-uek", "kernel-azure")


def of_present(
    host: Host, request: DriverRequest, result: DriverPlan, decision: Mapping[str, Any], *, is_controller: bool
) -> list[Disruption]:
    """Return what the run interrupts to install or activate the driver. `decision`: that of reboot.decision."""
    if result.errors:
        return []
    found = []
    if result.reloads:
        daemons = kernel_module_loading.daemons(host)
        stops = f" (stopped meanwhile: {', '.join(daemons)})" if daemons else ""
        found.append(
            Disruption(DRIVER_RELOAD, f"another driver than the loaded {nvidia_driver(host)['loaded']}{stops}")
        )
    changes_driver = bool(result.todo.transaction.install or result.todo.runfile or result.todo.build)
    predicted = _predicted_reboot(host, request, result) if changes_driver else None
    if predicted:
        found.append(_allowed(predicted, request, is_controller))
    elif decision["ids"] and not result.reloads:
        users = tuple(kernel_module_loading.gpu_users(host))
        known = Disruption(REBOOT, "; ".join(decision["reasons"]), count=len(users), names=users)
        by = _POLICY if request.reboot_policy != "when_required" else str(decision["why_not"])
        found.append(known if decision["go"] else dataclasses.replace(known, state=FORBIDDEN, forbidden_by=by))
    return found


def _allowed(predicted: Disruption, request: DriverRequest, is_controller: bool) -> Disruption:
    """Return a predicted reboot as the policy and the host allow it. One that may be needed stays in this state."""
    by = "the role, because this host is the Ansible controller" if is_controller else ""
    if request.reboot_policy != "when_required":
        by = _POLICY
    if not by:
        return predicted
    if predicted.state == POSSIBLE:
        return dataclasses.replace(predicted, reason=f"{predicted.reason}; a reboot would be forbidden by {by}")
    return dataclasses.replace(predicted, state=FORBIDDEN, forbidden_by=by)


def _predicted_reboot(host: Host, request: DriverRequest, result: DriverPlan) -> Disruption | None:
    """Return the reboot after the installation of a driver, or None if the host needs none."""
    for name in ("nouveau", "nova_core"):
        bound = host["foreign_drivers"][name]["bound"]
        if bound:
            return Disruption(REBOOT, f"{name} is bound to {', '.join(bound)}; only a reboot can unbind it")
    kernels = [name for name in result.todo.transaction.install if name.startswith(_KERNEL)]
    if kernels:
        return Disruption(REBOOT, f"the run installs a kernel ({', '.join(kernels)})", POSSIBLE)
    if not nvidia_driver(host)["loaded"]:
        running, upcoming = host["kernel"]["running"], host["kernel"]["next_boot"]
        if running != upcoming:
            text = f"kernel {running} is running, but the modules may be only for {upcoming}, which boots next"
            return Disruption(REBOOT, text, POSSIBLE)
        return None
    if result.reloads or not request.activate:
        return None
    users = kernel_module_loading.gpu_users(host)
    modules = kernel_module_loading.dependent_modules(host)
    if not users and not modules:
        return None
    in_use = "; ".join(f"the loaded modules are in use by {user}" for user in [*users, *modules])
    return Disruption(REBOOT, in_use, count=len(users), names=tuple(users))
