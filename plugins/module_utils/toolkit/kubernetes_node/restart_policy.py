# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the restart policy of a node allows: restarts of k3s and RKE2, of containerd and CRI-O. Pure functions."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import (
    ENGINE_RESTART,
    FORBIDDEN,
    Disruption,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import KubernetesNode
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.runtime_placement import RuntimePlacement
    from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriChange, CriPlan

SERVERS = ("k3s.service", "rke2-server.service")
POLICY = "gpu_kubernetes_node_restart_policy"


def restart(
    result: CriPlan,
    change: CriChange,
    node: KubernetesNode,
    place: RuntimePlacement,
    restart_policy: str,
) -> None:
    """Add the restart of the node's unit to the plan, or what the user must do if the policy forbids it."""
    reason = f"{node.title} reads its runtimes only when it starts; interrupts {place.stops}; running containers stay"
    planned = Disruption(ENGINE_RESTART, reason, target=node.unit)
    if may_restart(node.unit, restart_policy):
        change.action = "restarted"
        result.steps.append(steps.own(steps.RELOAD, f"restart {node.unit}"))
        result.disruptions.append(planned)
        return
    result.disruptions.append(Disruption(ENGINE_RESTART, reason, FORBIDDEN, node.unit, forbidden_by=POLICY))
    result.reasons.append(
        f"{node.unit} is not restarted, because {POLICY} is {restart_policy}. Restart it at a time of your choice, or "
        f"set {POLICY} to always"
    )


def may_restart(unit: str, policy: str) -> bool:
    """Return whether the policy allows it. when_safe excludes servers, which have the API server of the cluster."""
    return policy == "always" or (policy == "when_safe" and unit not in SERVERS)


def for_containerd_and_crio(restart_policy: str) -> str:
    """Return the policy for the engines of the host. `always` of its role is only about servers."""
    return "never" if restart_policy == "never" else "when_safe"
