# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a host needs a proof that containers see its GPUs. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import is_driver_wanted
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import mig_without_devices
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import last_proof_record

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part, Values
    from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.variables import ToolkitRequest

_UNITS = {"docker": "docker.service", "containerd": "containerd.service"}


@dataclasses.dataclass
class ProofPlan:
    """The options of module gpu_container_proof, and why it runs. Without `changes`, the module does not run."""

    engines: list[str] = dataclasses.field(default_factory=list)
    image: str = ""
    isolations: list[str] = dataclasses.field(default_factory=list)
    key: dict[str, str] = dataclasses.field(default_factory=dict)
    changes: list[str] = dataclasses.field(default_factory=list)
    reason: str = ""


def needless(host: Host, request: ToolkitRequest, values: Values) -> str | None:
    """Return why the host never needs a proof with these variables, or None."""
    if request.state == "absent":
        return "nvidia_container_toolkit_state is absent"
    if request.source == "none" and "cdi" not in request.isolations:
        return "nvidia_container_toolkit_source is none"
    return None if is_driver_wanted(host, values) else "this host needs no NVIDIA driver"


def upcoming_change(host: Host, parts: t.Mapping[str, Part]) -> str | None:
    """Return what the run changes that the last proof depends on, or None. `parts`: the plans of the earlier parts."""
    if outcomes.driver(parts).changes(nvidia_driver(host)["loaded"]):
        return "the run changes the driver"
    if outcomes.engine(parts).installs:
        return "the run changes the container engine"
    toolkit = outcomes.toolkit(parts)
    if toolkit.changes:
        return "the run changes NVIDIA's container toolkit"
    if toolkit.changes_cdi:
        return "the run changes a CDI specification"
    return None


def engines(host: Host, installed: t.Container[str], planned: str | None) -> list[str]:
    """Return the engines whose containers get GPUs. `installed`: by name. `planned`: the engine that the run starts.

    Docker has a containerd of its own. Somebody may have stopped an engine on purpose.
    """
    found = []
    for name in ("docker", "podman", "containerd"):
        unit = _UNITS.get(name)
        is_active = unit is None or (host["services"].get(unit) or {}).get("active_state") == "active"
        if name in installed and (is_active or name == planned):
            found.append(name)
    return [name for name in found if name != "containerd" or "docker" not in found]


def plan(host: Host, names: list[str], image: str, isolations: list[str], *, upcoming: str | None) -> ProofPlan:
    """Plan the proof for these engines. `upcoming`: what the run changes before the proof, None for nothing."""
    key = last_proof_record.key(host, names, image)
    reason = upcoming or last_proof_record.reason(last_proof_record.observed(host), key)
    result = ProofPlan(
        names, image, isolations, key, reason=reason or "nothing has changed since the last proof, which passed"
    )
    if reason:
        result.changes.append(f"prove that containers of {' and '.join(names)} see the GPUs")
    return result


def obstacle(host: Host, facts: t.Mapping[str, t.Any] | None = None) -> str | None:
    """Return why containers cannot see GPUs yet, or None. `facts`: the GPU facts, None if they were not read."""
    if not nvidia_driver(host)["loaded"]:
        return "no NVIDIA driver is loaded"
    if any(reason["driver"] for reason in host["reboot_reasons"]):
        return "a reboot is required for the driver"
    if mig_without_devices.has_nothing(facts):
        return f"{mig_without_devices.NOTHING}, so containers cannot use them"
    return None
