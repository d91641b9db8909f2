# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan what role gaudi_driver does: adopt or install a driver, load it, keep the CDI specification, the runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import habana_runtime, package_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver.package_plan import ROLE, GaudiCase
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role, role_version_choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    cdi_units,
    device_holders,
    shared_plan,
    vendor_differences,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver.variables import GaudiDriverRequest

# Intel Gaudi documentation, Intel_Gaudi_Kubernetes_Device_Plugin: the order in which the modules are loaded.
MODULES = ("habanalabs", "habanalabs_cn", "habanalabs_ib", "habanalabs_en")
_MODULES_FILE = "# Written by role gpufleet.hosts.gaudi_driver. Changes in this file are lost.\n" + "".join(
    f"{name}\n" for name in MODULES
)
# The PCI IDs that the driver in the kernel knows: drivers/accel/habanalabs of Linux. Not HL-2000M, HL-288 and Gaudi 3.
_IN_KERNEL = ("1da3:0001", "1da3:1000", "1da3:1010", "1da3:1020")


@dataclasses.dataclass
class GaudiPlan(shared_plan.VendorDriverPlan):
    """What the role does."""

    vendor: str = vendor_differences.GAUDI.name
    runtime: habana_runtime.GaudiRuntime = dataclasses.field(default_factory=habana_runtime.GaudiRuntime)


def plan(
    host: Host,
    request: GaudiDriverRequest,
    platforms: Mapping[str, Any],
    versions: Mapping[str, list[str]] | None,
    digest: Callable[[dict[str, Any]], str],
    *,
    engines: Mapping[str, str | None],
    restart_policy: str = "when_safe",
) -> GaudiPlan:
    """Return what the role does on this host. `versions`: the available versions, None before the query.

    `digest`: see `cdi_units.plan`. `engines`: the versions of the engines that are installed or will be.
    `restart_policy`: that of role container_engine.
    """
    result = GaudiPlan()
    if request.state == "absent":
        return _removal(host, result, restart_policy)
    devices, state = vendor_differences.observed(host, vendor_differences.GAUDI)
    if not devices:
        result.reasons.append("this host has no Gaudi accelerator")
        return shared_plan.finish(host, result)
    if request.source == "none":
        result.reasons.append(f"{ROLE}_source is none")
        return shared_plan.finish(host, result)
    result.wanted = True
    result.report = shared_plan.report(state, devices)
    case = GaudiCase(host, request, platforms.get(host["os"]["key"] or ""), versions, devices, state)
    manages = _manages(case, result)
    if request.container_runtime:
        result.problems += _runtime_problems(case, manages=manages)
    if manages and not result.problems:
        package_plan.plan_packages(case, result)
        if not result.problems and observed_files.content(host, owned.GAUDI_MODULES_LOAD) != _MODULES_FILE:
            result.modules_file = _MODULES_FILE
            result.changes.append(f"write {owned.GAUDI_MODULES_LOAD}")
    if not result.problems:
        _load(case, result)
        kind = request.cdi_kind
        shared_plan.keep_specification(host, vendor_differences.GAUDI, devices, state, result, kind=kind, digest=digest)
        _runtime(case, result, engines, restart_policy)
    return shared_plan.finish(host, result)


# --- the driver that is already installed -----------------------------------------------------------------------------


def _manages(case: GaudiCase, result: GaudiPlan) -> bool:
    """Return whether the role manages the vendor's packages. Otherwise an installed driver is adopted."""
    host, source = case.host, case.request.source
    is_own = bool(record_of_role.read(host, owned.GAUDI_RECORD)["requested"])
    if source == "vendor" or (source == "auto" and (is_own or _is_other_version(case))):
        return True
    has_module = host["kernel"]["running"] in (case.driver.get("kernels") or ())
    is_known = any(one["pci_id"] in _IN_KERNEL for one in case.devices)
    can_load = not case.driver.get("loaded") and has_module and is_known
    if case.state["state"] == schema.READY or can_load or case.installed or (source == "preinstalled" and has_module):
        result.reasons.append(f"{_origin(case)} is adopted")
        if case.state["state"] == schema.READY:
            result.reasons.append(case.state["reason"].rstrip("."))
        return False
    if source == "preinstalled":
        result.problems.append(shared_plan.without_driver(ROLE, case.state))
        return False
    return True


def _is_other_version(case: GaudiCase) -> bool:
    return case.installed is not None and not role_version_choice.fits(case.installed, case.request.version)


def _origin(case: GaudiCase) -> str:
    if case.installed:
        return f"the installed driver {case.installed}"
    if case.driver.get("version"):
        return f"the loaded driver {case.driver['version']}"
    return "the driver of the kernel"


# --- the kernel modules -----------------------------------------------------------------------------------------------


def _load(case: GaudiCase, result: GaudiPlan) -> None:
    driver, state = case.driver, case.state
    installs = bool(result.transaction and result.transaction.install)
    if driver.get("loaded"):
        # The version of the module is that of the packages with a commit instead of the build.
        loaded = driver.get("version")
        same = bool(loaded and result.version) and package_plan.number(loaded) == package_plan.number(result.version)
        if result.version and not same:
            result.reasons.append(
                f"driver {loaded or 'of the kernel'} is loaded; stop the containers and reboot the host to load "
                f"{result.version}"
            )
        elif state["state"] != schema.READY and not installs:
            result.reasons.append(state["reason"].rstrip("."))
        return
    if not installs and state["state"] != schema.DRIVER_NOT_LOADED:
        return
    modules = MODULES if result.version or installs else MODULES[:1]
    shared_plan.load(case.host, result, ROLE, modules, activate=case.request.activate)


# --- the container runtime --------------------------------------------------------------------------------------------


def _runtime_problems(case: GaudiCase, *, manages: bool) -> list[str]:
    """Return why this host can never have the runtime, before anything is queried or changed."""
    number = habana_runtime.too_many(len(case.devices))
    is_first = any(one["generation"] == package_plan.FIRST_GENERATION for one in case.devices)
    never = habana_runtime.request_problem(case.request.version, has_first_generation=is_first) if manages else None
    return [text for text in (number, never) if text]


def _runtime(case: GaudiCase, result: GaudiPlan, engines: Mapping[str, str | None], restart_policy: str) -> None:
    host = case.host
    if not case.request.container_runtime:
        result.runtime = habana_runtime.removal(host, restart_policy=restart_policy, keeps_package=case.has_own_runtime)
        result.reasons += habana_runtime.foreign_notes(host)
    else:
        installed = habana_runtime.version(host)
        installs = bool(result.transaction and result.transaction.install)
        if not installs and installed is None:
            result.problems.append(
                f"{ROLE}_container_runtime is true, but the adopted driver came without {habana_runtime.PACKAGE}. "
                f"Install it with the tool that installed the driver, or set {ROLE}_source to vendor."
            )
            return
        refused = habana_runtime.refusal(installed) if installed and not installs else None
        if refused:
            result.problems.append(f"{habana_runtime.PACKAGE} {installed} {refused}.")
            return
        result.runtime = habana_runtime.plan(host, engines, installs=installs, restart_policy=restart_policy)
    result.problems += result.runtime.problems
    result.reasons += result.runtime.reasons
    result.changes += result.runtime.changes


# --- removal ----------------------------------------------------------------------------------------------------------


def _removal(host: Host, result: GaudiPlan, restart_policy: str) -> GaudiPlan:
    result.record = observed_files.exists(host, owned.GAUDI_RECORD)
    result.packages = sorted(record_of_role.to_remove(host, owned.GAUDI_RECORD))
    held = (
        device_holders.refusal(host, vendor_differences.GAUDI.name, "accelerators", "removed")
        if result.packages
        else None
    )
    result.problems += [held] if held else []
    result.cdi = cdi_units.removal(host, vendor_differences.GAUDI)
    result.runtime = habana_runtime.removal(host, restart_policy=restart_policy)
    result.problems += result.runtime.problems
    result.remove_files = [path for path in (owned.GAUDI_MODULES_LOAD,) if observed_files.exists(host, path)]
    result.changes = [
        *result.runtime.changes,
        *result.cdi.changes,
        *shared_plan.removal_changes(result),
    ]
    group = host["accelerators"][vendor_differences.GAUDI.name]
    is_loaded = group is not None and group["module"]["loaded"]
    if not result.changes:
        result.reasons.append("this role has not installed anything on this host")
    elif is_loaded:
        result.reasons.append("the loaded driver stays loaded until the next boot")
    return shared_plan.finish(host, result)
