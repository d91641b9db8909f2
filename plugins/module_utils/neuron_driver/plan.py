# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan what role neuron_driver does: adopt a driver or install AWS's, load it, keep the CDI specification."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import (
    oci_hook,
    package_plan,
    supported_versions,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.package_plan import NeuronCase
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.supported_versions import DKMS, ROLE
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role, role_version_choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    cdi_units,
    device_holders,
    shared_plan,
    vendor_differences,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.variables import NeuronDriverRequest

# The package's script before the installation downloads the list of PCI IDs, which hangs without the Internet.
IDLE_COMMANDS = ("update-pciids",)
# udev loads the driver for one kind of chips only. The package's scripts write the same file.
_MODULES_FILE = "neuron\n"


@dataclasses.dataclass
class NeuronPlan(shared_plan.VendorDriverPlan):
    """What the role does. `unload`: kernel modules to unload before the removal."""

    vendor: str = vendor_differences.NEURON.name
    modules_path: str = owned.NEURON_MODULES_LOAD
    unload: list[str] = dataclasses.field(default_factory=list)
    idle_commands: list[str] = dataclasses.field(default_factory=lambda: list(IDLE_COMMANDS))
    hook: oci_hook.NeuronHook = dataclasses.field(default_factory=oci_hook.NeuronHook)


def plan(
    host: Host,
    request: NeuronDriverRequest,
    data: Mapping[str, Any],
    versions: Mapping[str, list[str]] | None,
    digest: Callable[[dict[str, Any]], str],
    *,
    has_docker: bool = True,
) -> NeuronPlan:
    """Return what the role does on this host. `versions`: the available versions, None before the query.

    `data`: the platforms and the releases of the role. `digest`: see `cdi_units.plan`. `has_docker`: whether Docker is
    installed, or will be.
    """
    result = NeuronPlan()
    if request.state == "absent":
        return _removal(host, result)
    devices, state = vendor_differences.observed(host, vendor_differences.NEURON)
    if not devices:
        result.reasons.append("this host has no AWS Neuron device")
        return shared_plan.finish(host, result)
    if request.source == "none":
        result.reasons.append(f"{ROLE}_source is none")
        return shared_plan.finish(host, result)
    result.wanted = True
    result.report = shared_plan.report(state, devices)
    platform = data["platforms"].get(host["os"]["key"] or "")
    case = NeuronCase(host, request, platform, data["releases"], versions, devices, state)
    if _manages(case, result):
        package_plan.plan_packages(case, result)
    package_plan.plan_hook(case, result)
    result.problems += oci_hook.problems_without_docker(request, has_docker=has_docker)
    if not result.problems:
        package_plan.prepare_holds(case, result)
        result.changes = [*(result.transaction.changes() if result.transaction else []), *result.changes]
        _modules_file(case, result)
        _load(case, result)
        kind = request.cdi_kind
        shared_plan.keep_specification(
            host, vendor_differences.NEURON, devices, state, result, kind=kind, digest=digest
        )
    return shared_plan.finish(host, result)


# --- the driver that is already installed -----------------------------------------------------------------------------


def _manages(case: NeuronCase, result: NeuronPlan) -> bool:
    """Return whether the role manages AWS's packages. Otherwise an installed driver is adopted."""
    host, request = case.host, case.request
    is_own = bool(record_of_role.read(host, owned.NEURON_RECORD)["requested"])
    version = case.installed or case.driver.get("version")
    refused = case.refuse(version) if version else None
    if request.source == "vendor" or (request.source == "auto" and is_own):
        return True
    if request.source == "auto" and case.installed and (refused or _is_other_version(case)):
        return True
    has_module = host["kernel"]["running"] in (case.driver.get("kernels") or ())
    if case.state["state"] == schema.READY or case.installed or case.driver.get("loaded") or has_module:
        result.version = version
        result.reasons.append(f"the installed driver {version or 'of another source'} is adopted")
        if refused:
            result.reasons.append(f"driver {version} {refused}; replace it with the tool that installed it")
        if case.state["state"] == schema.READY:
            result.reasons.append(case.state["reason"].rstrip("."))
        return False
    if request.source == "preinstalled":
        result.problems.append(shared_plan.without_driver(ROLE, case.state))
        return False
    return True


def _is_other_version(case: NeuronCase) -> bool:
    """Return whether the user requests another version than the installed one."""
    if not (case.request.version or case.request.release):
        return False
    try:
        pin = supported_versions.pins(case.request, case.releases, case.generations)[DKMS]
    except ValueError:
        return True
    return not role_version_choice.fits(case.installed or "", pin)


# --- the kernel module ------------------------------------------------------------------------------------------------


def _modules_file(case: NeuronCase, result: NeuronPlan) -> None:
    text = observed_files.content(case.host, owned.NEURON_MODULES_LOAD)
    lines = [line.strip() for line in (text or "").splitlines()]
    if "neuron" in lines or not case.request.activate:
        return
    if _is_disabled(case.host, owned.NEURON_MODULES_LOAD):
        result.reasons.append(
            f"{owned.NEURON_MODULES_LOAD} is empty or a link to /dev/null, so systemd does not load the driver at "
            "boot; remove the file if nothing else loads it"
        )
        return
    result.modules_file = (text.rstrip("\n") + "\n" if text else "") + _MODULES_FILE
    result.changes.append(f"write {owned.NEURON_MODULES_LOAD}")


def _is_disabled(host: Host, path: str) -> bool:
    """Return whether somebody disabled a file of systemd, as AWS's images for EKS do (modules-load.d(5))."""
    return observed_files.exists(host, path) and not (observed_files.content(host, path) or "").strip()


def _load(case: NeuronCase, result: NeuronPlan) -> None:
    driver, state = case.driver, case.state
    installs = bool(result.transaction and any(item.startswith(DKMS) for item in result.transaction.install))
    if driver.get("loaded") and not installs:
        loaded = driver.get("version")
        if loaded and result.version and supported_versions.number(loaded) != supported_versions.number(result.version):
            result.reasons.append(
                f"driver {loaded} is loaded; stop the containers, and reload the module or reboot to load "
                f"{result.version}"
            )
        elif state["state"] != schema.READY:
            result.reasons.append(state["reason"].rstrip("."))
        return
    if not installs and state["state"] != schema.DRIVER_NOT_LOADED:
        return
    shared_plan.load(case.host, result, ROLE, ["neuron"], activate=case.request.activate)


# --- removal ----------------------------------------------------------------------------------------------------------


def _removal(host: Host, result: NeuronPlan) -> NeuronPlan:
    result.record = observed_files.exists(host, owned.NEURON_RECORD)
    result.packages = sorted(record_of_role.to_remove(host, owned.NEURON_RECORD))
    result.cdi = cdi_units.removal(host, vendor_differences.NEURON)
    result.hook = oci_hook.removal(host)
    result.problems += result.hook.problems
    is_own = DKMS in result.packages or (result.record and not installed_packages.is_installed(host, DKMS))
    # The packages do not own what their scripts write.
    result.remove_files = [path for path in owned.NEURON_LEFTOVERS if is_own and observed_files.exists(host, path)]
    held = (
        device_holders.refusal(host, vendor_differences.NEURON.name, "chips", "removed")
        if DKMS in result.packages
        else None
    )
    result.problems += [held] if held else []
    group = host["accelerators"][vendor_differences.NEURON.name] or {}
    loaded = (group.get("module") or {}).get("loaded")
    result.unload = ["neuron"] if loaded and DKMS in result.packages else []
    result.changes = [
        *result.cdi.changes,
        *result.hook.changes,
        *(["unload kernel module neuron"] if result.unload else []),
        *shared_plan.removal_changes(result),
    ]
    if not result.changes:
        result.reasons.append("this role has not installed anything on this host")
    return shared_plan.finish(host, result)
