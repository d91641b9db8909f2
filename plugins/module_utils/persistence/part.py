# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part nvidia_persistenced: the persistence daemon of NVIDIA's driver."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned, variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import after_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration, Owns
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.package_query_timeouts import (
    package_query,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import (
    Context,
    Part,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence import daemon_needs_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence import plan as persistence_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence.variables import PersistenceRequest


def plan(context: Context, parts: Mapping[str, Part]) -> Part:
    reason = daemon_needs_driver.no_driver(context.host, context.values)
    if reason:
        return Part(
            plan=plain(persistence_plan.PersistencePlan(wanted=False, retries=0, reason=reason)), reasons=[reason]
        )
    driver = outcomes.driver(parts)
    installs = driver.installs
    request = variable_fields.read(PersistenceRequest, "nvidia_persistenced", context.values["nvidia_persistenced"])
    result = persistence_plan.plan(
        after_driver(context.host, driver),
        request,
        context.platforms["nvidia_persistenced"],
        context.versions,
        persistence_plan.gpus_with_mode_off(context.facts or {}),
        driver_brings=driver.packages,
    )
    changes = result.changes
    if installs and daemon_needs_driver.waits_for_driver(context.host, result):
        changes, result.reason = [daemon_needs_driver.CHANGE], daemon_needs_driver.REASON
    report = {"state": None, "gpus_off": result.turn_on, "reason": result.reason}
    if context.facts:
        report["state"] = context.facts["nvidia_gpu_state"]
    # Ask also if the driver is to be installed: its versions may show that nothing is.
    asks = result.query and context.versions is None
    return Part(
        plan={**plain(result), "changes": changes, "report": report},
        # The role plans again after the driver's packages have changed.
        acts=result.acts or installs,
        changes=changes,
        reasons=[result.reason],
        errors=[] if installs else result.problems,
        query=package_query("nvidia_persistenced", {"query": result.query}, request.download_timeout) if asks else None,
        report=report if context.facts else None,
        plans_again=installs,
        is_only_reported=installs,
        steps=tuple(result.steps),
        outcome=outcomes.PersistenceOutcome(installs=bool(result.packages)),
    )


PART = Declaration(
    name="nvidia_persistenced",
    vendor="nvidia",
    plan=plan,
    request=PersistenceRequest,
    platforms="__nvidia_persistenced_packages",
    reads=("nvidia_driver",),
    after=("nvidia_driver",),
    needs_facts=True,
    reports=True,
    owns=Owns(
        files=(
            *(f"{directory}/systemd/system/nvidia-persistenced.service" for directory in ("/lib", "/usr/lib")),
            owned.PERSISTENCED_UNIT,
            owned.PERSISTENCED_DROP_IN,
        ),
        units=("nvidia-persistenced.service",),
    ),
)
