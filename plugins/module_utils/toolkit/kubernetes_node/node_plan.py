# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a node of Kubernetes, from the observation of the host. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths, node_distribution
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.role_variables import NODE_ROLE
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.runtime_placement import placement
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriChange, CriPlan, after
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import HABANA, NVIDIA
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.docker_runtime import PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import (
    gaudi_runtime,
    nvidia_runtime,
    runtime_removal,
)

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.role_variables import KubernetesNodeRequest

_WITHOUT_RUNTIME = ("amd", "neuron")


@dataclasses.dataclass
class KubernetesNodePlan:
    """What the role does on a node, and why. `generated`: the configuration of the node's own containerd.

    `checks`: the runtimes that must be registered after the role. `directories`: those to remove if they are empty.
    """

    distribution: str | None = None
    unit: str | None = None
    socket: str | None = None
    generated: str | None = None
    engines: list[CriChange] = dataclasses.field(default_factory=list)
    checks: list[str] = dataclasses.field(default_factory=list)
    directories: list[str] = dataclasses.field(default_factory=list)
    changes: list[str] = dataclasses.field(default_factory=list)
    disruptions: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class UpcomingToolkit:
    """What role nvidia_container_toolkit does in the same run before this role, if check mode only plans it.

    `installs`: its packages. `registers`: the runtime in the engine of the host.
    """

    installs: bool = False
    registers: bool = False


def plan(
    host: Host,
    request: KubernetesNodeRequest,
    vendors: t.Collection[str],
    upcoming: UpcomingToolkit = UpcomingToolkit(),
) -> KubernetesNodePlan:
    """Return the plan. `vendors`: those whose devices the host has."""
    recognized = node_distribution.recognize(host)
    node = recognized.node
    if recognized.problem:
        return KubernetesNodePlan(problems=[recognized.problem])
    if request.state == "absent":
        return _removal(host, node, request)
    if node is None:
        return KubernetesNodePlan(reason=node_distribution.unrecognized(host) or "the host is no node of Kubernetes")
    result = KubernetesNodePlan(
        node.distribution, node.unit, node.socket, distribution_paths.GENERATED.get(node.distribution)
    )
    reasons = [f"{node.title}: {', '.join(node.evidence)}"]
    reasons += [placement(node, vendor).reason for vendor in _WITHOUT_RUNTIME if vendor in vendors]
    known = host["engines"]
    engines = _engines(host)
    if "nvidia" in vendors:
        has_runtime = bool(known["container_toolkit"]["package"]) or PATH in (host.get("nvidia_runtimes") or {})
        found = nvidia_runtime.plan(
            host,
            node,
            engines,
            has_runtime=has_runtime or upcoming.installs,
            toolkit_role_registers=upcoming.registers,
            default_runtime=request.default_runtime,
            restart_policy=request.restart_policy,
        )
        _take(result, found, reasons)
        host = after(host, found.engines)
        # Without a change, somebody else registers the runtime, or nobody can yet.
        result.checks += [NVIDIA.name] if found.engines and node.is_running else []
    if "gaudi" in vendors:
        found = gaudi_runtime.plan(
            host,
            node,
            engines,
            default_runtime=request.default_runtime and "nvidia" not in vendors,
            restart_policy=request.restart_policy,
        )
        _take(result, found, reasons)
        result.checks += [HABANA.name] if found.engines and node.is_running else []
    result.reason = "; ".join(reasons)
    return _checked(host, result)


def without_toolkit(host: Host, packages: t.Collection[str], changes: t.Iterable[CriChange]) -> Host:
    """Return the host after the removal of the toolkit, which check mode only plans. `packages`: those removed."""
    seen = t.cast("dict[str, t.Any]", after(host, changes))
    if packages:
        seen["engines"] = {**seen["engines"], "container_toolkit": {"package": None, "version": None}}
        seen["nvidia_runtimes"] = {
            path: one for path, one in (seen.get("nvidia_runtimes") or {}).items() if path != PATH
        }
    return t.cast("Host", seen)


def _engines(host: Host) -> dict[str, str | None]:
    known = host["engines"]
    return {name: known[name]["version"] for name in ("containerd", "crio") if known[name]["package"]}


def _removal(
    host: Host, node: node_distribution.KubernetesNode | None, request: KubernetesNodeRequest
) -> KubernetesNodePlan:
    result = KubernetesNodePlan(*((node.distribution, node.unit, node.socket) if node else ()))
    reasons: list[str] = []
    _take(result, runtime_removal.of_distributions(host, node, request.restart_policy), reasons)
    for found in runtime_removal.of_engines(host, _engines(host), request.restart_policy):
        _take(result, found, reasons)
    default = f"{NODE_ROLE}_state is absent" if result.changes else "the role has registered nothing"
    result.reason = "; ".join(reasons) or default
    return _checked(host, result)


def _take(result: KubernetesNodePlan, found: CriPlan, reasons: list[str]) -> None:
    result.engines += found.engines
    result.changes += found.changes
    result.problems += found.problems
    result.disruptions += [one.text() for one in found.disruptions]
    result.directories += runtime_removal.emptied(found.engines)
    reasons += [text.rstrip(".") for text in found.reasons]


def _checked(host: Host, result: KubernetesNodePlan) -> KubernetesNodePlan:
    if result.engines and host["uid"] != 0:
        result.problems.append(needs_root(host["uid"]))
    return result
