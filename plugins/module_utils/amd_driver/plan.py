# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan what a role does for a vendor whose driver is already in the kernel. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.amd_driver import users_in_device_groups
from ansible_collections.gpufleet.hosts.plugins.module_utils.amd_driver.missing_firmware import missing_firmware
from ansible_collections.gpufleet.hosts.plugins.module_utils.amd_driver.variables import AmdDriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    cdi_engine_check,
    cdi_units,
    shared_plan,
    vendor_differences,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver.vendor_differences import VendorDriver

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# Sources: packages.debian.org of bookworm and trixie. Other distributions split linux-firmware differently per release.
_FIRMWARE_PACKAGES = {"amdgpu": {"debian": "firmware-amd-graphics (component non-free-firmware)"}}


@dataclasses.dataclass
class VendorPlan:
    """What the role does. `load`: the kernel module to load, or None."""

    wanted: bool = False
    load: str | None = None
    users: users_in_device_groups.VendorUsers = dataclasses.field(default_factory=users_in_device_groups.VendorUsers)
    cdi: cdi_units.VendorRefresh = dataclasses.field(default_factory=cdi_units.VendorRefresh)
    verify: bool = False
    report: dict[str, Any] | None = None
    reason: str = ""
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    changes: list[str] = dataclasses.field(default_factory=list)
    acts: bool = False


def plan(
    host: Host, vendor: VendorDriver, request: AmdDriverRequest, digest: Callable[[dict[str, Any]], str]
) -> VendorPlan:
    """Return what the role does on this host. `digest`: see `cdi_units.plan`."""
    result = VendorPlan()
    if request.state == "absent":
        return _finished(host, _removal(host, vendor, result))
    if host["accelerators"][vendor.name] is None:
        result.reason = f"this host has no {vendor.title}"
        return _finished(host, result)
    if request.source == "none":
        result.reason = f"{vendor.role}_source is none"
        return _finished(host, result)
    devices, state = vendor_differences.observed(host, vendor)
    if state["state"] == schema.NO_HARDWARE:
        result.reason = f"this host has no {vendor.title} for computing"
        return _finished(host, result)
    result.wanted = True
    result.report = shared_plan.report(state, devices)
    _driver(host, vendor, request, result)
    if not result.problems:
        result.users = users_in_device_groups.plan(host, vendor, request.users)
        kind = request.cdi_kind
        shared_plan.keep_specification(host, vendor, devices, state, result, kind=kind, digest=digest)
        result.reasons += cdi_engine_check.obstacles(host, result.cdi.specification) if result.verify else []
    return _finished(host, result)


def _driver(host: Host, vendor: VendorDriver, request: AmdDriverRequest, result: VendorPlan) -> None:
    devices, state = vendor_differences.observed(host, vendor)
    group = host["accelerators"][vendor.name]
    record = group["record"]
    firmware = missing_firmware(record["log"])
    loaded = group["module"]["loaded"]
    if firmware:
        package = _FIRMWARE_PACKAGES.get(vendor.module, {}).get(host["os"]["family"] or "")
        text = (
            f"the kernel did not find the firmware {', '.join(firmware)} for module {vendor.module}; install the "
            f"package that contains it{f': {package}' if package else ''}, and reload the module or reboot"
        )
        _add(result, text, is_problem=state["state"] != schema.READY)
    if state["state"] == schema.READY:
        usable = sum(one["health"]["state"] != schema.LOST for one in devices)
        version = f" {state['driver_version']}" if state["driver_version"] else ""
        result.reason = f"driver {vendor.module}{version} is adopted and drives {schema.plural(usable, 'device')}"
    elif loaded:
        _add(result, state["reason"], is_problem=not firmware)
    elif state["state"] != schema.DRIVER_NOT_LOADED:
        _add(
            result,
            f"{state['reason']} To leave these devices alone, set {vendor.role}_source to none.",
            is_problem=True,
        )
    elif record["blacklisted_by"]:
        # Some images load the driver with a service of their own, minutes after the boot.
        result.reason = (
            f"module {vendor.module} is not loaded, and {', '.join(record['blacklisted_by'])} blacklists it, so the "
            f"role does not load it; run 'modprobe {vendor.module}' when nothing else does"
        )
    elif not request.activate:
        result.reason = f"module {vendor.module} is not loaded, and {vendor.role}_activate is false"
    else:
        result.load = vendor.module
        result.reason = f"module {vendor.module} is installed, but not loaded"


def _add(result: VendorPlan, text: str, *, is_problem: bool) -> None:
    if is_problem:
        result.problems.append(text[:1].upper() + text[1:] + ("" if text.endswith(".") else "."))
    else:
        result.reasons.append(text)


def _removal(host: Host, vendor: VendorDriver, result: VendorPlan) -> VendorPlan:
    result.users = users_in_device_groups.removal(host, vendor)
    result.cdi = cdi_units.removal(host, vendor)
    result.reason = f"{vendor.role}_state is absent; the driver of the kernel stays loaded"
    return result


def _finished(host: Host, result: VendorPlan) -> VendorPlan:
    load = [f"load kernel module {result.load}"] if result.load else []
    result.changes = [] if result.problems else [*load, *result.users.changes, *result.cdi.changes]
    result.acts = bool(result.changes)
    if result.acts and host["uid"] != 0:
        result.problems.append(needs_root(host["uid"]))
    result.reasons = [*([result.reason] if result.reason else []), *result.reasons]
    return result
