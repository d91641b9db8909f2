# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan NVIDIA's container toolkit on a host, from the observation of the host. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import coexistence, restart_disruptions
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.role_variables import NODE_ROLE
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import old_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import planned_steps as migration_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import role_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import RolePackages, RoleTransaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import (
    config_toml,
    docker_runtime,
    hosts_without_engine,
    nvidia_docker_file,
    own_cdi_units,
    package_plan,
    registered_runtimes,
    toolkit_cdi_units,
    version_compatibility,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal as cri_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.variables import ToolkitRequest


@dataclasses.dataclass
class ToolkitPlan:
    """What the role does on a host, and why.

    `version`: the toolkit after the role, None if it is not known yet. `transaction`: the options of module
    package_transaction, whose packages to install are also in `packages`. `query`: its options for the versions that
    the plan depends on. `adds_hook`: the packages bring the hook that Docker detects when it starts. `options`: all
    options of the role in daemon.json. `restart`: what needs a restart of Docker, besides options.
    """

    version: str | None = None
    source: str | None = None
    packages: list[str] = dataclasses.field(default_factory=list)
    transaction: RoleTransaction | None = None
    query: dict[str, t.Any] | None = None
    adds_hook: bool = False
    options: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    config_needed: bool = False
    restart: list[str] = dataclasses.field(default_factory=list)
    # The change of the toolkit's own configuration. None: it stays.
    config: config_toml.ConfigChange | None = None
    # The units that keep the CDI specification up to date.
    cdi: toolkit_cdi_units.Refresh = dataclasses.field(default_factory=toolkit_cdi_units.Refresh)
    # The program that keeps it up to date if no unit of the toolkit does.
    own_cdi: own_cdi_units.OwnCdi = dataclasses.field(default_factory=own_cdi_units.OwnCdi)
    # The program nvidia-docker.
    wrapper: nvidia_docker_file.WrapperFile = dataclasses.field(default_factory=nvidia_docker_file.WrapperFile)
    # The runtime in containerd and CRI-O.
    cri: CriPlan = dataclasses.field(default_factory=CriPlan)
    # What removes the rest of nvidia-docker 1 and 2.
    migration: migration_plan.Migration = dataclasses.field(default_factory=migration_plan.Migration)
    problems: list[str] = dataclasses.field(default_factory=list)
    reason: str = ""
    has_secrets: bool = False
    # What the role does. The next three fields are derived from it.
    steps: list[Step] = dataclasses.field(default_factory=list)
    acts: bool = False
    changes: list[str] = dataclasses.field(default_factory=list)
    disruptions: list[Disruption] = dataclasses.field(default_factory=list)


def plan(
    host: Host,
    request: ToolkitRequest,
    platforms: dict[str, t.Any],
    versions: t.Mapping[str, list[str]] | None = None,
    *,
    engines: t.Mapping[str, str | None],
    driver: str | None = None,
    has_new_driver: bool = False,
    cdi_waits: str | None = None,
    cdi_changed: t.Collection[str] = (),
    restart_policy: str = "when_safe",
    cdi_program: t.Callable[[], str | None] = lambda: None,
) -> ToolkitPlan:
    """Plan what the role does on this host, and why.

    `versions` is None before the query of the repositories. `engines`: the versions of the engines that are installed
    or will be. `driver`: the version of the driver that is loaded or will be. `has_new_driver`: its files
    change in this run. `cdi_waits` and `cdi_changed`: see `toolkit_cdi_units`. `restart_policy`: that of role
    container_engine. `cdi_program` returns the digest of the program of own_cdi, or None.
    """
    result = ToolkitPlan()
    node = hosts_without_engine.own_containerd(host)
    if request.migrate:
        result.migration = migration_plan.plan(host, remove_containers=request.migrate_remove_containers)
        host = migration_plan.after(host, result.migration)
    reasons = _packages(result, package_plan.plan(host, request, platforms, versions), host, request)
    result.problems += version_compatibility.problems(
        driver, result.version, coexistence.for_containers(host, engines), request.isolations
    )
    if "docker" in engines:
        reasons += _docker(result, host, request, restart_policy)
    elif request.default_runtime and not {"containerd", "crio"} & set(engines):
        result.problems.append(hosts_without_engine.no_default_runtime(node))
    result.cri = cri_plan.plan(host, engines, default_runtime=request.default_runtime, restart_policy=restart_policy)
    result.steps += result.cri.steps
    result.problems += result.cri.problems
    reasons += result.cri.reasons
    reasons += [f"{node.title} has its own containerd, in which role {NODE_ROLE} registers the runtime"] if node else []
    oci_runtime = cri_plan.oci_runtime(host, engines, default_runtime=request.default_runtime)
    _config(result, host, request, oci_runtime)
    kept = {"has_new_driver": has_new_driver, "waits": cdi_waits, "changed": cdi_changed}
    reasons += _specification(result, host, request, driver, cdi_program=cdi_program, **kept)
    reasons += _wrapper(result, host, engines, wanted=request.wrapper)
    _derive(result, host)
    reasons += registered_runtimes.foreign(host)
    result.reason = "; ".join(reasons) or f"the toolkit {result.version} is installed"
    return result


def _specification(
    result: ToolkitPlan,
    host: Host,
    request: ToolkitRequest,
    driver: str | None,
    *,
    cdi_program: t.Callable[[], str | None],
    **kept: t.Any,
) -> list[str]:
    """Plan what keeps the CDI specification up to date: a unit of the toolkit, or a program. Return the reasons."""
    installs = bool(result.transaction and result.transaction.install)
    result.cdi = toolkit_cdi_units.plan(host, result.version, driver, installs=installs, **kept)
    if version_compatibility.CDI in request.isolations and result.cdi.specification is None:
        result.own_cdi = own_cdi_units.plan(host, driver, cdi_program, **kept)
    else:
        result.own_cdi = own_cdi_units.removal(host, result.cdi.remove)
    result.steps += [*result.cdi.steps, *result.own_cdi.steps]
    result.problems += result.own_cdi.problems
    return [*result.cdi.reasons, *result.own_cdi.reasons]


def _derive(result: ToolkitPlan, host: Host) -> None:
    """Derive what the steps mean for the user."""
    result.acts, result.changes = bool(result.steps), steps.texts(result.steps)
    # A restart that a policy forbids is no step.
    result.disruptions = list(dict.fromkeys([*steps.disruptions(result.steps), *result.cri.disruptions]))
    if result.acts and host["uid"] != 0:
        result.problems.append(needs_root(host["uid"]))


def _packages(result: ToolkitPlan, packages: RolePackages, host: Host, request: ToolkitRequest) -> list[str]:
    """Plan the transaction of the packages, with what a migration removes in it. Return the reasons."""
    work = package_plan.with_migration(packages, result.migration)
    result.version, result.source, result.query = packages.version, packages.source, packages.query
    result.problems = list(packages.problems)
    conflict = old_packages.conflict(host) if packages.query or (work and work.install) else None
    if conflict and not request.migrate:
        result.problems.append(conflict)
    elif work and not packages.problems:
        result.transaction, result.packages = work, work.install
        result.adds_hook = package_plan.UNIT[0] not in package_plan.found_on(host)
        result.has_secrets = role_repository.has_password(work.repositories)
    result.steps = [steps.own("migration", text) for text in result.migration.changes]
    result.steps += package_plan.steps_beside_migration(result.transaction, result.migration)
    return [*result.migration.reasons, *packages.reasons]


def _docker(result: ToolkitPlan, host: Host, request: ToolkitRequest, restart_policy: str) -> list[str]:
    """Plan the runtime in daemon.json, and what Docker detects only when it starts. Return the reasons."""
    registration = docker_runtime.plan(host, default_runtime=request.default_runtime)
    result.options, result.problems = registration.options, [*result.problems, *registration.problems]
    if docker_runtime.needs_restart(host) and not result.adds_hook:
        result.restart = [docker_runtime.HOOK]
    if result.migration.restart:
        result.restart = [*result.restart, result.migration.restart]
    result.config_needed = bool(registration.changes or result.restart)
    names = {docker_runtime.HOOK: "the new hook"}
    found = [steps.own(steps.RELOAD, f"restart docker.service for {names.get(why, why)}") for why in result.restart]
    # Docker detects the hook of new packages only when it starts.
    restart = [*registration.restart, *result.restart, *([docker_runtime.HOOK] if result.adds_hook else [])]
    interrupts = restart_disruptions.of_options(host, restart, registration.config, restart_policy)
    # The packages of the hook need the restart if nothing else does.
    result.steps = steps.interrupting([*result.steps, *registration.steps, *found], interrupts)
    return registration.reasons


def without_toolkit(
    host: Host,
    request: ToolkitRequest,
    *,
    engines: t.Mapping[str, str | None],
    driver: str | None = None,
    has_new_driver: bool = False,
    cdi_waits: str | None = None,
    cdi_changed: t.Collection[str] = (),
    cdi_program: t.Callable[[], str | None] = lambda: None,
) -> ToolkitPlan:
    """Plan a host on which the role manages no toolkit, as `plan` does."""
    result = ToolkitPlan()
    if version_compatibility.CDI in request.isolations:
        result.problems = version_compatibility.problems(
            None, None, coexistence.for_containers(host, engines), [version_compatibility.CDI]
        )
        result.own_cdi = own_cdi_units.plan(
            host, driver, cdi_program, has_new_driver=has_new_driver, waits=cdi_waits, changed=cdi_changed
        )
        default = f"{own_cdi_units.UNIT} keeps the CDI specification up to date"
    else:
        result.own_cdi = own_cdi_units.removal(host)
        default = "nvidia_container_toolkit_source is none: the role changes nothing"
        if result.own_cdi.steps:
            default = (
                "nvidia_container_toolkit_source is none, and nvidia_container_toolkit_isolations does not contain cdi"
            )
    result.steps = list(result.own_cdi.steps)
    result.problems += result.own_cdi.problems
    reasons = [*result.own_cdi.reasons, *_wrapper(result, host, engines, wanted=request.wrapper)]
    if request.wrapper:
        reasons = reasons or [
            default.replace("the role changes nothing", f"the role manages only {nvidia_docker_file.PATH}")
        ]
    elif result.wrapper.steps:
        reasons.append("nvidia_container_toolkit_wrapper is false")
    _derive(result, host)
    result.reason = "; ".join(reasons) or default
    return result


def idle(host: Host, reason: str) -> ToolkitPlan:
    """Plan a host on which the role has nothing to do, as `plan` does. A program that it wrote earlier is removed."""
    result = ToolkitPlan(reason=reason)
    _wrapper(result, host, (), wanted=False)
    _derive(result, host)
    return result


def _wrapper(result: ToolkitPlan, host: Host, engines: t.Collection[str], *, wanted: bool) -> list[str]:
    """Plan the program nvidia-docker, and return the reasons."""
    result.wrapper = nvidia_docker_file.plan(host, engines, wanted=wanted)
    result.steps += result.wrapper.steps
    result.problems += result.wrapper.problems
    return result.wrapper.reasons


def _config(result: ToolkitPlan, host: Host, request: ToolkitRequest, oci_runtime: str | None) -> None:
    """Plan the keys of config.toml. `oci_runtime`: see `config_toml.observed`."""
    wrong = config_toml.value_problems(request.config)
    result.problems += [f"nvidia_container_toolkit_config: {text}" for text in wrong]
    if wrong:
        return
    try:
        change = config_toml.observed(host, request.config, oci_runtime)
    except TomlError as error:
        result.problems.append(f"{config_toml.PATH} cannot be changed: {error}. Nothing was changed.")
        return
    if change.keys:
        result.config = change
        result.steps.append(steps.own(steps.FILE, f"change {', '.join(change.keys)} in {config_toml.PATH}"))
