# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan what role neuron_driver does: adopt a driver or install AWS's, load it, keep the CDI specification."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import oci_hook as neuron_hook
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import packages as neuron_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.packages import DKMS, HOOK, ROLE, TOOLS
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role as packages_record
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import role_packages, role_repository
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
    hook: neuron_hook.NeuronHook = dataclasses.field(default_factory=neuron_hook.NeuronHook)


@dataclasses.dataclass(frozen=True)
class _Case:
    """What the plan of one host depends on. `platform`: None if AWS has no packages for it."""

    host: Host
    request: NeuronDriverRequest
    platform: Mapping[str, Any] | None
    releases: Mapping[str, Any]
    versions: Mapping[str, list[str]] | None
    devices: Sequence[Mapping[str, Any]]
    state: Mapping[str, Any]

    @property
    def driver(self) -> Mapping[str, Any]:
        group = self.host["accelerators"][vendor_differences.NEURON.name] or {}
        return group.get("module") or {}

    @property
    def generations(self) -> list[str]:
        return sorted({one["generation"] for one in self.devices if one["generation"]})

    @property
    def installed(self) -> str | None:
        """The version of the installed package with the driver."""
        return role_packages.found_on(self.host, [DKMS]).get(DKMS)

    def lacks_hold(self, name: str) -> bool:
        """Return whether a package that the role has installed is no longer held."""
        is_own = name in packages_record.to_remove(self.host, owned.NEURON_RECORD)
        return self.request.hold and is_own and name not in self.host["held_packages"]

    def refuse(self, version: str) -> str | None:
        return neuron_packages.obstacle(version, self.request, self.generations)


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
    case = _Case(host, request, platform, data["releases"], versions, devices, state)
    if _manages(case, result):
        _packages(case, result)
    _hook(case, result)
    if request.oci_hook and not has_docker:
        result.problems.append(
            f"{ROLE}_oci_hook is true, but the hook is a runtime of Docker, which is not installed. Install Docker "
            "with role container_engine, or set the variable to false: containers need only the device nodes."
        )
    if not result.problems:
        _prepare_holds(case, result)
        result.changes = [*(result.transaction.changes() if result.transaction else []), *result.changes]
        _modules_file(case, result)
        _load(case, result)
        kind = request.cdi_kind
        shared_plan.keep_specification(
            host, vendor_differences.NEURON, devices, state, result, kind=kind, digest=digest
        )
    return shared_plan.finish(host, result)


# --- the driver that is already installed -----------------------------------------------------------------------------


def _manages(case: _Case, result: NeuronPlan) -> bool:
    """Return whether the role manages AWS's packages. Otherwise an installed driver is adopted."""
    host, request = case.host, case.request
    is_own = bool(packages_record.read(host, owned.NEURON_RECORD)["requested"])
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


def _is_other_version(case: _Case) -> bool:
    """Return whether the user requests another version than the installed one."""
    if not (case.request.version or case.request.release):
        return False
    try:
        pin = neuron_packages.pins(case.request, case.releases, case.generations)[DKMS]
    except ValueError:
        return True
    return not role_packages.fits(case.installed or "", pin)


# --- AWS's packages ---------------------------------------------------------------------------------------------------


def _packages(case: _Case, result: NeuronPlan) -> None:
    host, request, data = case.host, case.request, case.platform or {}
    try:
        pins = neuron_packages.pins(request, case.releases, case.generations)
    except ValueError as error:
        result.problems.append(str(error))
        return
    refused = case.refuse(pins[DKMS])
    if refused:
        result.problems.append(
            f"Driver {pins[DKMS]} is requested, but it {refused}. Change {ROLE}_release or {ROLE}_version."
        )
        return
    if not _accepts_kernel(case, result):
        return
    problem = neuron_packages.problem(host, request, case.platform)
    planned = role_packages.RolePackagesCase(
        host=host,
        role=ROLE,
        unit=[DKMS],
        others=[*([TOOLS] if request.tools else []), *neuron_packages.headers(host)],
        requested=pins[DKMS],
        hold=request.hold,
        definition=None if problem else neuron_packages.define(host, request, data),
        place=f"the repository {neuron_packages.address(host, request)}",
        versions=case.versions,
        hold_needs=data.get("hold_needs"),
        refuse=case.refuse,
    )
    # Without the repository, complete packages are still held.
    if problem and role_packages.wrong(planned):
        result.problems.append(problem)
        return
    found = role_packages.plan(planned)
    result.version, result.query, result.transaction = found.version, found.query, found.transaction
    result.problems += found.problems
    result.reasons += found.reasons
    _pin_tools(case, result, pins.get(TOOLS))
    _refuse_replacement(case, result)
    shared_plan.note_signatures(host, result)


def _hook(case: _Case, result: NeuronPlan) -> None:
    """Add the vendor's hook. Its package needs the repository of the driver's packages."""
    result.hook = neuron_hook.plan(case.host, case.request)
    result.problems += result.hook.problems
    result.changes += result.hook.changes
    if not result.problems and case.request.oci_hook and case.lacks_hold(HOOK):
        result.transaction = result.transaction or role_packages.RoleTransaction()
        result.transaction.hold = [*result.transaction.hold, HOOK]
    if not result.hook.install or result.problems:
        return
    problem = neuron_packages.problem(case.host, case.request, case.platform)
    if problem:
        result.problems.append(problem)
        return
    work = result.transaction or role_packages.RoleTransaction()
    definition = neuron_packages.define(case.host, case.request, case.platform or {})
    if definition and not role_repository.is_present(case.host, definition["name"]):
        work.repositories = [definition]
    release = case.releases["versions"].get(case.request.release or case.releases["default"]) or {}
    work.install = [*work.install, f"{HOOK}={release[HOOK]}" if HOOK in release else HOOK]
    work.hold = [*work.hold, HOOK] if case.request.hold else work.hold
    result.transaction = work


def _prepare_holds(case: _Case, result: NeuronPlan) -> None:
    """Add what dnf needs for the holds of the hook and the tools."""
    work, needs = result.transaction, (case.platform or {}).get("hold_needs")
    if not work or not work.hold or not needs or needs in work.install:
        return
    work.install += [] if installed_packages.is_installed(case.host, needs) else [needs]


def _accepts_kernel(case: _Case, result: NeuronPlan) -> bool:
    release = case.request.release or ("" if case.request.version else case.releases["default"])
    if neuron_packages.INFERENTIA in case.generations:
        return True  # AWS lists no kernels for the last driver of Inf1.
    note = neuron_packages.kernel_note(case.host, case.platform or {}, release)
    if note and case.request.require_tested_kernel:
        result.problems.append(
            f"{note[:1].upper()}{note[1:]}. Boot one of them, or set {ROLE}_require_tested_kernel to false."
        )
        return False
    result.reasons += [note] if note else []
    return True


def _pin_tools(case: _Case, result: NeuronPlan, pin: str | None) -> None:
    """Install the tools in the version of the release, and hold them."""
    if not case.request.tools or result.problems:
        return
    known = role_packages.found_on(case.host, [TOOLS]).get(TOOLS)
    work = result.transaction or role_packages.RoleTransaction()
    names = [item.partition("=")[0] for item in work.install]
    wanted = f"{TOOLS}={pin}" if pin else TOOLS
    if TOOLS in names:
        work.install = [wanted if name == TOOLS else item for name, item in zip(names, work.install)]
    elif pin and known and not role_packages.fits(known, pin):
        work.install = [*work.install, wanted]
        result.reasons.append(f"{TOOLS} {known} is installed, and the release has {pin}")
    installs = any(item.partition("=")[0] == TOOLS for item in work.install)
    if (installs and case.request.hold) or case.lacks_hold(TOOLS):
        work.hold = list(dict.fromkeys([*work.hold, TOOLS]))
    if (work.install or work.hold) and not result.transaction:
        result.transaction = work


def _refuse_replacement(case: _Case, result: NeuronPlan) -> None:
    """Refuse to replace a driver that is in use: the package's script would unload it, or fail halfway."""
    install = result.transaction.install if result.transaction else []
    if not any(item.partition("=")[0] == DKMS for item in install):
        return
    what = f"changed to {result.version or 'another version'}"
    held = (
        device_holders.refusal(case.host, vendor_differences.NEURON.name, "chips", what)
        if case.driver.get("loaded")
        else None
    )
    result.problems += [held] if held else []
    problem = neuron_packages.replacement_problem(case.host, case.installed, result.version)
    result.problems += [problem] if problem else []


# --- the kernel module ------------------------------------------------------------------------------------------------


def _modules_file(case: _Case, result: NeuronPlan) -> None:
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


def _load(case: _Case, result: NeuronPlan) -> None:
    driver, state = case.driver, case.state
    installs = bool(result.transaction and any(item.startswith(DKMS) for item in result.transaction.install))
    if driver.get("loaded") and not installs:
        loaded = driver.get("version")
        if loaded and result.version and neuron_packages.number(loaded) != neuron_packages.number(result.version):
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
    result.packages = sorted(packages_record.to_remove(host, owned.NEURON_RECORD))
    result.cdi = cdi_units.removal(host, vendor_differences.NEURON)
    result.hook = neuron_hook.removal(host)
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
