# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the packages of AWS Neuron's driver, tools and hook: versions, repository, headers, holds, replacement."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import (
    oci_hook,
    repository,
    supported_versions,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.supported_versions import (
    DKMS,
    HOOK,
    OLD_DKMS,
    ROLE,
    TOOLS,
    number,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    record_of_role,
    role_packages,
    role_repository,
    role_version_choice,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    device_holders,
    shared_plan,
    vendor_differences,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.plan import NeuronPlan
    from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.variables import NeuronDriverRequest


@dataclasses.dataclass(frozen=True)
class NeuronCase:
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
        is_own = name in record_of_role.to_remove(self.host, owned.NEURON_RECORD)
        return self.request.hold and is_own and name not in self.host["held_packages"]

    def refuse(self, version: str) -> str | None:
        return supported_versions.obstacle(version, self.request, self.generations)


def plan_packages(case: NeuronCase, result: NeuronPlan) -> None:
    host, request, data = case.host, case.request, case.platform or {}
    try:
        pins = supported_versions.pins(request, case.releases, case.generations)
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
    problem = repository.problem(host, request, case.platform)
    planned = role_packages.RolePackagesCase(
        host=host,
        role=ROLE,
        unit=[DKMS],
        others=[*([TOOLS] if request.tools else []), *_headers(host)],
        requested=pins[DKMS],
        hold=request.hold,
        definition=None if problem else repository.define(host, request, data),
        place=f"the repository {repository.address(host, request)}",
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


def plan_hook(case: NeuronCase, result: NeuronPlan) -> None:
    """Add the vendor's hook. Its package needs the repository of the driver's packages."""
    result.hook = oci_hook.plan(case.host, case.request)
    result.problems += result.hook.problems
    result.changes += result.hook.changes
    if not result.problems and case.request.oci_hook and case.lacks_hold(HOOK):
        result.transaction = result.transaction or role_packages.RoleTransaction()
        result.transaction.hold = [*result.transaction.hold, HOOK]
    if not result.hook.install or result.problems:
        return
    problem = repository.problem(case.host, case.request, case.platform)
    if problem:
        result.problems.append(problem)
        return
    work = result.transaction or role_packages.RoleTransaction()
    definition = repository.define(case.host, case.request, case.platform or {})
    if definition and not role_repository.is_present(case.host, definition["name"]):
        work.repositories = [definition]
    release = case.releases["versions"].get(case.request.release or case.releases["default"]) or {}
    work.install = [*work.install, f"{HOOK}={release[HOOK]}" if HOOK in release else HOOK]
    work.hold = [*work.hold, HOOK] if case.request.hold else work.hold
    result.transaction = work


def prepare_holds(case: NeuronCase, result: NeuronPlan) -> None:
    """Add what dnf needs for the holds of the hook and the tools."""
    work, needs = result.transaction, (case.platform or {}).get("hold_needs")
    if not work or not work.hold or not needs or needs in work.install:
        return
    work.install += [] if installed_packages.is_installed(case.host, needs) else [needs]


def _accepts_kernel(case: NeuronCase, result: NeuronPlan) -> bool:
    release = case.request.release or ("" if case.request.version else case.releases["default"])
    if supported_versions.INFERENTIA in case.generations:
        return True  # AWS lists no kernels for the last driver of Inf1.
    note = supported_versions.kernel_note(case.host, case.platform or {}, release)
    if note and case.request.require_tested_kernel:
        result.problems.append(
            f"{note[:1].upper()}{note[1:]}. Boot one of them, or set {ROLE}_require_tested_kernel to false."
        )
        return False
    result.reasons += [note] if note else []
    return True


def _pin_tools(case: NeuronCase, result: NeuronPlan, pin: str | None) -> None:
    """Install the tools in the version of the release, and hold them."""
    if not case.request.tools or result.problems:
        return
    known = role_packages.found_on(case.host, [TOOLS]).get(TOOLS)
    work = result.transaction or role_packages.RoleTransaction()
    names = [item.partition("=")[0] for item in work.install]
    wanted = f"{TOOLS}={pin}" if pin else TOOLS
    if TOOLS in names:
        work.install = [wanted if name == TOOLS else item for name, item in zip(names, work.install)]
    elif pin and known and not role_version_choice.fits(known, pin):
        work.install = [*work.install, wanted]
        result.reasons.append(f"{TOOLS} {known} is installed, and the release has {pin}")
    installs = any(item.partition("=")[0] == TOOLS for item in work.install)
    if (installs and case.request.hold) or case.lacks_hold(TOOLS):
        work.hold = list(dict.fromkeys([*work.hold, TOOLS]))
    if (work.install or work.hold) and not result.transaction:
        result.transaction = work


def _refuse_replacement(case: NeuronCase, result: NeuronPlan) -> None:
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
    problem = _replacement_problem(case.host, case.installed, result.version)
    result.problems += [problem] if problem else []


def _headers(host: Host) -> list[str]:
    """Return the missing packages of the headers that DKMS needs for the running and the next kernel."""
    missing = shared_plan.kernels_without_headers(host)
    if host["os"]["package_manager"] == "apt":
        return [f"linux-headers-{release}" for release in missing]
    return list(dict.fromkeys(f"{_devel(host, release)}={_without_arch(host, release)}" for release in missing))


def _devel(host: Host, release: str) -> str:
    """Return the package of the headers. Amazon Linux has one per series after the first (awslabs/amazon-eks-ami)."""
    series = ".".join(release.split(".")[:2])
    return f"kernel{series}-devel" if host["os"]["family"] == "amazon" and series != "6.1" else "kernel-devel"


def _without_arch(host: Host, release: str) -> str:
    return release.removesuffix(f".{host['os']['arch']}")


def _replacement_problem(host: Host, present: str | None, chosen: str | None) -> str | None:
    """Return why the driver's package cannot be installed over what the host has, or None.

    `present`: its installed version. `chosen`: the version to install, None before the query.
    """
    if installed_packages.is_installed(host, OLD_DKMS):
        tool = "apt-get purge" if host["os"]["package_manager"] == "apt" else "dnf remove"
        return (
            f"Package {OLD_DKMS} is installed, which conflicts with {DKMS}. Stop the containers with chips, run "
            f"'{tool} {OLD_DKMS}', and run this role again. To keep that driver, set {ROLE}_source=preinstalled."
        )
    # A downgrade with dnf fails, so AWS removes the package first (awslabs/amazon-eks-ami, install-neuron-driver.sh).
    if host["os"]["package_manager"] == "dnf" and present and chosen and number(present) > number(chosen):
        return (
            f"{DKMS} {present} is installed, and {chosen} is older, which dnf cannot install over it. Stop the "
            f"containers with chips, run 'dnf remove {DKMS}', and run this role again. To keep {present}, set "
            f"{ROLE}_version={present}."
        )
    return None
