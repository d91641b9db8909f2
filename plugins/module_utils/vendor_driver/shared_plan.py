# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plans of roles that install a vendor's driver have in common: their result and its parts. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import role_packages, role_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.package_query_timeouts import (
    package_query,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import (
    Part,
    package_removal,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import cdi_units

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver.vendor_differences import VendorDriver


@dataclasses.dataclass
class VendorDriverPlan:
    """What a role does. `transaction` and `query`: options of module package_transaction, or None.

    `modules_file`: the text of the list of modules to write, None if it stays. `load`: kernel modules to load, in this
    order. `record`: whether the role has installed packages. `packages`: with state absent, those that must not stay.
    `remove_files`: files that do not belong to a package.
    """

    wanted: bool = False
    vendor: str = ""
    version: str | None = None
    transaction: role_packages.RoleTransaction | None = None
    query: dict[str, Any] | None = None
    modules_file: str | None = None
    load: list[str] = dataclasses.field(default_factory=list)
    cdi: cdi_units.VendorRefresh = dataclasses.field(default_factory=cdi_units.VendorRefresh)
    verify: bool = False
    report: dict[str, Any] | None = None
    record: bool = False
    packages: list[str] = dataclasses.field(default_factory=list)
    remove_files: list[str] = dataclasses.field(default_factory=list)
    has_secrets: bool = False
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    changes: list[str] = dataclasses.field(default_factory=list)
    acts: bool = False


_Plan = TypeVar("_Plan", bound=VendorDriverPlan)


def report(state: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the report of a role about the devices."""
    return {
        "state": state["state"],
        "reason": state["reason"],
        "driver_version": state["driver_version"],
        "devices": [one["stable_id"] for one in devices],
    }


def without_driver(role: str, state: Mapping[str, Any]) -> str:
    """Return the problem of a host that should have a driver already."""
    return (
        f"{role}_source=preinstalled, but this host has no usable driver. {state['reason']} Install a driver, or set "
        f"{role}_source=auto."
    )


def kernels_without_headers(host: Host) -> list[str]:
    """Return the running and the next kernel if DKMS has no headers for them."""
    known = {one["release"]: one["headers"] for one in host["kernel"]["kernels"]}
    releases = dict.fromkeys([host["kernel"]["running"], host["kernel"]["next_boot"]])
    return [release for release in releases if release and not known.get(release)]


def note_signatures(host: Host, result: VendorDriverPlan) -> None:
    """Add a reason if the kernel refuses the module that DKMS will build."""
    if result.transaction and result.transaction.install and host["secure_boot"]["signatures_enforced"]:
        result.reasons.append(
            "the kernel only loads signed modules; enroll the key of DKMS with mokutil, or the driver cannot be loaded"
        )


def keep_specification(
    host: Host,
    vendor: VendorDriver,
    devices: Sequence[Mapping[str, Any]],
    state: Mapping[str, Any],
    result: Any,
    *,
    kind: str,
    digest: Callable[[dict[str, Any]], str],
) -> None:
    """Plan the CDI specification in the plan of a role, `result`. `digest`: see `cdi_units.plan`."""
    is_ready = state["state"] == schema.READY or bool(result.load)
    result.cdi = cdi_units.plan(host, vendor, devices, kind, digest, is_ready=is_ready)
    result.problems += result.cdi.problems
    result.reasons += result.cdi.reasons
    result.changes += result.cdi.changes
    result.verify = is_ready


def removal_changes(result: VendorDriverPlan) -> list[str]:
    """Return the changes that remove packages, repository, holds and files."""
    return [
        *([f"remove {', '.join(result.packages)}"] if result.packages else []),
        *(["remove the repository and holds that this role recorded"] if result.record else []),
        *(f"remove {path}" for path in result.remove_files),
    ]


def part(
    role: str,
    result: VendorDriverPlan,
    *,
    removes: bool,
    download_timeout: int,
    waits_for_engine: bool,
    disruptions: Sequence[Any] = (),
) -> Part:
    """Return the part of a role's plan. `waits_for_engine`: whether it depends on an engine that this run installs."""
    query = package_query(role, result.query, download_timeout) if result.query and not result.problems else None
    return Part(
        plan=plain(result),
        acts=result.acts,
        changes=result.changes,
        reasons=result.reasons,
        errors=result.problems,
        query=query,
        removal=package_removal(role, result.packages, exists=result.record) if removes else None,
        report=result.report,
        has_secrets=result.has_secrets,
        packages=tuple(result.transaction.install) if result.transaction else (),
        disruptions=list(disruptions),
        removes=removes,
        plans_again=waits_for_engine and result.wanted,
    )


def load(host: Host, result: VendorDriverPlan, role: str, modules: Sequence[str], *, activate: bool) -> None:
    """Plan to load kernel modules. The first one is the driver."""
    blacklists = host["accelerators"][result.vendor]["record"]["blacklisted_by"]
    if blacklists:
        result.reasons.append(f"{', '.join(blacklists)} blacklists {modules[0]}, so the role does not load it")
    elif not activate:
        result.reasons.append(f"{modules[0]} is not loaded, and {role}_activate is false")
    else:
        result.load = list(modules)
        result.changes.append(f"load kernel module{'s' if len(modules) > 1 else ''} {', '.join(modules)}")


def finish(host: Host, result: _Plan) -> _Plan:
    """Decide whether the role acts. A host with a problem is not changed."""
    if result.transaction:
        result.has_secrets = role_repository.has_password(result.transaction.repositories)
    result.changes = [] if result.problems else result.changes
    result.acts = bool(result.changes)
    if result.acts and host["uid"] != 0:
        result.problems.append(needs_root(host["uid"]))
    return result
