# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part container_proof: containers see the GPUs of the host."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import after_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import variables as engine_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration, Owns
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import is_proof_needed as proof_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import variables as toolkit_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.part import engine_versions


def plan(context: Context, parts: Mapping[str, Part]) -> Part:
    host, request = context.host, toolkit_request.read(context.values["nvidia_container_toolkit"])
    needless = proof_plan.needless(host, request, context.values)
    if needless:
        return Part(reasons=[needless])
    driver, engine = outcomes.driver(parts), outcomes.engine(parts)
    obstacle = None if driver.installs else proof_plan.obstacle(after_driver(host, driver), context.facts)
    installed = engine_versions(host, engine_request.read(context.values["container_engine"]), engine)
    engines = proof_plan.engines(host, installed, engine.name)
    if not engines:
        obstacle = obstacle or "no container engine is running"
    # Another part may remove the obstacle, so the host is planned again before the proof.
    changing = [name for name in PART.after if name in parts and parts[name].acts]
    if obstacle:
        return Part(acts=bool(changing), reasons=[obstacle], is_only_reported=True)
    upcoming = proof_plan.upcoming_change(host, parts)
    result = proof_plan.plan(host, engines, request.proof_image, request.isolations, upcoming=upcoming)
    return Part(
        plan=plain(result),
        acts=bool(result.changes or changing),
        changes=result.changes,
        reasons=[result.reason],
        is_only_reported=True,
    )


PART = Declaration(
    name="container_proof",
    vendor="nvidia",
    plan=plan,
    is_step=True,
    reads=("nvidia_driver", "container_engine", "nvidia_container_toolkit"),
    after=("nvidia_driver", "container_engine", "nvidia_container_toolkit", "driver_volume"),
    needs_facts=True,
    owns=Owns(files=(owned.CONTAINER_PROOF_RECORD,)),
)
