# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part gaudi_driver: the driver of Intel Gaudi, the CDI specification, and the vendor's container runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import variables as engine_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import drain_reason, habana_runtime
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import plan as gaudi_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import variables as gaudi_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.part import engine_versions
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    device_holders,
    owned_by_all,
    shared_plan,
)

_ROLE = "gaudi_driver"


def plan(context: Context, parts: Mapping[str, Part]) -> Part:
    """Return the plan of the part, which is empty on hosts without Gaudi accelerators."""
    request = gaudi_request.read(context.values.get(_ROLE, {}))
    engine = engine_request.read(context.values.get("container_engine", {}))
    installed = engine_versions(context.host, engine, outcomes.engine(parts))
    engines = habana_runtime.with_unpackaged_containerd(context.host, installed)
    host, held = device_holders.after_drain(context.host, "gaudi", drains=context.drains)
    result = gaudi_plan.plan(
        host,
        request,
        context.platforms[_ROLE],
        context.versions,
        context.accelerator_program,
        engines=engines,
        restart_policy=engine.restart_policy,
    )
    # An engine that this run installs exists only afterwards.
    is_new_engine = outcomes.engine(parts).installs and request.container_runtime
    changes_driver = drain_reason.changes_driver(context.host, request, result)
    part = shared_plan.part(
        _ROLE,
        result,
        removes=request.state == "absent",
        download_timeout=request.download_timeout,
        waits_for_engine=is_new_engine,
        disruptions=result.runtime.disruptions,
    )
    if result.runtime.cri and outcomes.toolkit(parts).changes_cri:
        # Both parts change the root file of containerd, so the second one needs what the first one has written.
        part = dataclasses.replace(part, plans_again=True)
    return device_holders.in_drain(part, held, "accelerators", changes_driver=changes_driver)


PART = Declaration(
    name=_ROLE,
    vendor="gaudi",
    platforms="__gaudi_driver_platforms",
    plan=plan,
    request=gaudi_request.GaudiDriverRequest,
    read=gaudi_request.read,
    reads=("container_engine",),
    after=("container_engine",),
    reports=True,
    # The engines must not know the runtime when its program is removed.
    removed_first=True,
    owns=owned_by_all.of(
        "gaudi",
        files=(
            owned.GAUDI_MODULES_LOAD,
            owned.GAUDI_HOOK,
            owned.GAUDI_HOOKS_DIR,
            owned.GAUDI_CONFIG_RECORD,
            "/etc/habana-container-runtime/config.toml",
            "/usr/share/containers/oci/hooks.d/oci-habana-hook.json",
        ),
        packages=("habana",),
        repositories=(owned.GAUDI_REPOSITORY_ID,),
    ),
)
