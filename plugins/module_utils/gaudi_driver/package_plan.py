# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the packages of Gaudi's driver: versions, repository, headers, holds, and no change of a driver in use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import habana_runtime, repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role, role_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    device_holders,
    shared_plan,
    vendor_differences,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver.plan import GaudiPlan
    from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver.variables import GaudiDriverRequest

ROLE = vendor_differences.GAUDI.role
# On other distributions, with the suite of a similar release.
_PACKAGES = ("habanalabs-firmware", "habanalabs-firmware-tools")
# Support_Matrix: release 1.21 was the last one for the first generation.
FIRST_GENERATION, _END_OF_FIRST_GENERATION = "Gaudi", (1, 22)


@dataclasses.dataclass(frozen=True)
class GaudiCase:
    """What the plan of one host depends on. `platform`: None if the vendor has no packages for it."""

    host: Host
    request: GaudiDriverRequest
    platform: Mapping[str, Any] | None
    versions: Mapping[str, list[str]] | None
    devices: Sequence[Mapping[str, Any]]
    state: Mapping[str, Any]

    @property
    def driver(self) -> Mapping[str, Any]:
        group = self.host["accelerators"][vendor_differences.GAUDI.name] or {}
        return group.get("module") or {}

    @property
    def driver_package(self) -> str | None:
        return self.request.driver_package or (self.platform or {}).get("driver_package")

    @property
    def has_own_runtime(self) -> bool:
        """Return whether the role installed the vendor's runtime, which stays until the role removes all packages."""
        return habana_runtime.PACKAGE in record_of_role.to_remove(self.host, owned.GAUDI_RECORD)

    @property
    def unit(self) -> list[str]:
        """The packages that must have the same version, the driver first."""
        return [
            *([self.driver_package] if self.driver_package else []),
            *(self.platform or {}).get("packages", _PACKAGES),
            *([habana_runtime.PACKAGE] if self.request.container_runtime or self.has_own_runtime else []),
        ]

    @property
    def installed(self) -> str | None:
        """The version of the vendor's installed driver."""
        return role_packages.found_on(self.host, self.unit).get(self.driver_package or "")


def plan_packages(case: GaudiCase, result: GaudiPlan) -> None:
    host, request, data = case.host, case.request, case.platform or {}
    problem = repository.problem(host, request, case.platform)
    definition = None if problem else repository.define(host, request, data)
    planned = role_packages.RolePackagesCase(
        host=host,
        role=ROLE,
        unit=case.unit,
        others=[*request.extra_packages, *_headers(host)],
        requested=request.version,
        hold=request.hold,
        definition=definition,
        place=f"the repository {repository.address(host, request, data)}",
        versions=case.versions,
        hold_needs=data.get("hold_needs"),
        refuse=_refusal(case),
    )
    # Without the repository, complete packages are still held.
    if problem and role_packages.wrong(planned):
        result.problems.append(problem)
        return
    found = role_packages.plan(planned)
    result.version, result.query, result.transaction = found.version, found.query, found.transaction
    result.problems += found.problems
    result.reasons += found.reasons
    result.changes += found.changes
    _refuse_replacement(case, result)
    if result.transaction and result.transaction.install:
        result.reasons += repository.notes(host, data)
    shared_plan.note_signatures(host, result)


def _refuse_replacement(case: GaudiCase, result: GaudiPlan) -> None:
    """Refuse to replace the packages of a driver that is in use. The vendor does not publish what their scripts do."""
    is_other = result.query is None and result.version is not None and result.version != case.installed
    if case.driver.get("loaded") and is_other:
        found = device_holders.refusal(
            case.host, vendor_differences.GAUDI.name, "accelerators", f"changed to {result.version}"
        )
        result.problems += [found] if found else []


def _refusal(case: GaudiCase) -> Callable[[str], str | None]:
    has_first = any(one["generation"] == FIRST_GENERATION for one in case.devices)

    def refuse(version: str) -> str | None:
        if has_first and number(version) >= _END_OF_FIRST_GENERATION:
            return "does not support the first generation of Gaudi in this host; 1.21 was the last release for it"
        return habana_runtime.refusal(version) if case.request.container_runtime else None

    return refuse


def _headers(host: Host) -> list[str]:
    """Return the missing packages of the headers that DKMS needs for the running and the next kernel."""
    missing = shared_plan.kernels_without_headers(host)
    if host["os"]["package_manager"] == "apt":
        return [f"linux-headers-{release}" for release in missing]
    return [f"kernel-devel={release.removesuffix('.' + host['os']['arch'])}" for release in missing]


def number(version: str | None) -> tuple[int, ...]:
    numbers = (version or "").partition("-")[0].split(".")
    return tuple(int(part) for part in numbers if part.isdecimal())
