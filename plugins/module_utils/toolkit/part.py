# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part nvidia_container_toolkit: NVIDIA's container toolkit, CDI and the runtime of the engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import rewrite_command
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import variables as engine_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vendor_names
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration, Owns
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import (
    Context,
    Part,
    of_removal,
    of_role,
    of_steps,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import (
    config_toml,
    hosts_without_engine,
    toolkit_cdi_units,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import plan as toolkit_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import removal as toolkit_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import variables as toolkit_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import other_configuration_owners
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import HABANA
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.version_compatibility import ENGINES

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def plan(context: Context, parts: Mapping[str, Part]) -> Part:
    host, request = context.host, toolkit_request.read(context.values["nvidia_container_toolkit"])
    engine = engine_request.read(context.values["container_engine"])
    is_managed = request.source != "none"
    if request.state == "absent":
        # The removal follows the records, so the source does not matter.
        removal = toolkit_removal.plan(host, engine.restart_policy)
        return dataclasses.replace(
            of_removal("nvidia_container_toolkit", removal),
            disruptions=removal.cri.disruptions,
            outcome=outcomes.ToolkitOutcome(changes_cri=bool(removal.cri.engines)),
        )
    if not is_managed and "cdi" not in request.isolations and not request.wrapper:
        result = toolkit_plan.without_toolkit(host, request, engines={})
        return of_role("nvidia_container_toolkit", result, request.download_timeout)
    if not driver_request.is_driver_wanted(host, context.values):
        return _idle_toolkit(host, "this host needs no NVIDIA driver")
    engines = engine_versions(host, engine, outcomes.engine(parts))
    if other_configuration_owners.has_unpackaged_containerd(host):
        engines.setdefault("containerd", None)
    without = None if engines else hosts_without_engine.without_engine(host)
    if without:
        return _idle_toolkit(host, without)
    driver = outcomes.driver(parts)
    upcoming = driver.loaded_after(vendor_names.nvidia_driver(host)["loaded"])
    common: dict[str, Any] = {
        "engines": engines,
        "driver": upcoming,
        "cdi_waits": toolkit_cdi_units.waits(host, context.facts, upcoming),
        "cdi_changed": toolkit_cdi_units.changed(host, context.facts),
        # Without activation, the old driver stays loaded, whose libraries are gone.
        "has_new_driver": driver.installs and driver_request.read(context.values["nvidia_driver"]).activate,
        "cdi_program": context.cdi_program,
    }
    if not is_managed:
        result = toolkit_plan.without_toolkit(host, request, **common)
        return _planned(host, driver, result, request)
    result = toolkit_plan.plan(
        host,
        request,
        context.platforms["nvidia_container_toolkit"],
        context.versions,
        restart_policy=engine.restart_policy,
        **common,
    )
    return _planned(host, driver, result, request)


def _planned(
    host: Host,
    driver: outcomes.DriverOutcome,
    result: toolkit_plan.ToolkitPlan,
    request: toolkit_request.ToolkitRequest,
) -> Part:
    """Return the part, which plans again after the driver, because that may not be loaded as planned.

    It also plans again if the removal of Gaudi's runtime, which comes first, can change the same root file.
    """
    shares_root = bool(result.cri.engines) and HABANA.containerd_drop_in in host["cri_files"]["containerd"]
    outcome = outcomes.ToolkitOutcome(
        changes=bool(result.transaction or result.config_needed or result.config),
        changes_cdi=bool(result.cdi.restart or result.cdi.remove or result.own_cdi.restart or result.own_cdi.remove),
        changes_cri=bool(result.cri.engines or result.cri.later),
        keeps_packages=result.transaction is None,
        migrates=bool(result.migration.changes),
        migrates_volumes=bool(result.migration.volumes),
    )
    return dataclasses.replace(
        of_role("nvidia_container_toolkit", result, request.download_timeout),
        # A role that changes packages plans again anyway.
        plans_again=(driver.installs and result.transaction is None) or shares_root,
        outcome=outcome,
    )


def _idle_toolkit(host: Host, reason: str) -> Part:
    idle = toolkit_plan.idle(host, reason)
    if not idle.acts:
        return of_steps([], reasons=[reason])
    part = of_role("nvidia_container_toolkit", idle)
    return dataclasses.replace(part, outcome=outcomes.ToolkitOutcome(keeps_packages=True))


def engine_versions(
    host: Host, engine: engine_request.EngineRequest, planned: outcomes.EngineOutcome
) -> dict[str, str | None]:
    """Return the versions of the engines that are installed or that the plan of part container_engine installs."""
    seen: Mapping[str, Any] = host["engines"]
    found = {name: seen[name]["version"] for name in ENGINES if seen[name]["package"]}
    if (host["services"].get("docker.service") or {}).get("load_state") == "loaded":
        found.setdefault("docker", None)
    if engine.state == "absent":
        found.pop(engine.name, None)
    elif planned.name in ENGINES:
        found[planned.name] = planned.version
    return found


PART = Declaration(
    name="nvidia_container_toolkit",
    vendor="nvidia",
    plan=plan,
    request=toolkit_request.ToolkitRequest,
    read=toolkit_request.read,
    platforms="__nvidia_container_toolkit_platforms",
    reads=("nvidia_driver", "container_engine"),
    needs_facts=True,
    removed_first=True,
    owns=Owns(
        files=(
            config_toml.PATH,
            owned.CONTAINER_TOOLKIT_APT_PREFERENCES,
            owned.CONTAINER_TOOLKIT_RECORD,
            owned.CONTAINER_TOOLKIT_CONFIG_RECORD,
            owned.CONTAINER_TOOLKIT_RESTART_MARKER,
            owned.MIGRATION,
            owned.CONTAINERD_CONFIG_RECORD,
            owned.CONTAINERD_RESTART_MARKER,
            owned.CRIO_RESTART_MARKER,
            *toolkit_cdi_units.FILES,
            owned.CDI_PROGRAM,
            owned.CDI_UNIT,
            owned.WRAPPER,
        ),
        units=(*toolkit_cdi_units.UNITS, rewrite_command.REFRESH_UNIT, "crio.service"),
        repositories=(owned.CONTAINER_TOOLKIT_REPOSITORY_ID,),
    ),
)
