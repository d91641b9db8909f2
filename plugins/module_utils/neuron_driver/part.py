# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part neuron_driver: the driver of AWS Neuron, the CDI specification, and the vendor's hook on request."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import drain_reason, oci_hook
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import plan as neuron_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import variables as neuron_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.supported_versions import ROLE
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    device_holders,
    owned_by_all,
    shared_plan,
)


def plan(context: Context, parts: Mapping[str, Part]) -> Part:
    """Return the plan of the part, which is empty on hosts without AWS Neuron chips."""
    request = neuron_request.read(context.values.get(ROLE, {}))
    data = context.platforms.get(ROLE) or {}
    engine = outcomes.engine(parts)
    host, held = device_holders.after_drain(context.host, "neuron", drains=context.drains)
    result = neuron_plan.plan(
        host,
        request,
        data,
        context.versions,
        context.accelerator_program,
        has_docker=oci_hook.has_docker(context.host, engine.name),
    )
    # An engine that this run installs exists only afterwards.
    is_new_engine = engine.installs and request.oci_hook
    changes_driver = drain_reason.changes_driver(context.host, result)
    part = shared_plan.part(
        ROLE,
        result,
        removes=request.state == "absent",
        download_timeout=request.download_timeout,
        waits_for_engine=is_new_engine,
        disruptions=drain_reason.disruptions(context.host) if changes_driver else [],
    )
    return device_holders.in_drain(part, held, "chips", changes_driver=changes_driver)


PART = Declaration(
    name=ROLE,
    vendor="neuron",
    platforms="__neuron_driver_data",
    plan=plan,
    request=neuron_request.NeuronDriverRequest,
    read=neuron_request.read,
    after=("container_engine",),
    reports=True,
    # Docker must not know the runtime of the hook when its program is removed.
    removed_first=True,
    owns=owned_by_all.of(
        "neuron",
        files=(*owned.NEURON_LEFTOVERS, owned.NEURON_HOOK_CONFIG),
        packages=("neuron",),
        repositories=(owned.NEURON_REPOSITORY_ID,),
    ),
)
