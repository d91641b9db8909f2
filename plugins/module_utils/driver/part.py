# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part nvidia_driver: NVIDIA's driver, with the reboot that it needs, and the order of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import (
    driver_removal,
    loaded_after_run,
    platform_data,
    predicted_disruptions,
    reboot_decision,
    repeated_verification,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import report as driver_report
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import (
    dkms_commands,
    settings_lost_by_reload,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import memory_hotadd
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration, Owns
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part, package_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def present(
    host: Host,
    request: DriverRequest,
    values: Mapping[str, Any],
    platform: dict | None,
    *,
    versions: dict | None,
    streams: dict | None,
    dependencies: dict | None = None,
    rejected_sources: Mapping[str, str] | None = None,
    is_controller: bool,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the fields of the part that installs the driver.

    `settings`: the GPU facts with the settings that a reload would drop, or None if they have not been read.
    """
    data = platform_data.complete(platform, host["os"])
    result = driver_plan.plan(
        host, values, data, versions, streams, dependencies=dependencies, rejected_sources=rejected_sources
    )
    if not result.errors and settings_lost_by_reload.is_planned(host, request, result):
        reload = [] if result.todo.modules["unload"] else [steps.own(steps.MODULE, "reload the kernel modules")]
        result = result.but(reloads=True, steps=[*result.steps, *reload])
        result = settings_lost_by_reload.reported(host, request, result, settings)
    is_answered = versions is not None and result.rejected_sources == (rejected_sources or {})
    decision = _reboot(host, request, result, is_controller)
    manages = result.action != "none"
    has_old_record = manages and not decision["ids"] and observed_files.exists(host, owned.DRIVER_REBOOT_MARKER)
    verifies = manages and repeated_verification.is_due(host, request)
    interrupts = predicted_disruptions.of_present(host, request, result, decision, is_controller=is_controller)
    report = driver_report.of_present(host, result, decision)
    # Whether the files of the driver change, on which the driver volume and the daemon's packages depend.
    installs = bool(result.todo.transaction.install or result.todo.runfile)
    done = _steps(result, decision, interrupts, installs, has_old_record=has_old_record, verifies=verifies)
    return {
        "plan": {
            **plain(result),
            "changes": result.changes,
            "reboot": decision,
            # For check mode.
            "announcements": [disruption.text() for disruption in interrupts],
            "verifies": verifies,
            "report": report,
            "build_command": _build_command(host, result),
        },
        "acts": result.acts or decision["go"] or has_old_record or verifies,
        "steps": done,
        "changes": steps.texts(done),
        "reasons": result.reasons,
        "errors": result.errors,
        "query": _query(result, request) if not is_answered and not result.errors else None,
        "report": report,
        "has_secrets": bool(request.repository_password or request.proxy_password),
        "packages": (*result.todo.transaction.install, *result.todo.prerequisites),
        "outcome": loaded_after_run.outcome(host, request, result, installs=installs, reboots=decision["go"]),
        "disruptions": interrupts,
    }


def _reboot(host: Host, request: DriverRequest, result: DriverPlan, is_controller: bool) -> dict[str, Any]:
    """Return whether the role reboots the host, and why or why not."""
    if result.action == "none":
        return {"reasons": [], "ids": [], "go": False, "why_not": None, "attempt": ""}
    decision = reboot_decision.decision(host, request.reboot_policy, is_controller)
    return {**decision, "attempt": reboot_decision.attempt(host, decision["ids"])}


def _build_command(host: Host, result: DriverPlan) -> str | None:
    """Return the command that builds the module of the kernel that boots next, for the advice in messages."""
    if result.module_build != "dkms":
        return None
    return " ".join(dkms_commands.commands(host, result, [host["kernel"]["next_boot"]])[0])


def _steps(
    result: DriverPlan,
    decision: dict[str, Any],
    interrupts: list[Disruption],
    installs: bool,
    *,
    has_old_record: bool,
    verifies: bool,
) -> tuple[Step, ...]:
    """Return the steps of the part: those of the driver's plan, then the reboot and what earlier runs have left."""
    has_work = result.acts and not result.errors
    found = list(result.steps) if has_work else []
    # A new driver and reloaded modules lead to another decision.
    if not (installs or any(result.todo.modules.values())):
        text = f"reboot the host: {'; '.join(decision['reasons'])}"
        found += [steps.own("reboot", text)] if decision["go"] else []
        old = steps.own(steps.FILE, f"remove {owned.DRIVER_REBOOT_MARKER}")
        found += [old] if has_old_record else []
    found += repeated_verification.planned_steps(verifies=verifies, has_work=has_work)
    # The reboot comes last, and so does the reload of the modules, unless services start afterwards.
    return tuple(steps.interrupting(found, interrupts))


def _query(result: DriverPlan, request: DriverRequest) -> dict[str, Any] | None:
    todo = result.todo
    if not todo.query:
        return None
    return {
        "record": "nvidia_driver",
        "query": todo.query,
        "query_streams": todo.query_streams,
        "query_dependencies": todo.query_dependencies,
        "repositories": todo.transaction.repositories,
        "archive_components": todo.transaction.archive_components,
        "module_streams": todo.transaction.module_streams,
        "files": [*todo.transaction.files, *todo.query_files],
        "lock_timeout": request.lock_timeout,
        "download_timeout": request.download_timeout,
    }


def removal(host: Host, platform: dict | None) -> dict[str, Any]:
    """Return the plan that removes the driver, with the report."""
    result = driver_removal.plan(host, platform_data.complete(platform, host["os"]))
    return {**result, "report": driver_report.of_removal(host, result)}


def plan(context: Context, _parts: Mapping[str, Part]) -> Part:
    values, platform = context.values["nvidia_driver"], context.platforms.get("nvidia_driver")
    request = driver_request.read(values)
    if request.state == "absent":
        gone = removal(context.host, platform)
        return Part(
            plan=plain(gone),
            acts=gone["acts"],
            steps=tuple(gone["steps"]),
            changes=gone["changes"],
            reasons=gone["reasons"],
            errors=gone["errors"],
            removal=package_removal(
                "nvidia_driver",
                gone["packages"],
                exists=gone["record"] or gone["together_with"],
                keep=gone["keep"],
                together_with=gone["together_with"],
            ),
            report=gone["report"],
        )
    return Part(
        **present(
            context.host,
            request,
            values,
            platform,
            versions=context.versions,
            streams=context.streams,
            dependencies=context.dependencies,
            rejected_sources=context.rejected_sources,
            is_controller=context.is_controller,
            settings=context.settings,
        )
    )


PART = Declaration(
    name="nvidia_driver",
    vendor="nvidia",
    plan=plan,
    request=driver_request.DriverRequest,
    read=driver_request.read,
    reports=True,
    owns=Owns(
        files=(
            "/etc/nvidia-imex/nodes_config.cfg",
            owned.MODPROBE,
            owned.MODULES_LOAD,
            owned.UVM_RULE,
            owned.DRIVER_APT_PREFERENCES,
            owned.DRIVER_UNATTENDED_UPGRADES,
            owned.DRIVER_RECORD,
            owned.DRIVER_RUNFILE_RECORD,
            owned.DRIVER_INITRAMFS_MARKER,
            owned.DRIVER_REBOOT_MARKER,
            owned.DRIVER_RELOAD_MARKER,
            owned.DRIVER_UNVERIFIED_MARKER,
            *memory_hotadd.FILES,
        ),
        units=(
            "nvidia-gridd.service",
            "nvidia-fabricmanager.service",
            "nvidia-imex.service",
            "nvidia-dcgm.service",
            "systemd-modules-load.service",
        ),
        packages=(
            r"nvidia|^libnv|^libcud|^nvlsm|datacenter-gpu-manager|gdrcopy|^infiniband-diags$|^libibumad|^nouveau",
            r"^python3-pynvml",
        ),
        repositories=(owned.REPOSITORY_ID,),
    ),
)
