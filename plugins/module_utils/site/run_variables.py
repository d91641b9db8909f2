# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the variables of a host say about a run of playbook site or verify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver, nvidia_group
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import health_variables, host_health, plan_result
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.end_of_run_verdicts import (
    FAILED,
    NOT_STARTED,
    OK,
    UNREACHABLE,
    FleetResult,
)

_PLAN_TASK = "Plan all changes, and stop on conflicts before any change"
_VERIFY_TASK = "Check the health of the host"


def of_site(variables: Mapping[str, Any], *, works: bool) -> FleetResult:
    """Return what playbook site knows about a host. `works`: it has not failed."""
    planned = variables.get("site_plan")
    if planned is None or planned.get("unreachable"):
        return FleetResult(NOT_STARTED if planned is None and works else UNREACHABLE)
    if planned.get("failed"):
        return FleetResult(FAILED, failed_task=_PLAN_TASK)
    first = plan_result.host(planned)
    # The last observation. A host that failed has that of the last role.
    outcome = variables.get("site_outcome") or {}
    observed = outcome.get("host") or variables.get("gpufleet_host") or first
    facts = variables.get("ansible_facts") or {}
    known = {"observed": observed, "facts": facts, "first_boot": first["identity"]["boot"]}
    if not works:
        # Ansible names the failed task only of a host that failed, not of one that became unreachable.
        task = (variables.get("ansible_failed_task") or {}).get("name")
        return FleetResult(FAILED, failed_task=task, **known) if task else FleetResult(UNREACHABLE, **known)
    adoption = (variables.get("dlami_outcome") or {}).get("adoption") or planned.get("adoption") or {}
    return FleetResult(OK, health=_health(variables, observed, facts), adoption=adoption.get("table") or (), **known)


def of_verify(variables: Mapping[str, Any], *, works: bool) -> FleetResult:
    """Return what playbook verify knows about a host. `works`: it has not failed."""
    result = variables.get("verify_result")
    if result is None or result.get("unreachable"):
        return FleetResult(NOT_STARTED if result is None and works else UNREACHABLE)
    if result.get("failed"):
        return FleetResult(FAILED, failed_task=_VERIFY_TASK)
    return FleetResult(OK, observed=result["host"], facts=variables.get("ansible_facts") or {}, health=result["health"])


def _health(variables: Mapping[str, Any], host: Any, facts: Mapping[str, Any]) -> dict[str, list[str]] | None:
    """Return the problems and notes of a host after playbook site, or None if the run did not read its GPUs."""
    if variables.get("nvidia_driver_state") == "absent" and nvidia_group(host)["gpus"]:
        removed = "The NVIDIA driver is not installed, because nvidia_driver_state is absent."
        return {"problems": [], "notes": [removed]}
    if nvidia_group(host)["gpus"] and "nvidia_gpu_state" not in facts:
        if nvidia_driver(host)["loaded"]:
            return None
        facts = {"nvidia_gpu_state": "no_driver", "nvidia_gpu_state_reason": "No NVIDIA driver is loaded."}
    try:
        return host_health.judge(host, dict(facts), **health_variables.read(variables.get))
    except VariableError as error:
        return {"problems": [str(error)], "notes": []}
